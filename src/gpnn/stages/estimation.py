"""Phase 1: θ̂ from a small random subset, by the block-diagonal likelihood of w blocks of s rows (eq. 1, blockwise).

The experts of `gpnn.baselines` use it too: their blocks hold the whole training set, and may differ in size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from gpnn.common.errors import InvalidInputError
from gpnn.common.kernels import Kernel
from gpnn.common.types import Array, Hyperparameters
from gpnn.engines.local import Noise
from gpnn.engines.parallel import for_each_block
from gpnn.stages.whitening import Whitener

NOISE_FLOOR = 1e-6  # as in the authors' code
_START = np.log(2.0)  # where the authors' code begins: softplus(0) for every parameter


@dataclass(frozen=True)
class Estimate:
    params: Hyperparameters
    loss: float
    """Negative log likelihood per row."""
    n_evaluations: int
    converged: bool


class BlockLikelihood:
    """Mean negative log likelihood per row of blocks X (s, d), y (s,), with its gradient in closed form.

    X and y are sequences of blocks, or arrays (w, s, d) and (w, s). The parameter vector is (l…, σ_f², σ_ξ²): one
    lengthscale, or d of them. `progress` names the bar of each evaluation; None shows none. noise (w, s, 2): of the
    rows, as the compiled likelihood takes it.
    """

    def __init__(
        self,
        X: Sequence[Array] | Array,
        y: Sequence[Array] | Array,
        kernel: Kernel,
        n_jobs: int | None = None,
        progress: str | None = None,
        noise: Array | None = None,
    ):
        from gpnn.engines.compiled.covariance import KERNEL_NUMBERS  # numba comes with it: not before it is needed

        self.X, self.y, self.noise = X, y, noise
        self.n_jobs, self.progress = n_jobs, progress
        self.n_rows = sum(len(block) for block in y)
        self.n_evaluations = 0
        self._tag = KERNEL_NUMBERS[kernel.name]
        self._spare: list[tuple[Array, ...]] = []  # work arrays, one set per thread

    def __call__(self, theta: Array) -> tuple[float, Array]:
        from gpnn.engines.compiled.likelihood import block_likelihood, scratch

        self.n_evaluations += 1
        w, d, largest = len(self.X), self.X[0].shape[1], max(len(block) for block in self.y)
        losses, gradients = np.zeros(w), np.zeros((w, d + 2))
        lengthscale = np.broadcast_to(theta[:-2], d).copy()

        def one(part: slice) -> None:
            b = part.start
            X, y = (np.ascontiguousarray(blocks[b], dtype=np.float64) for blocks in (self.X, self.y))
            work = self._spare.pop() if self._spare else scratch(largest, d)
            noise = None if self.noise is None else self.noise[b]
            losses[b] = block_likelihood(self._tag, X, y, lengthscale, theta[-2], theta[-1], *work, gradients[b], noise)
            self._spare.append(work)

        bar = f"{self.progress} {self.n_evaluations}" if self.progress else None
        for_each_block(one, w, 1, self.n_jobs, bar)
        gradient = gradients.sum(axis=0)
        if len(theta) == 3:  # one lengthscale for all columns
            gradient = np.concatenate([[gradient[:-2].sum()], gradient[-2:]])
        return losses.sum() / self.n_rows, gradient / self.n_rows


def estimate(
    X_blocks: Sequence[Array] | Array,
    y_blocks: Sequence[Array] | Array,
    kernel: Kernel,
    optimizer: str = "lbfgs",
    n_jobs: int | None = None,
    progress: str | None = None,
    noise: Array | None = None,
    **options,
) -> Estimate:
    """θ̂ for blocks as `BlockLikelihood` takes them, with one lengthscale for all columns.

    `options` are the optimiser's: n_steps, and for "adam" also rate.
    """
    likelihood = BlockLikelihood(X_blocks, y_blocks, kernel, n_jobs, progress, noise)
    if optimizer not in OPTIMIZERS:
        raise InvalidInputError(f"optimizer = {optimizer!r} is unknown. Choose 'lbfgs' or 'adam'.")
    theta, loss, converged = OPTIMIZERS[optimizer](likelihood, np.full(3, _START), **options)
    params = Hyperparameters(float(theta[0]), float(theta[1]), float(theta[2]))
    return Estimate(params, loss, likelihood.n_evaluations, converged)


Objective = Callable[[Array], tuple[float, Array]]


def _lbfgs(objective: Objective, start: Array, n_steps: int = 100) -> tuple[Array, float, bool]:
    """L-BFGS-B in log θ. The bounds keep it from wandering where the likelihood is flat."""

    def in_logs(u):
        theta = np.exp(u)
        loss, gradient = objective(theta)
        return loss, gradient * theta

    bounds = [(np.log(1e-3), np.log(1e3))] * (len(start) - 2)
    bounds += [(np.log(1e-4), np.log(1e4)), (np.log(NOISE_FLOOR), np.log(10.0))]
    result = minimize(in_logs, np.log(start), jac=True, method="L-BFGS-B", bounds=bounds,
                      options={"maxiter": n_steps, "ftol": 1e-7, "gtol": 1e-5})  # fmt: skip
    return np.exp(result.x), float(result.fun), bool(result.success)


def _adam(objective: Objective, start: Array, n_steps: int = 200, rate: float = 0.1) -> tuple[Array, float, bool]:
    """The paper's optimiser, in its parametrisation: θ = softplus(raw), and the noise that plus its floor."""
    floor = np.zeros(len(start))
    floor[-1] = NOISE_FLOOR
    raw = np.log(np.expm1(start))
    first, second = np.zeros_like(raw), np.zeros_like(raw)
    for step in range(1, n_steps + 1):
        _, gradient = objective(np.logaddexp(0, raw) + floor)
        gradient = gradient / (1 + np.exp(-raw))
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        raw = raw - rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    theta = np.logaddexp(0, raw) + floor
    return theta, objective(theta)[0], True


OPTIMIZERS: dict[str, Callable[..., tuple[Array, float, bool]]] = {"lbfgs": _lbfgs, "adam": _adam}


def estimate_from_rows(
    X: Array,
    y: Array,
    rows: NDArray[np.int64],
    whitener: Whitener,
    kernel: Kernel,
    n_blocks: int,
    block_size: int,
    optimizer: str = "lbfgs",
    n_jobs: int | None = None,
    progress: str | None = None,
    noise: Noise | None = None,
) -> Estimate:
    """θ̂ from w blocks of s of the `rows` (in random order) of X (n, d), y (n,), which are whitened first; their noise
    is in whitened units already."""
    s = min(block_size, len(rows))
    w = max(1, min(n_blocks, len(rows) // s))
    subset = rows[: w * s].reshape(w, s)
    X_blocks = whitener.transform(X[subset.ravel()]).reshape(w, s, -1)
    of_blocks = None if noise is None else noise.columns[subset]
    return estimate(X_blocks, whitener.transform_y(y[subset]), kernel, optimizer, n_jobs, progress, of_blocks)
