"""What answers where a query is unlike random rows: a few processes learned for gaps (`stages.gaps`).

Beyond the support, where the local process claims more variance than for all but a hundredth of random rows, its law is
mixed with theirs (`stages.mixing`). Random queries pay nothing for it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpnn.common.errors import GPnnWarning
from gpnn.common.kernels import get_kernel
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines import Engine, Noise
from gpnn.engines.index import NeighborIndex
from gpnn.engines.local import FARTHEST
from gpnn.engines.parallel import blocks, one_blas_thread, progress_bar
from gpnn.stages.holdout import Rows
from gpnn.stages.mixing import Claims, Mixture
from gpnn.stages.near import Answer, Near
from gpnn.stages.rims import LEVELS, Rim
from gpnn.stages.shapes import GAUSSIAN, Shape
from gpnn.stages.trees import Trees
from gpnn.stages.whitening import Whitener
from gpnn.stages.widths import Widths

NEIGHBORS = 31  # of each member
_ANSWERED = 32_768  # queries whose laws are made at a time: their innovations are held together
_MANY, _FEW = 0.1, 10  # queries outside the support, of which users are told: a share, and more than a handful
_ENDS = 0.0005, 0.9995  # quantiles of a column
OUTSIDE = 0.01
"""A query is outside the support where fewer random rows than this claim as much variance."""


@dataclass(frozen=True)
class Trend:
    """A linear function of whitened rows (n, d), which stops growing where all but a few training rows end, of whom one
    may be a slipped decimal."""

    weights: Array
    low: Array
    high: Array
    value: float
    least: float = -np.inf
    most: float = np.inf
    """Of y, where it stops too."""

    @classmethod
    def fit(cls, Z: Array, y: Array) -> Trend:
        Z = np.asarray(Z, dtype=float)
        centre, value = Z.mean(axis=0), float(np.mean(y))
        centred = Z - centre
        gram = centred.T @ centred + 1e-3 * len(Z) / Z.shape[1] * np.eye(Z.shape[1])
        weights = np.linalg.solve(gram, centred.T @ (y - value))
        low, high = np.quantile(Z, _ENDS, axis=0)
        return cls(weights, low, high, value - float(centre @ weights), float(np.min(y)), float(np.max(y)))

    @classmethod
    def none(cls, d: int) -> Trend:
        return cls(np.zeros(d), np.zeros(d), np.zeros(d), 0.0)

    def __call__(self, Z: Array) -> Array:
        """Row by row: the last digits of a product of matrices depend on how many rows it has."""
        Z = np.clip(np.asarray(Z, dtype=float), self.low, self.high)
        return np.clip((Z * self.weights).sum(axis=-1) + self.value, self.least, self.most)


@dataclass(frozen=True)
class Member:
    """Rows in a metric of their own, whose targets have lost the trend."""

    kernel: str
    lengthscale: Array
    kernel_variance: float
    noise_variance: float
    index: NeighborIndex
    y: Array
    noise: Noise | None = None

    def law(self, engine: Engine, Z: Array, own: Rows | None = None) -> Prediction:
        """own (q,): the number of each query among the rows, which it is not predicted from; −1 for none."""
        X_star = np.clip(Z / self.lengthscale, -FARTHEST, FARTHEST).astype(np.float32)
        params = Hyperparameters(1.0, self.kernel_variance, self.noise_variance)
        size = np.array([min(NEIGHBORS, len(self.y))])
        found = self.held_by(engine).path(X_star, size, get_kernel(self.kernel), params, own, 0)
        return Prediction(found.mean[:, 0], found.variance[:, 0])

    def held_by(self, engine: Engine) -> Engine:
        return engine.hold(self.index, self.y, self.noise)


@dataclass(frozen=True)
class Far:
    """The members, and how their mean law is mixed with that of the local process."""

    whitener: Whitener
    trend: Trend
    members: list
    mixture: Mixture
    claimed: Array
    """Quantiles, at LEVELS, of the variance that the local process claims for random rows."""
    rows: NDArray[np.integer]
    """That the members predict from, numbered as in `fit`."""
    rim: Rim | None = None
    """Where rows are near, but on one side only."""

    def support(self, near: Answer) -> Array:
        """The share of random rows for which the local process claims as much variance, or more; or that look as much
        like the rim of a gap, if those are fewer."""
        support = 1 - np.interp(near.claimed, self.claimed, LEVELS, right=1.0)
        return support if self.rim is None else np.minimum(support, self.rim.support(self.rim(near.nested)))

    def outside(self, claimed: Array) -> NDArray[np.bool_]:
        """Of queries for which the local process claims that variance: whether the members are to be asked."""
        return np.log(claimed) > self.mixture.edge

    def answer(self, engine: Engine, X: Array, near: Answer) -> Prediction:
        """The laws of rows X (q, d), given what the local process says of them, in whitened units of y."""
        mean, variance = near.law.mean.copy(), near.law.variance.copy()
        outside = np.flatnonzero(self.outside(near.claimed))
        if len(outside):
            mixed = self.mixture(self.claims(engine, X[outside], near.law[outside], near.claimed[outside]))
            mean[outside], variance[outside] = mixed.mean, mixed.variance
        law = replace(near.law, mean=mean, variance=variance)
        return law if self.rim is None else self._widened_at_rims(law, near)

    def _widened_at_rims(self, law: Prediction, near: Answer) -> Prediction:
        """As far as it is the local process that answers."""
        assert self.rim is not None
        widening = self.rim.widening(self.rim(near.nested)) ** (1 - self.mixture.ramp(near.claimed))
        at = np.flatnonzero(widening > 1)
        variance = law.variance.copy()
        variance[at] = law[at].with_own(widening[at] * law[at].own).variance
        return replace(law, variance=variance)

    def claims(self, engine: Engine, X: Array, near: Prediction, claimed: Array) -> Claims:
        return claims_of(self.members, self.trend, engine, self.whitener.transform(X), near, claimed)


def claims_of(
    members: list[Member],
    trend: Trend,
    engine: Engine,
    Z: Array,
    near: Prediction,
    claimed: Array,
    own: Rows | None = None,
) -> Claims:
    """Of rows Z (q, d) in the members' whitened units; own: see `Member.law`."""
    laws = [member.law(engine, Z, own) for member in members]
    means, variances = ([getattr(law, name) for law in laws] for name in ("mean", "variance"))
    together = Prediction(np.mean(means, axis=0) + trend(Z), np.mean(variances, axis=0))
    # Where they differ, their metrics do: none has seen the like.
    return Claims(near, claimed, together, np.var(means, axis=0))


def warn_of_queries_outside(support: Array | None) -> None:
    outside = 0 if support is None else int(np.sum(support < OUTSIDE))
    if support is not None and outside > max(_FEW, _MANY * len(support)):
        warnings.warn(
            f"{outside:,} of {len(support):,} rows lie outside the support: farther from the training rows than 99 of "
            "100 of these do from each other, or where these end. They were answered by a model learned for gaps, or "
            "with wider intervals, and less is known of them (`predict_distribution(X).support` says which). If rows "
            "to come are of new groups or later times, say so: fit(X, y, groups=…) or fit(X, y, times=…); with some of "
            "their outcomes, recalibrate(X, y).",
            GPnnWarning,
            stacklevel=4,
        )


def standard_quantile(shape: Shape, levels: Array, support: Array | None) -> Array:
    """Of (y* − μ*)/σ*, to be broadcast to (q, k): of that shape within the support, Gaussian outside, where nothing is
    known of tails."""
    within = shape.quantile(levels)
    if support is None or shape.name == GAUSSIAN.name or not (support < OUTSIDE).any():
        return within
    return np.where((support < OUTSIDE)[:, None], GAUSSIAN.quantile(levels), within)


def answer(
    near: Near,
    far: Far | None,
    engine: Engine,
    X: Array,
    progress: str | None = None,
    known: Array | None = None,
    trees: Trees | None = None,
    widths: Widths | None = None,
    table: Array | None = None,
) -> tuple[Prediction, float]:
    """The laws of rows X (q, d) in whitened units of y, with their support, and the largest jitter that was needed.

    `engine` holds the local process's rows; trees and widths see all columns of X, table (q, k), and have a say within
    the support. known (q,): of the noise of y*, where some of it is."""
    mean, variance, support = np.empty((3, len(X)))
    jitter = 0.0
    with progress_bar(len(X), progress) as bar, one_blas_thread():
        for part in blocks(len(X), _ANSWERED):
            found = near.law(engine, X[part], bar)
            law, jitter = found.law, max(jitter, float(found.jitter.max(initial=0.0)))
            alone: Array | float = 0.0
            if far is not None and (trees is not None or widths is not None):
                alone = far.mixture.ramp(found.claimed)
            if trees is not None and table is not None:  # who learned from random rows, and for them
                law = trees.beside(law, table[part], alone, engine.n_learners)
            factor = None
            if widths is not None and table is not None:
                factor = widths(law, table[part], engine.n_learners) ** (1 - np.asarray(alone))
            law = law.with_noise(None if known is None else known[part])
            if far is not None:
                support[part] = far.support(found)
                law = far.answer(engine, X[part], found._replace(law=law))
            if factor is not None:  # last, so that it changes no mean
                law = law.with_own(factor * law.own)
            mean[part], variance[part] = law.mean, law.variance
    return Prediction(mean, variance, support=None if far is None else support, known=known), jitter
