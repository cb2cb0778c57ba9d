"""The rims of gaps: queries with rows nearby, but on one side only.

There the local process may claim no more variance than in sparse country, and err more than it says. What tells the two
apart is how its variance falls as it sees more of the nearest rows: among their like, a few rows on all sides settle
it; at a rim, each further row tells a little. Balls of rows are put out of sight, and rows inside them predicted from
those around: so a query is known by rows that are like it, and how much wider its interval must be, from their errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, ndtri

from gpnn.common.types import Array, Prediction
from gpnn.engines import Engine, Probes
from gpnn.stages.near import Near, nested_sizes
from gpnn.stages.whitening import Whitener

LEVELS = np.linspace(0, 1, 401)
_RANDOM, _BALLS = 4000, 1500
_SMALLEST, _AROUND = 4, 512  # rows of a ball; that are looked through around its centre, and around the query
_MOST = 64  # neighbours: few are enough to tell how the local process does there
_FEWEST = 50  # judges at a rim
_SEEN = (0.002, 0.998)  # quantiles of what was learned from: nothing beyond is extrapolated to
_TINIEST = 1e-300


@dataclass(frozen=True)
class Rim:
    """How much a query looks like those at the rim of a gap, and what the local variance is multiplied by there."""

    limits: Array
    """(2, k): what the terms lay between."""
    moments: Array
    """(2, p): means of their products, and standard deviations."""
    weights: Array
    """(p,): of the logarithm of the odds."""
    random: Array
    """Quantiles, at LEVELS, of these for random rows."""
    edges: Array
    """(2,): where the support ends, and where queries are taken to lie at a rim altogether."""
    factor: float

    def __call__(self, nested: Array) -> Array:
        """The logarithm of the odds, but for a constant, given the variances (q, k) that are claimed from nested sets
        of the nearest rows."""
        low, high = self.limits
        terms = [np.clip(*of) for of in zip(_terms(nested[:, : len(low)]).T.copy(), low, high, strict=True)]
        slopes = self.weights / self.moments[1]
        odds, product = np.full(len(nested), -float(np.sum(slopes * self.moments[0]))), len(terms)
        for first, term in enumerate(terms):  # column by column: as a product of matrices, digits depend on the rows
            slope = np.full(len(nested), slopes[first])
            for other in terms[first:]:
                slope += slopes[product] * other
                product += 1
            odds += slope * term
        return odds

    def support(self, odds: Array) -> Array:
        """The share of random rows that look as much like it, or more."""
        return 1 - np.interp(odds, self.random, LEVELS, right=1.0)

    def widening(self, odds: Array) -> Array:
        """What the local variance is multiplied by: nothing within the support."""
        low, high = self.edges
        return self.factor ** np.clip((odds - low) / (high - low), 0, 1)


def _terms(nested: Array) -> Array:
    """The logarithms of the last variance, and of how much each is larger than the next."""
    logs = np.log(np.maximum(nested, _TINIEST))
    return np.concatenate([logs[:, -1:], logs[:, :-1] - logs[:, 1:]], axis=1)


def _products(terms: Array) -> Array:
    first, second = np.triu_indices(terms.shape[1])
    return np.concatenate([terms, terms[:, first] * terms[:, second]], axis=1)


def learn_rim(near: Near, engine: Engine, edge: float, outside: float, rng: np.random.Generator) -> Rim | None:
    """From the rows that the engine holds; None if the local process does at rims as well as it says, or too few tell.

    edge: the logarithm of the claimed variance at which the support ends; outside: the share of random rows beyond."""
    n, few = len(engine.y), replace(near, n_neighbors=min(near.n_neighbors, _MOST))
    around = min(_AROUND, n // 4)
    if around < few.n_neighbors + 4 * _SMALLEST:
        return None
    queries, neighbors = _in_balls(engine, few.n_neighbors, around, rng)
    law, inside = predicted(few, engine, queries, neighbors, rng)
    rows = rng.choice(n, min(n, _RANDOM), replace=False)
    random = _left_out(few, engine, rows)
    sane = np.flatnonzero(np.isfinite(inside).all(axis=1))
    rim = _told_apart(random, inside[sane], outside)
    judges = sane[(rim(inside[sane]) > rim.edges[1]) & (np.log(inside[sane, -1]) < edge)]
    if len(judges) < _FEWEST:
        return None
    z_squared = (engine.y[queries[judges]] - law.mean[judges]) ** 2 / law.variance[judges]
    factor = float(np.quantile(z_squared, 0.9)) / float(ndtri(0.95)) ** 2
    return replace(rim, factor=factor) if factor > 1 else None


def _in_balls(
    engine: Engine, m: int, around: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows, each somewhere in a ball around another one, and the m nearest to it (q, m) outside of that ball."""
    index, n = engine.index, len(engine.y)
    centres = rng.choice(n, min(n, _BALLS), replace=False)
    balls = engine.neighbors(index.points(centres), around - m).indices
    sizes = np.exp(rng.uniform(np.log(_SMALLEST), np.log(around - m), len(centres))).astype(int)
    queries = balls[np.arange(len(centres)), (sizes * rng.random(len(centres))).astype(int)].astype(np.int64)
    found = engine.neighbors(index.points(queries), around).indices
    numbers = index.order[found], index.order[balls]  # a shard may have rows of another
    whole, neighbors = first_shown(found, _outside(*numbers, sizes), m)
    return queries[whole], neighbors


def _outside(found: NDArray, balls: NDArray, sizes: NDArray) -> NDArray[np.bool_]:
    """Which of the rows found (q, k) are none of the first `sizes` (q,) of those in the ball (q, b) of the query."""
    inside = np.zeros(1 + max(found.max(), balls.max()), dtype=bool)
    shown = np.empty(found.shape, dtype=bool)
    for query, (near, ball, size) in enumerate(zip(found, balls, sizes, strict=True)):
        inside[ball[:size]] = True
        shown[query] = ~inside[near]
        inside[ball[:size]] = False
    return shown


def first_shown(found: NDArray, shown: NDArray[np.bool_], m: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which queries see m of their neighbours found (q, k), and the first m that those see."""
    count = np.cumsum(shown, axis=1, dtype=np.int32)
    whole = count[:, -1] >= m
    first = shown & (count <= m) & whole[:, None]
    return whole, found[first].reshape(-1, m).astype(np.int64)


def predicted(
    near: Near, engine: Engine, queries: NDArray, neighbors: NDArray, rng: np.random.Generator
) -> tuple[Prediction, Array]:
    """Laws of rows from the neighbours chosen for them, and the variances that nested sets of these claim."""
    numbers, place = np.unique(neighbors, return_inverse=True)
    place, index = place.reshape(neighbors.shape), engine.index
    rows = engine.whiten(_as_they_are(index.points(queries[:1]).shape[1]), index.points(numbers))
    noise = engine.noise
    of_rows, of_queries = (None if noise is None else noise[of] for of in (numbers, queries))
    learner = engine.learner(rows, engine.y[numbers], int(rng.integers(2**31)), of_rows)
    probes = Probes(index.points(queries), engine.y[queries], np.full(len(queries), -1), of_queries)
    found = [
        learner.among(probes, np.ascontiguousarray(place[:, :size])).predict(near.kernel, near.params)
        for size in nested_sizes(near.n_neighbors)
    ]
    law, innovations = found[-1]
    return near.calibrated(law, innovations), np.stack([claimed.own for claimed, _ in found], axis=1)


def _left_out(near: Near, engine: Engine, rows: NDArray) -> Array:
    """The variances that nested sets claim for rows, predicted from all the others."""
    own, sizes = engine.index.order[rows], nested_sizes(near.n_neighbors)
    return engine.path(engine.index.points(rows), sizes, near.kernel, near.params, own, 0).variance


def _told_apart(random: Array, inside: Array, outside: float) -> Rim:
    """By a logistic regression on the products of terms, to which both kinds count for the same."""
    terms = _terms(np.concatenate([random, inside]))
    limits = np.quantile(terms, _SEEN, axis=0)
    products = _products(np.clip(terms, *limits))
    moments = np.stack([products.mean(axis=0), products.std(axis=0) + 1e-9])
    standard = (products - moments[0]) / moments[1]
    sign = np.repeat([-1.0, 1.0], [len(random), len(inside)])
    counts = np.repeat([0.5 / len(random), 0.5 / len(inside)], [len(random), len(inside)])

    def loss(line: Array) -> tuple[float, Array]:
        margin, weights = sign * (line[0] + standard @ line[1:]), line[1:]
        slope = -counts * sign * expit(-margin)
        value = counts @ np.logaddexp(0, -margin) + 0.5 * weights @ weights / len(sign)
        return value, np.append(slope.sum(), slope @ standard + weights / len(sign))

    weights = minimize(loss, np.zeros(1 + standard.shape[1]), jac=True, method="L-BFGS-B").x[1:]
    odds = standard[: len(random)] @ weights
    low, high = np.quantile(odds, [1 - outside, 1 - 0.5 * outside])
    return Rim(limits, moments, weights, np.quantile(odds, LEVELS), np.array([low, max(high, low + 1e-9)]), 1.0)


def _as_they_are(d: int) -> Whitener:
    return Whitener(np.zeros(d), np.ones(d), 0.0, 1.0)
