"""Where the heavy work runs: neighbours found and local systems solved, on this machine's cores or on a GPU.

An engine is built from whitened rows and their targets, and answers with local laws. Stages and estimators know this
page and nothing behind it; whichever engine does the work, the laws are the same (`tests/engines/conformance`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from gpnn.common.errors import InvalidInputError, MissingExtraError
from gpnn.common.kernels import Kernel
from gpnn.common.types import Array, Hyperparameters, Neighbors, Prediction
from gpnn.engines.descent import Adam
from gpnn.engines.local import LocalSolution, Noise

__all__ = [
    "ENGINES", "Engine", "JointErrors", "Learner", "LocalSolution", "Neighborhoods", "Noise", "Probes", "check_engine",
    "make_engine",
]  # fmt: skip

ENGINES = ("cpu", "gpu", "reference")


class Engine(Protocol):
    """Rows given to an engine, or by it, are arrays of its own kind (n, d): a device's stay on the device."""

    index: Any
    """The `NeighborIndex` that was built: in this machine's memory, whatever the engine, and good for any other."""
    y: Array
    """Targets, in the order of the index."""
    noise: Noise | None
    """What is known of their noise, in that order."""

    @property
    def n_learners(self) -> int | None:
        """How many candidates may learn at a time: threads, None for every core."""
        ...

    def describe(self) -> str:
        """What does the work, for reports: "cpu, 2 threads"."""
        ...

    def whiten(self, whitening: Whitening, X: Array, hidden: NDArray | None = None, progress: Any = None) -> Any:
        """The rows of X in whitened units, without those in `hidden` (sorted numbers)."""
        ...

    def build(
        self,
        rows: Any,
        y: Array,
        index: Any,
        n_neighbors: int,
        probes: NDArray,
        seed: int,
        progress: Any = None,
        noise: Noise | None = None,
    ) -> Self:
        """An engine that holds these rows, which it may overwrite, and their targets.

        index: a name, or an object such as IVF(recall=0.999). It may tune itself for n_neighbors on rows `probes`.
        """
        ...

    def hold(self, index: Any, y: Array, noise: Noise | None = None) -> Self:
        """An engine that holds an index built before, here or elsewhere. y and noise are in the order of the index."""
        ...

    def recall(self, rows: Any, n_neighbors: int) -> float:
        """The share of their true neighbours that a search finds for whitened rows (q, d) of its own kind."""
        ...

    def neighbors(self, X_star: Any, n_neighbors: int, progress: Any = None) -> Neighbors:
        """The nearest rows of each query (q, d), nearest first, numbered as in the index."""
        ...

    def path(
        self,
        X_star: Any,
        sizes: NDArray[np.integer],
        kernel: Kernel,
        params: Hyperparameters,
        own: NDArray | None = None,
        n_innovations: int | None = None,
        progress: Any = None,
    ) -> LocalSolution:
        """Laws of the queries from their nearest sizes[0] < … < sizes[k − 1] rows: means and variances (q, k).

        own (q,): a row (as numbered in `build`) that each query may not be predicted from; −1 for none. n_innovations:
        of how many of the nearest rows innovations are asked for; None for all.
        """
        ...

    def errors(
        self, X_star: Any, n_neighbors: int, kernel: Kernel, params: Hyperparameters, progress: Any = None
    ) -> JointErrors:
        """The joint law of f* − its prediction at all queries, each predicted from its nearest n_neighbors rows."""
        ...

    def learner(self, rows: Any, y: Array, seed: int, noise: Noise | None = None) -> Learner:
        """For the loops of learning: rows that predict each other in a metric that changes."""
        ...


class JointErrors(Protocol):
    """Errors f* − wᵀy_N of q predictions under the model: Gaussian, of mean 0, in whitened units of y."""

    def draws(self, n: int, rng: np.random.Generator, out: Array) -> None:
        """Fill out (q, n)."""
        ...

    def variances(self, sums: Array, groups: NDArray[np.int64], n_groups: int) -> Array:
        """Of the sums of errors, with weights `sums` (q,), over each group (numbers (q,)): (n_groups,)."""
        ...

    def covariances(self, numbers: NDArray[np.integer]) -> Array:
        """Of the errors of all queries with those of `numbers` (k,): (q, k)."""
        ...


class Learner(Protocol):
    """Rows (n, d) and targets (n,), of which probes are predicted while metric and θ̂ change."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def take(self, numbers: NDArray[np.integer]) -> NDArray[np.float32]:
        """Rows by number, in this machine's memory."""
        ...

    def prepare(self, probes: Probes) -> None:
        """Do now what branches can share; probes are rows like those that will be asked for."""
        ...

    def branch(self, n_jobs: int | None) -> Learner:
        """One that goes its own way, with so many threads."""
        ...

    def after(self, x_map: Array) -> Learner:
        """Of the same rows, each times the map (d, d)."""
        ...

    def neighborhoods(self, probes: Probes, lengthscale: Array | float, n_neighbors: int) -> Neighborhoods:
        """The probes with their nearest other rows when columns are divided by the lengthscale, or multiplied by a map
        (d, d)."""
        ...

    def among(self, probes: Probes, neighbors: NDArray[np.int64]) -> Neighborhoods:
        """The probes with rows (q, m) that were chosen for them, nearest first."""
        ...


class Neighborhoods(Protocol):
    @property
    def d(self) -> int:
        """Columns."""
        ...

    def gradient(
        self, chosen: NDArray, kernel: Kernel, theta: Array, share: float, typical: float
    ) -> tuple[Array, int, float]:
        """Of Σl* over some of the probes, in θ = (l_1 … l_d, σ_f², σ_ξ²); over how many (where K is positive definite);
        the mean innovation of all rows but the first. share, typical: see `compiled.likelihood`."""
        ...

    def descend(
        self, kernel: Kernel, batches: NDArray[np.int64], u: Array, adam: Adam, typical: float
    ) -> tuple[Array, float]:
        """Steps of learning, as `descent.descend` has them; in float32 where that does, since slopes of few probes are
        noisy anyway."""
        ...

    def map_gradient(
        self,
        chosen: NDArray,
        kernel: Kernel,
        x_map: Array,
        variances: Array,
        share: float,
        typical: float,
        fine: bool = True,
    ) -> tuple[Array, Array, int, float]:
        """What `gradient` is where rows are multiplied by a map (d, d): in that map, and in (σ_f², σ_ξ²). fine=False:
        in float32 where that does."""
        ...

    def predict(self, kernel: Kernel, params: Hyperparameters) -> tuple[Prediction, Array]:
        """Laws of the probes (eqs. 5–7), infinitely wide where K is singular, and the innovations of their rows."""
        ...


class Whitening(Protocol):
    """From the user's columns to those in which distance has a meaning."""

    def transform(self, X: Array, out: Array | None = None) -> Array: ...


@dataclass(frozen=True)
class Probes:
    """Rows whose outcome is known and which are predicted as if it were not: X (q, d), y (q,).

    own (q,): the number of each among the rows that it may be predicted from, or −1 if it is not one of them. noise:
    of each, where that of the rows is known too.
    """

    X: Array
    y: Array
    own: NDArray[np.int64]
    noise: Noise | None = None

    @property
    def known(self) -> Array | None:
        return None if self.noise is None else self.noise.known

    def after(self, x_map: Array) -> Probes:
        """The same, each row times the map (d, d)."""
        return Probes((self.X @ x_map).astype(np.float32), self.y, self.own, self.noise)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, chosen) -> Probes:
        noise = None if self.noise is None else self.noise[chosen]
        return Probes(self.X[chosen], self.y[chosen], self.own[chosen], noise)


def check_engine(engine: str | Engine) -> None:
    if isinstance(engine, str):
        if engine not in ENGINES:
            raise InvalidInputError(f"engine = {engine!r} is unknown. Choose one of: {', '.join(ENGINES)}.")
    elif not all(hasattr(engine, name) for name in ("build", "hold", "path", "learner")):
        raise InvalidInputError(
            f"engine = {engine!r} is no engine. Choose one of: {', '.join(ENGINES)}, or give an object such as "
            "gpnn.engines.gpu.GPU(device='cuda:1')."
        )


def make_engine(engine: str | Engine, n_jobs: int | None = None, batch_size: int | None = None) -> Engine:
    """The engine of that name; an object that is one already is returned as it is."""
    check_engine(engine)
    if not isinstance(engine, str):
        return engine
    if engine == "gpu":
        try:
            from gpnn.engines.gpu import GPU
        except ImportError as error:
            raise MissingExtraError(
                f"engine='gpu' computes with PyTorch and Triton ({error}). Install them with: pip install 'gpnn[gpu]'"
            ) from error
        return GPU(n_jobs=n_jobs, batch_size=batch_size)
    from gpnn.engines.cpu import CPU
    from gpnn.engines.reference import Reference

    return (Reference if engine == "reference" else CPU)(n_jobs, batch_size)
