"""What answers where a query is unlike random rows: a few processes learned for gaps, and how far to trust them.

The metric that is best for rows among their like is no guide where the nearest row is of another patient or another
year. So a few members learn θ̂ with parts of the table out of sight (`stages.hiding`), each judged on a part that it has
never seen. Beyond the support, where the local process claims more variance than for all but a hundredth of random
rows, its law gives way to theirs, as far as the judges say. Random queries pay nothing for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from gpnn.common import metrics
from gpnn.common.errors import GPnnWarning
from gpnn.common.kernels import get_kernel
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines import Engine, Learner, Neighborhoods, Noise, Probes
from gpnn.engines.index import NeighborIndex
from gpnn.engines.local import FARTHEST
from gpnn.engines.parallel import blocks, in_parallel, one_blas_thread, progress_bar
from gpnn.stages.calibration import Calibration, fit_calibration
from gpnn.stages.hiding import Fold, Groups, Hiding, Mask, Rows, Slabs, Times, nearest_seen
from gpnn.stages.judges import Verdict
from gpnn.stages.near import Near
from gpnn.stages.refinement import refine
from gpnn.stages.selection import score
from gpnn.stages.shapes import GAUSSIAN, Shape
from gpnn.stages.whitening import Whitener

_ROWS, _FEWEST_ROWS, _NUMBERS = 6000, 2000, 400_000
"""That the members learn and predict from (numbers: rows times columns): far from all of them, more would lie no
nearer."""
FEWEST_JUDGES = 50
_KERNELS = ("exponential", "matern32")  # members take turns
_ROUNDS, _QUERIES = (40, 40, 40, 40), 512  # steps, and rows that are searched for before each round
_START = Hyperparameters(2.0, 1.0, 0.1)
NEIGHBORS = 63
_JUDGES = 400  # of each member
_BINS, _FEWEST_IN_BIN, _FEWEST_AT_EDGE = 3, 100, 10
_RAMP = np.log(1.5)  # of the claimed variance, from the edge of the support to full distrust of the local process
_WIDENING = 0.5, 4.0  # at least and at most
_ANSWERED = 32_768  # queries whose laws are made at a time: their innovations are held together
_MANY, _FEW = 0.1, 10  # queries outside the support, of which users are told: a share, and more than a handful
OUTSIDE = 0.01
"""A query is outside the support where fewer random rows than this claim as much variance."""
_LEVELS = np.linspace(0, 1, 401)


@dataclass(frozen=True)
class Trend:
    """A linear function of whitened rows (n, d), which stops growing where the training rows end."""

    weights: Array
    low: Array
    high: Array
    value: float

    @classmethod
    def fit(cls, Z: Array, y: Array) -> Trend:
        Z = np.asarray(Z, dtype=float)
        centre, value = Z.mean(axis=0), float(np.mean(y))
        centred = Z - centre
        gram = centred.T @ centred + 1e-3 * len(Z) / Z.shape[1] * np.eye(Z.shape[1])
        weights = np.linalg.solve(gram, centred.T @ (y - value))
        return cls(weights, Z.min(axis=0), Z.max(axis=0), value - float(centre @ weights))

    @classmethod
    def none(cls, d: int) -> Trend:
        return cls(np.zeros(d), np.zeros(d), np.zeros(d), 0.0)

    def __call__(self, Z: Array) -> Array:
        return np.clip(np.asarray(Z, dtype=float), self.low, self.high) @ self.weights + self.value


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

    def law(self, engine: Engine, Z: Array) -> Prediction:
        X_star = np.clip(Z / self.lengthscale, -FARTHEST, FARTHEST).astype(np.float32)
        params = Hyperparameters(1.0, self.kernel_variance, self.noise_variance)
        size = np.array([min(NEIGHBORS, len(self.y))])
        found = self.held_by(engine).path(X_star, size, get_kernel(self.kernel), params, None, 0)
        return Prediction(found.mean[:, 0], found.variance[:, 0])

    def held_by(self, engine: Engine) -> Engine:
        return engine.hold(self.index, self.y, self.noise)


@dataclass(frozen=True)
class Far:
    """Beyond the support: the members' mean law, mixed with that of the local process by weights that judges gave."""

    whitener: Whitener
    trend: Trend
    members: list
    alpha: float
    floor: float
    edge: float
    """The logarithm of the claimed variance at which the support ends; −inf if every query is treated so."""
    knots: Array
    """Logarithms of the variance that the local process claims, and there:"""
    weights: Array
    """that of the members, and"""
    factors: Array
    """the logarithm of what the local process's own variance is multiplied by."""
    widening: float
    """What the mixture's variance is multiplied by."""
    claimed: Array
    """Quantiles, at _LEVELS, of the variance that the local process claims for random rows."""
    rows: NDArray[np.integer] | None = None
    """That the members predict from, numbered as in `fit`; earlier versions did not note them."""

    def support(self, claimed: Array) -> Array:
        """The share of random rows for which the local process claims as much variance, or more."""
        return 1 - np.interp(claimed, self.claimed, _LEVELS, right=1.0)

    def outside(self, claimed: Array) -> NDArray[np.bool_]:
        """Of queries for which the local process claims that variance: whether the members are to be asked."""
        return np.log(claimed) > self.edge

    def law(self, engine: Engine, X: Array, known: Array | None = None) -> Prediction:
        """The members' own, in whitened units of y; known: of the noise of y* (q,), where some of it is."""
        Z = self.whitener.transform(X)
        laws = [member.law(engine, Z) for member in self.members]
        means, variances = ([getattr(law, name) for law in laws] for name in ("mean", "variance"))
        # Where they differ, their metrics do: none has seen the like.
        variance = self.alpha * np.mean(variances, axis=0) + self.floor + np.var(means, axis=0)
        return Prediction(np.mean(means, axis=0) + self.trend(Z), variance).with_noise(known)

    def mixed(self, near: Prediction, far: Prediction, claimed: Array) -> Prediction:
        x = np.log(claimed)
        ramp = np.clip((x - self.edge) / _RAMP, 0, 1)
        weight = ramp * np.interp(x, self.knots, self.weights)
        near_std = near.std * np.exp(0.5 * ramp * np.interp(x, self.knots, self.factors))
        # The error of a weighted sum is never larger than the sum of the weighted errors, whatever they have in common.
        std = (1 - weight) * near_std + weight * far.std
        return Prediction((1 - weight) * near.mean + weight * far.mean, self.widening**ramp * std**2)


def warn_of_queries_outside(support: Array | None) -> None:
    outside = 0 if support is None else int(np.sum(support < OUTSIDE))
    if support is not None and outside > max(_FEW, _MANY * len(support)):
        warnings.warn(
            f"{outside:,} of {len(support):,} rows lie outside the support: farther from the training rows than 99 of "
            "100 of these do from each other. They were answered by a model learned for gaps, and less is known of "
            "them (`predict_distribution(X).support` says which). If rows to come are of new groups or later times, "
            "say so: fit(X, y, groups=…) or fit(X, y, times=…); with some of their outcomes, recalibrate(X, y).",
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


def sample_size(n: int, d: int) -> int:
    return min(n, _ROWS, max(_FEWEST_ROWS, _NUMBERS // d))


def answer(
    near: Near, far: Far | None, engine: Engine, X: Array, progress: str | None = None, known: Array | None = None
) -> tuple[Prediction, float]:
    """The laws of rows X (q, d) in whitened units of y, with their support, and the largest jitter that was needed.

    `engine` holds the local process's rows. known (q,): of the noise of y*, where some of it is."""
    mean, variance, support = np.empty((3, len(X)))
    jitter = 0.0
    with progress_bar(len(X), progress) as bar, one_blas_thread():
        for part in blocks(len(X), _ANSWERED):
            law, claimed, jitters = near.law(engine, X[part], bar)
            law = law.with_noise(None if known is None else known[part])
            mean[part], variance[part], jitter = law.mean, law.variance, max(jitter, float(jitters.max(initial=0.0)))
            if far is None:
                continue
            support[part] = far.support(claimed)
            outside = np.flatnonzero(far.outside(claimed))
            if len(outside):
                at = part.start + outside
                mixed = far.mixed(law[outside], far.law(engine, X[at], law[outside].known), claimed[outside])
                mean[at], variance[at] = mixed.mean, mixed.variance
    return Prediction(mean, variance, support=None if far is None else support, known=known), jitter


def learn_far(
    X: Array,
    y: Array,
    near: Near,
    verdict: Verdict,
    queries: Groups | Times | None,
    whitening: Callable[[Array, Array], Whitener],
    engine: Engine,
    rng: np.random.Generator,
    progress: str | None = None,
    noise: Noise | None = None,
) -> Far:
    """From X (n, d) in the user's columns and y (n,) in whitened units.

    verdict: of random judges on the local process; queries: what was said of those to come; whitening: of the columns,
    before there is a metric.
    """
    reserved = rng.permutation(len(verdict.rows))[: len(X) // 4]  # judges that members have never seen
    others = np.setdiff1d(np.arange(len(X)), verdict.rows[reserved], assume_unique=True)
    rows = rng.choice(others, sample_size(len(others), X.shape[1]), replace=False)
    claimed = _claimed(X, near, verdict, engine)
    hiding: Hiding = Slabs(near.whitener.transform(X[rows])) if queries is None else queries.of(rows)
    whitener = whitening(X[rows], y[rows])
    of_rows = None if noise is None else noise[rows]
    sample = _Sample(X[rows], y[rows], whitener, near, hiding, engine, of_rows, verdict.calibration.alpha)
    first, *more = hiding.folds(rng)

    def in_turn(tasks: list[partial]) -> list[_Judged]:
        return in_parallel(tasks, rng, engine.n_learners, progress)

    judged = in_turn([partial(sample.judged, first, _KERNELS[0], with_trend) for with_trend in (False, True)])
    with_trend = _score(judged[1]) < _score(judged[0])
    kernels = (_KERNELS[k % 2] for k in range(1, 1 + len(more)))
    judged = judged[with_trend : with_trend + 1] + in_turn(
        [partial(sample.judged, fold, kernel, with_trend) for fold, kernel in zip(more, kernels, strict=True)]
    )
    trend = Trend.fit(sample.rows, sample.y) if with_trend else Trend.none(X.shape[1])
    members = [sample.member(one, trend, int(rng.integers(2**31))) for one in judged]
    calibration, far_law = _calibrated(judged)
    edge = -np.inf if hiding.everywhere else float(np.log(np.quantile(claimed, 1 - OUTSIDE)))
    knots, weights, factors = _weighed(judged, far_law, edge)
    far = Far(
        whitener, trend, members, calibration.alpha, calibration.floor, edge, knots, weights, factors, 1.0,
        np.quantile(claimed, _LEVELS), rows,
    )  # fmt: skip
    beyond = reserved[far.outside(claimed[reserved])]
    if not hiding.everywhere and len(beyond) >= _FEWEST_AT_EDGE:
        at = verdict.rows[beyond]
        judges = verdict.law[beyond]
        far = _reconciled(far, y[at], judges, far.law(engine, X[at], judges.known), np.log(claimed[beyond]))
    return replace(far, widening=_widening(judged, far, far_law))


def _claimed(X: Array, near: Near, verdict: Verdict, engine: Engine) -> Array:
    """The variances that the local process claims for the judges."""
    if len(verdict.rows) < len(X):
        return verdict.calibration.alpha * verdict.claimed
    # Every row was a judge, in folds: of processes that had seen fewer rows, and claimed more.
    X_star, size = engine.whiten(near.whitener, X[verdict.rows]), np.array([min(near.n_neighbors, len(X) - 1)])
    return engine.path(X_star, size, near.kernel, near.params, verdict.rows, 0).variance[:, 0]


class _Judged(NamedTuple):
    """A member that has learned, and what it and the local process say of its judges."""

    kernel: str
    params: Hyperparameters
    y: Array
    far: Prediction
    near: Prediction
    claimed: Array
    part: Rows


class _Sample:
    def __init__(
        self,
        X: Array,
        y: Array,
        whitener: Whitener,
        near: Near,
        hiding: Hiding,
        engine: Engine,
        noise: Noise | None = None,
        alpha: float = 1.0,
    ):
        self.X, self.y, self.whitener, self.near, self.hiding, self.engine = X, y, whitener, near, hiding, engine
        self.noise, self.alpha = noise, alpha  # by which the local process's variances were multiplied
        self.rows, self.near_rows = whitener.transform(X), near.whitener.transform(X)

    def judged(self, fold: Fold, kernel_name: str, with_trend: bool, rng: np.random.Generator) -> _Judged:
        """A member that has learned from all rows but the fold's, and is judged on those."""
        kernel, near = get_kernel(kernel_name), self.near
        seen = np.setdiff1d(np.arange(len(self.y)), fold.hidden, assume_unique=True)
        trend = Trend.fit(self.rows[seen], self.y[seen]) if with_trend else Trend.none(self.X.shape[1])
        rest = self.y - trend(self.rows)
        table = _Table(
            self.rows[seen], rest[seen], self._learner(self.whitener, seen, rest, rng), noise=self._noise_of(seen)
        )
        table.mask = lambda own: self.hiding.mask(seen[own], seen, rng)
        params = refine(table, table, kernel, _START, _ROUNDS, rng, most_queries=_QUERIES)
        judges = fold.judge[:_JUDGES]
        mask = self.hiding.mask_of_judges(judges, seen, rng)
        none = np.full(len(judges), -1)
        m = min(NEIGHBORS, len(seen) // 4 - 1)
        probes = Probes(self.rows[judges], rest[judges], none, self._noise_of(judges))
        far, _ = table.among(probes, params.lengthscale, m, mask).predict(kernel, params)
        local = _Table(self.near_rows[seen], self.y[seen], self._learner(near.whitener, seen, self.y, rng, self.alpha))
        probes, scale = replace(probes, X=self.near_rows[judges], y=self.y[judges]), near.params.lengthscale
        claimed, innovations = local.among(probes, scale, min(m, near.n_neighbors), mask).predict(
            near.kernel, near.params
        )  # by its nearest rows only: few are enough to tell how it does there
        far = replace(far, mean=far.mean + trend(self.rows[judges]))
        sane = np.flatnonzero(np.isfinite(far.variance) & np.isfinite(claimed.variance))  # no system was singular
        local_law, variance = near.calibrated(claimed, innovations), claimed.own
        return _Judged(
            kernel_name, params, self.y[judges[sane]], far[sane], local_law[sane], variance[sane], fold.part[sane]
        )

    def _learner(
        self, whitener: Whitener, seen: Rows, y: Array, rng: np.random.Generator, alpha: float = 1.0
    ) -> Learner:
        rows, noise = self.engine.whiten(whitener, self.X[seen]), self._noise_of(seen)
        noise = None if noise is None else noise.scaled(alpha)
        return self.engine.learner(rows, y[seen], int(rng.integers(2**31)), noise).branch(n_jobs=1)

    def _noise_of(self, rows: Rows) -> Noise | None:
        return None if self.noise is None else self.noise[rows]

    def member(self, judged: _Judged, trend: Trend, seed: int) -> Member:
        """What was learned, with all rows to predict from."""
        params, n = judged.params, len(self.y)
        rows = self.engine.whiten(self.whitener.stretched(1 / np.asarray(params.lengthscale)), self.X)
        built = self.engine.build(
            rows, self.y - trend(self.rows), "auto", min(NEIGHBORS, n), np.arange(min(n, 500)), seed, noise=self.noise
        )
        return Member(
            judged.kernel, np.asarray(params.lengthscale), params.kernel_variance, params.noise_variance, built.index,
            built.y, built.noise,
        )  # fmt: skip


@dataclass
class _Table:
    """Rows that predict each other with parts of the table out of sight: what `refine` learns from."""

    rows: Array
    y: Array
    learner: Learner
    mask: Callable[[Rows], Mask] | None = None
    noise: Noise | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.learner.shape

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, chosen: Rows) -> Probes:
        return Probes(self.rows[chosen], self.y[chosen], chosen, None if self.noise is None else self.noise[chosen])

    def neighborhoods(self, probes: Probes, lengthscale: Array | float, n_neighbors: int) -> Neighborhoods:
        assert self.mask is not None
        return self.among(probes, lengthscale, min(n_neighbors, len(self) // 4 - 1), self.mask(probes.own))

    def among(self, probes: Probes, lengthscale: Array | float, n_neighbors: int, mask: Mask) -> Neighborhoods:
        rows, X = (np.asarray(of / lengthscale, dtype=np.float32) for of in (self.rows, probes.X))
        return self.learner.among(probes, nearest_seen(rows, X, probes.own, n_neighbors, mask))


def _score(judged: _Judged) -> float:
    law = _calibrated([judged])[1]
    return score(metrics.rmse(judged.y, law), metrics.nll(judged.y, law))


def _calibrated(judged: Sequence[_Judged]) -> tuple[Calibration, Prediction]:
    """Of the members' laws on their judges."""
    y, law = np.concatenate([one.y for one in judged]), _joined([one.far for one in judged])
    alone = np.ones((len(y), 1))  # no neighbours' innovations: they tell of the rows around the gap
    calibration = fit_calibration(y, law, alone)
    return calibration, calibration(law, alone)


def _weighed(judged: Sequence[_Judged], far: Prediction, edge: float) -> tuple[Array, Array, Array]:
    """Knots, weights and factors of `Far`: what would have predicted the judges beyond the edge best."""
    y, near = np.concatenate([one.y for one in judged]), _joined([one.near for one in judged])
    claimed = np.log(np.concatenate([one.claimed for one in judged]))
    beyond = np.flatnonzero(claimed > edge)
    if len(beyond) < _FEWEST_IN_BIN:  # the local process is as sure in gaps as it is elsewhere
        beyond = np.argsort(claimed)[-min(_FEWEST_IN_BIN, len(claimed)) :]
    n_bins = max(1, min(_BINS, len(beyond) // _FEWEST_IN_BIN))
    bins = np.array_split(beyond[np.argsort(claimed[beyond], kind="stable")], n_bins)
    knots = np.array([np.mean(claimed[rows]) for rows in bins])
    weights, factors = np.array([_evidence(y[rows], near[rows], far[rows]) for rows in bins]).T
    return knots, np.maximum.accumulate(weights), factors


def _reconciled(far: Far, y: Array, near: Prediction, members: Prediction, claimed: Array) -> Far:
    """Random rows lie beyond the edge too, one in a hundred, and not far. There, they are believed rather than judges
    from gaps, among whom the local process fares worse for the same variance that it claims."""
    weight, factor = _evidence(y, near, members)
    first = float(np.median(claimed))
    later = np.flatnonzero(far.knots > first + _RAMP)
    later = later if len(later) else np.array([len(far.knots) - 1])
    knots = np.append(first, np.maximum(far.knots[later], first + _RAMP))
    weights = np.maximum.accumulate(np.append(weight, far.weights[later]))
    return replace(far, knots=knots, weights=weights, factors=np.append(factor, far.factors[later]))


def _evidence(y: Array, near: Prediction, members: Prediction) -> tuple[float, float]:
    """The weight of the members that would have predicted y (n,) best, and the logarithm of what the variance of the
    local process should have been multiplied by."""
    error, change = y - near.mean, members.mean - near.mean
    weight = float(np.clip(change @ error / max(float(change @ change), 1e-30), 0, 1))
    return weight, float(np.log(max(1.0, float(np.mean(error**2 / near.variance)))))


def _widening(judged: Sequence[_Judged], far: Far, far_law: Prediction) -> float:
    """So that z² is 1 on the judges, and nine in ten of them lie in their intervals; more, the more parts of the table
    differ and the fewer they are."""
    y, near = np.concatenate([one.y for one in judged]), _joined([one.near for one in judged])
    claimed = np.concatenate([one.claimed for one in judged])
    parts = np.concatenate([one.part + number * 2**32 for number, one in enumerate(judged)])
    z_squared = metrics.z_squared(y, far.mixed(near, far_law, claimed))
    beyond = np.flatnonzero(np.log(claimed) > far.edge)
    if len(beyond) < _FEWEST_IN_BIN:
        return 1.0
    by_part = [float(np.mean(z_squared[beyond][parts[beyond] == part])) for part in np.unique(parts[beyond])]
    unsure = 1 + float(np.std(by_part)) / max(float(np.mean(by_part)), 1e-30) / np.sqrt(len(by_part))
    missed = max(float(np.mean(z_squared[beyond])), float(np.quantile(z_squared[beyond], 0.9) / ndtri(0.95) ** 2))
    return float(np.clip(missed, *_WIDENING)) * unsure


def _joined(laws: Sequence[Prediction]) -> Prediction:
    mean, variance = (np.concatenate([getattr(law, name) for law in laws]) for name in ("mean", "variance"))
    known = [law.known for law in laws if law.known is not None]
    return Prediction(mean, variance, known=np.concatenate(known) if known else None)
