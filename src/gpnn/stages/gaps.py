"""How what answers beyond the support is learned, and judged.

The metric that is best for rows among their like is no guide where the nearest row is of another patient or another
year. So a few members learn θ̂ with parts of the table out of sight (`stages.hiding`), each judged on parts that it has
never seen, beside the local process, for which they are out of sight too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from gpnn.common import metrics
from gpnn.common.kernels import get_kernel
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines import Engine, Learner, Neighborhoods, Noise, Probes
from gpnn.engines.parallel import in_parallel
from gpnn.stages.calibration import fit_calibration
from gpnn.stages.candidates import score
from gpnn.stages.far import LEVELS, NEIGHBORS, OUTSIDE, Far, Member, Trend, claims_of
from gpnn.stages.hiding import Fold, Groups, Hiding, Mask, Rows, Slabs, Times, nearest_seen
from gpnn.stages.judges import Verdict
from gpnn.stages.mixing import Claims, Judges, fit_mixture
from gpnn.stages.near import Near
from gpnn.stages.refinement import refine
from gpnn.stages.rims import Rim, learn_rim
from gpnn.stages.whitening import Whitener

FEWEST_JUDGES = 50
_FEWEST_OUTSIDE = 10  # of random rows, to tell how the local process does where the support ends
_ROWS, _FEWEST_ROWS, _NUMBERS = 6000, 2000, 400_000
"""That the members learn and predict from (numbers: rows times columns): far from all of them, more would lie no
nearer."""
_NEAR_ROWS, _NEAR_NUMBERS = 50_000, 2_000_000
"""That the local process is judged with: as many as can be looked through, for it has all of them to answer from."""
_KERNELS = ("exponential", "matern32")  # members take turns
_ROUNDS, _QUERIES = (40, 40, 40, 40), 512  # steps, and rows that are searched for before each round
_START = Hyperparameters(2.0, 1.0, 0.1)
_JUDGES = 400  # of each member


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
    n, d = X.shape
    rows = rng.choice(n, min(n, _NEAR_ROWS, max(_FEWEST_ROWS, _NEAR_NUMBERS // d)), replace=False)
    n_learned = min(len(rows), _ROWS, max(_FEWEST_ROWS, _NUMBERS // d))
    hiding: Hiding = Slabs(near.whitener.transform(X[rows])) if queries is None else queries.of(rows)
    whitener = whitening(X[rows], y[rows])
    of_rows = None if noise is None else noise[rows]
    sample = _Sample(X[rows], y[rows], n_learned, whitener, near, hiding, engine, of_rows, verdict.calibration.alpha)
    first, *more = hiding.folds(rng)

    claimed = _claimed(X, near, verdict, engine)
    edge = -np.inf if hiding.everywhere else float(np.log(np.quantile(claimed, 1 - OUTSIDE)))

    def in_turn(tasks: list[partial], beside: Sequence[Callable[[], object]] = ()) -> list[_Judged]:
        return in_parallel(tasks, rng, engine.n_learners, progress, beside)

    seeds: list[int] = []
    rims: list[Rim | None] = []

    def at_rims() -> None:
        seeds.extend(int(rng.integers(2**31)) for _ in (first, *more))
        rims.append(None if hiding.everywhere else learn_rim(near, engine, edge, OUTSIDE, rng))

    judged = in_turn([partial(sample.judged, first, _KERNELS[0], with_trend) for with_trend in (False, True)])
    with_trend = _score(judged[1]) < _score(judged[0])
    kernels = (_KERNELS[k % 2] for k in range(1, 1 + len(more)))
    others = [partial(sample.judged, fold, kernel, with_trend) for fold, kernel in zip(more, kernels, strict=True)]
    judged = judged[with_trend : with_trend + 1] + in_turn(others, (at_rims,))
    part = np.concatenate([one.part + number * 2**32 for number, one in enumerate(judged)])
    trend = sample.trend(np.arange(n_learned), with_trend)
    members = [sample.member(one, trend, seed) for one, seed in zip(judged, seeds, strict=True)]
    outside = np.argsort(claimed)[-max(_FEWEST_OUTSIDE, round(OUTSIDE * len(claimed))) :]
    at = verdict.rows[outside]
    own = _places(rows[:n_learned], at)
    said = claims_of(members, trend, engine, whitener.transform(X[at]), verdict.law[outside], claimed[outside], own)
    in_gaps = Judges(np.concatenate([one.y for one in judged]), _joined(judged))
    mixture = fit_mixture(edge, in_gaps, part, Judges(y[at], said))
    return Far(whitener, trend, members, mixture, np.quantile(claimed, LEVELS), rows[:n_learned], *rims)


def _places(rows: Rows, of: Rows) -> Rows:
    """Where some rows stand among others, −1 for those that do not: the table may be far larger than either."""
    order = np.argsort(rows)
    place = order[np.minimum(np.searchsorted(rows, of, sorter=order), len(rows) - 1)]
    return np.where(rows[place] == of, place, -1)


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
    claims: Claims
    part: Rows


class _Sample:
    """Rows that the local process is judged with; of the first of them, members learn."""

    def __init__(
        self,
        X: Array,
        y: Array,
        n_learned: int,
        whitener: Whitener,
        near: Near,
        hiding: Hiding,
        engine: Engine,
        noise: Noise | None = None,
        alpha: float = 1.0,
    ):
        self.X, self.y, self.n_learned, self.whitener, self.near = X, y, n_learned, whitener, near
        self.hiding, self.engine = hiding, engine
        self.noise, self.alpha = noise, alpha  # by which the local process's variances were multiplied
        self.rows, self.near_rows = whitener.transform(X), near.whitener.transform(X)

    def trend(self, rows: Rows, asked_for: bool) -> Trend:
        return Trend.fit(self.rows[rows], self.y[rows]) if asked_for else Trend.none(self.X.shape[1])

    def judged(self, fold: Fold, kernel_name: str, with_trend: bool, rng: np.random.Generator) -> _Judged:
        """A member that has learned from all rows but the fold's, and is judged on those."""
        kernel, near = get_kernel(kernel_name), self.near
        seen = np.setdiff1d(np.arange(len(self.y)), fold.hidden, assume_unique=True)
        learned = seen[: np.searchsorted(seen, self.n_learned)]
        trend = self.trend(learned, with_trend)
        rest = self.y - trend(self.rows)
        learner = self._learner(self.whitener, learned, rest, rng)
        table = _Table(self.rows[learned], rest[learned], learner, noise=self._noise_of(learned))
        table.mask = lambda own: self.hiding.mask(learned[own], learned, rng)
        params = refine(table, table, kernel, _START, _ROUNDS, rng, most_queries=_QUERIES)
        judges = fold.judge[:_JUDGES]
        mask = self.hiding.mask_of_judges(judges, seen, rng)
        none = np.full(len(judges), -1)
        m = min(NEIGHBORS, len(learned) // 4 - 1)
        probes = Probes(self.rows[judges], rest[judges], none, self._noise_of(judges))
        members, _ = table.among(
            probes, params.lengthscale, m, lambda part: mask(part)[:, : len(learned)]
        ).predict(kernel, params)  # fmt: skip
        members = Prediction(members.mean + trend(self.rows[judges]), members.own)
        local = _Table(self.near_rows[seen], self.y[seen], self._learner(near.whitener, seen, self.y, rng, self.alpha))
        probes, scale = replace(probes, X=self.near_rows[judges], y=self.y[judges]), near.params.metric
        claimed, innovations = local.among(probes, scale, min(m, near.n_neighbors), mask).predict(
            near.kernel, near.params
        )  # by its nearest rows only: few are enough to tell how it does there
        claims = Claims(near.calibrated(claimed, innovations), claimed.own, members, np.zeros(len(judges)))
        sane = np.flatnonzero(np.isfinite(members.variance) & np.isfinite(claimed.variance))  # no system was singular
        return _Judged(kernel_name, params, self.y[judges[sane]], claims[sane], fold.part[sane])

    def _learner(
        self, whitener: Whitener, seen: Rows, y: Array, rng: np.random.Generator, alpha: float = 1.0
    ) -> Learner:
        rows, noise = self.engine.whiten(whitener, self.X[seen]), self._noise_of(seen)
        noise = None if noise is None else noise.scaled(alpha)
        return self.engine.learner(rows, y[seen], int(rng.integers(2**31)), noise).branch(n_jobs=1)

    def _noise_of(self, rows: Rows) -> Noise | None:
        return None if self.noise is None else self.noise[rows]

    def member(self, judged: _Judged, trend: Trend, seed: int) -> Member:
        """What was learned, with all rows to predict from that there were to learn from."""
        params, n = judged.params, self.n_learned
        rows = self.engine.whiten(self.whitener.stretched(1 / np.asarray(params.lengthscale)), self.X[:n])
        rest, noise = self.y[:n] - trend(self.rows[:n]), self._noise_of(np.arange(n))
        built = self.engine.build(rows, rest, "auto", min(NEIGHBORS, n), np.arange(min(n, 500)), seed, noise=noise)
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
    alone = np.ones((len(judged.y), 1))  # no neighbours' innovations: they tell of the rows around the gap
    law = fit_calibration(judged.y, judged.claims.members, alone)(judged.claims.members, alone)
    return score(metrics.rmse(judged.y, law), metrics.nll(judged.y, law))


def _joined(judged: Sequence[_Judged]) -> Claims:
    claims = [one.claims for one in judged]
    near, members = (Prediction.joined([getattr(one, name) for one in claims]) for name in ("near", "members"))
    claimed, spread = (np.concatenate([getattr(one, name) for one in claims]) for name in ("claimed", "spread"))
    return Claims(near, claimed, members, spread)
