"""Why a prediction is what it is: which rows made it, with what weights, and which columns told them apart.

A mean is linear in the targets of the rows that it is made from, μ* = offset + Σ weights·y. Beyond the support it is a
mixture of several processes (`stages.far`), each linear in the targets of rows of its own; their weights add up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpnn.common.kernels import Kernel, get_kernel
from gpnn.common.types import Array, Hyperparameters, Neighbors
from gpnn.engines import Engine, Probes
from gpnn.engines.local import FARTHEST
from gpnn.engines.parallel import blocks, for_each_block
from gpnn.stages.far import NEIGHBORS, Far, Member
from gpnn.stages.near import Near
from gpnn.stages.trees import Trees
from gpnn.stages.whitening import Whitener

Numbered = Callable[[NDArray], NDArray[np.int64]]

_BLOCK = 2048  # queries explained at a time: their neighbours' columns are held together
_PART = 64  # that a thread works on at a time
_PROBES, _FEW = 1000, 31  # rows whose likelihood tells how sure the metric is, each from so many neighbours
_PAIRS, _DRAWS = 4000, 400
_LEAST_SURE = 2.0  # the standard deviation that a logarithm of a lengthscale has before any row is seen


@dataclass(frozen=True)
class Explanation:
    """Of q predictions: mean = offset + Σ weights·y[indices], to rounding, for every one of them."""

    indices: NDArray[np.int64]
    """(q, k): training rows, numbered as in `fit`, nearest first. k is m, or more where queries beyond the support are
    answered by other rows too; the rest of a line is then filled with its first row and weights of 0."""
    weights: Array
    """(q, k): how far the mean moves when that row's y moves by one."""
    y: Array
    """(q, k): what those rows' y are."""
    offset: Array
    """(q,): what the mean function and the trends say, whatever these rows' y are."""
    effective: Array
    """(q,): how many rows it comes to, (Σ|w|)² / Σw²: 1 if a single row decided, k if all did alike."""
    columns: Array
    """(q, d): the share of each input column in the squared distances of those rows from the query, weighted by |w|.
    With whitening="full" or a learned map, a column can have a negative share: it brings rows nearer."""
    distances: Array
    """(q, m) of the m nearest rows, in the learned metric."""
    support: Array | None
    """As in `predict_distribution`."""
    scale: str = "identity"
    """What y was learned as: mean, weights, y and offset are all on that scale; `target_scale_.back` leaves it."""

    def mean(self, y=None) -> Array:
        """The means (q,); or what they would be if the training rows had the targets y (n,)."""
        values = self.y if y is None else np.asarray(y, dtype=float)[self.indices]
        return self.offset + np.sum(self.weights * values, axis=1)

    def decisive(self, k: int = 5) -> tuple[NDArray[np.int64], Array]:
        """The k rows of each query with the largest weights, the largest first, and those weights: both (q, k)."""
        largest = np.argsort(-np.abs(self.weights), axis=1, kind="stable")[:, :k]
        return np.take_along_axis(self.indices, largest, 1), np.take_along_axis(self.weights, largest, 1)


@dataclass(frozen=True)
class Influence:
    """Which predictions a training row moves: triplets, by row and then by how much, the largest first."""

    rows: NDArray[np.int64]
    queries: NDArray[np.int64]
    weights: Array
    """How far the mean at that query moves when the row's y moves by one."""


@dataclass(frozen=True)
class Relevance:
    """Of the input columns (d,): their shares in the squared distance of two random rows, in the learned metric, and
    where these lie with probability 95 %, as far as the likelihood of near predictions tells lengthscales."""

    share: Array
    lower: Array
    upper: Array
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class PartialDependence:
    """The mean prediction as one column takes the values of the grid (g,) and all others stay as they are.

    lower, upper: where that average of f lies with probability `coverage`. The standard deviation of an average is
    never larger than the average of the standard deviations, whatever predictions have in common: so it is taken.
    """

    grid: Array
    mean: Array
    lower: Array
    upper: Array


def explained(
    near: Near,
    far: Far | None,
    trees: Trees | None,
    engine: Engine,
    X: Array,
    table: Array,
    numbered: Numbered,
    y_std: float,
    means: Array | None,
) -> Explanation:
    """Of rows X (q, d), of which trees see all columns, table (q, k). Offsets are still without the mean function at X
    itself, and y without a constant one.

    numbered: the engine's rows as they are numbered in the user's table; means: the mean function at the rows of that
    table, None for 0.
    """
    parts = [
        _explained(near, far, trees, engine, X[part], table[part], numbered, y_std, means)
        for part in blocks(len(X), _BLOCK)
    ]
    if not parts:
        empty, d = np.zeros((0, near.n_neighbors)), X.shape[1]
        nothing = np.zeros(0)
        support = None if far is None else nothing
        return Explanation(empty.astype(np.int64), empty, empty, nothing, nothing, np.zeros((0, d)), empty, support)
    width = max(part.indices.shape[1] for part in parts)
    columns: dict[str, Any] = {
        name: [getattr(part, name) for part in parts] for name in vars(parts[0]) if name != "scale"
    }
    for name, filled in (("indices", 1.0), ("y", 1.0), ("weights", 0.0)):
        columns[name] = [_widened(of, width, filled) for of in columns[name]]
    whole: dict[str, Any] = {name: None if of[0] is None else np.concatenate(of) for name, of in columns.items()}
    return Explanation(**whole)


def _explained(near, far, trees, engine, X, table, numbered, y_std, means) -> Explanation:
    found, weights = near_weights(near, engine, X)
    indices, y, trend = numbered(found.indices), engine.y[found.indices], np.zeros(len(X))
    support = None
    if far is not None or trees is not None:
        local = near.law(engine, X)
    if trees is not None:
        alone = 0.0 if far is None else far.mixture.ramp(local.claimed)
        local, share = local._replace(law=trees.beside(local.law, table, alone)), trees.weight * (1 - alone)
        weights, trend = weights * np.reshape(1 - share, (-1, 1)), share * trees.forest(table)
    if far is not None:
        support, outside = far.support(local), np.flatnonzero(far.outside(local.claimed))
        if len(outside):
            share = far.mixture.weight(far.claims(engine, X[outside], local.law[outside], local.claimed[outside]))
            weights[outside] *= 1 - share[:, None]
            *more, of_members = _far_weights(far, engine, X[outside], share)
            trend[outside] = (1 - share) * trend[outside] + of_members
            indices, weights, y = _joined((indices, weights, y), outside, more)
    y, offset = y_std * y, y_std * trend
    if means is not None:
        y, offset = y + means[indices], offset - np.sum(weights * means[indices], axis=1)
    size = np.abs(weights)
    effective = size.sum(axis=1) ** 2 / np.maximum((size**2).sum(axis=1), 1e-300)
    shares = column_shares(near.whitener, near.whitener.transform(X), engine.index.points(found.indices), weights)
    return Explanation(indices, weights, y, offset, effective, shares, found.distances, support)


def near_weights(near: Near, engine: Engine, X: Array) -> tuple[Neighbors, Array]:
    """The engine's rows that the local process uses at X (q, d), and their weights (q, m)."""
    m = near.n_neighbors
    found = engine.neighbors(engine.whiten(near.whitener, X), m)
    weights = _weights(engine, near.whitener.transform(X), found.indices, near.kernel, near.params)
    return found, weights * (near.params.unbiasing(m) if near.unbiased else 1.0)


def _far_weights(far: Far, engine: Engine, X: Array, share: Array) -> tuple[NDArray[np.int64], Array, Array, Array]:
    """Rows of the user's table, their weights and whitened y (q, k), of the members together; and what their trend adds
    (q,)."""
    Z = far.whitener.transform(X)
    indices, weights, targets, trends = [], [], [], []
    for member in far.members:
        found, own, points = _member_weights(member, engine, Z)
        at_rows = far.trend(points.reshape(-1, points.shape[-1])).reshape(found.shape)
        indices.append(far.rows[member.index.order[found]])
        weights.append(own * share[:, None] / len(far.members))
        targets.append(member.y[found] + at_rows)
        trends.append(far.trend(Z) - np.sum(own * at_rows, axis=1))
    rows, of_rows, y = (np.concatenate(of, axis=1) for of in (indices, weights, targets))
    return rows.astype(np.int64), of_rows, y, share * np.mean(trends, axis=0)


def _member_weights(member: Member, engine: Engine, Z: Array) -> tuple[NDArray, Array, Array]:
    """Rows of its index (q, k), their weights, and where they lie in the metric before its own (q, k, d)."""
    X_star = np.clip(Z / member.lengthscale, -FARTHEST, FARTHEST).astype(np.float32)
    params = Hyperparameters(1.0, member.kernel_variance, member.noise_variance)
    held = member.held_by(engine)
    found = held.neighbors(X_star, min(NEIGHBORS, len(member.y))).indices
    weights = _weights(held, X_star, found, get_kernel(member.kernel), params)
    return found, weights, member.index.points(found) * member.lengthscale


def _weights(engine: Engine, X_star: Array, found: NDArray, kernel: Kernel, params: Hyperparameters) -> Array:
    from gpnn.engines.cpu.solver import local_weights  # numba comes with it: not before it is needed

    weights = np.empty(found.shape)

    def weigh(part: slice) -> None:
        noise = None if engine.noise is None else engine.noise[found[part]].variance(params)
        weights[part] = local_weights(X_star[part], engine.index.points(found[part]), kernel, params, noise)

    for_each_block(weigh, len(found), _PART, getattr(engine, "n_jobs", 1))
    return weights


def _joined(near: Sequence[NDArray], outside: NDArray, more: Sequence[NDArray]) -> list[NDArray]:
    """Rows, weights and y, with more for the queries outside: the distinct rows of each, those of the local process
    first. Lines are as long as the longest."""
    lines = []
    for k, at in enumerate(outside):
        rows, weights, y = (np.concatenate([own[at], other[k]]) for own, other in zip(near, more, strict=True))
        distinct, first, place = np.unique(rows, return_index=True, return_inverse=True)
        total, order = np.bincount(place, weights, len(distinct)), np.argsort(first)
        lines.append((distinct[order], total[order], y[first[order]]))
    width = max(len(rows) for rows, *_ in lines)
    joined = [_widened(of, width, filled) for of, filled in zip(near, (1.0, 0.0, 1.0), strict=True)]
    for at, line in zip(outside, lines, strict=True):
        for of, values, filled in zip(joined, line, (1.0, 0.0, 1.0), strict=True):
            of[at] = filled * values[0]
            of[at, : len(values)] = values
    return joined


def _widened(of: NDArray, width: int, filled: float) -> NDArray:
    """Lines filled up with their first element times `filled`."""
    return np.concatenate([of, np.repeat((filled * of[:, :1]).astype(of.dtype), width - of.shape[1], axis=1)], axis=1)


# --- columns ----------------------------------------------------------------------------------------------------------


def column_shares(whitener: Whitener, Z: Array, rows: Array, weights: Array) -> Array:
    """Of whitened queries Z (q, d) and rows (q, m, d): each input column's share (q, d) in Σ|w|·distance²."""
    shares = _by_column(whitener, np.asarray(rows, dtype=float) - np.asarray(Z, dtype=float)[:, None])
    total = np.einsum("qm,qmd->qd", np.abs(weights[:, : rows.shape[1]]), shares)
    whole = total.sum(axis=1, keepdims=True)
    return np.divide(total, whole, out=np.full(total.shape, 1 / total.shape[1]), where=whole > 0)


def _by_column(whitener: Whitener, difference: Array, factors: Array | None = None) -> Array:
    """Squared distances (…,) as sums over input columns (…, d). factors (d,): a further stretch of the whitened ones.

    With z = xM, |z|² = Σ_k x_k (M z)_k."""
    stretched = difference if factors is None else difference * factors**2
    if whitener.x_map.ndim == 1:
        return stretched * difference
    return (difference @ np.linalg.pinv(whitener.x_map)) * (stretched @ whitener.x_map.T)


def relevance(near: Near, engine: Engine, names: Sequence[str]) -> Relevance:
    """From the rows that the engine holds, in the learned metric."""
    rng, n = np.random.default_rng(0), len(engine.y)
    d = len(near.whitener.x_mean)
    pairs = rng.integers(n, size=(2, _PAIRS))
    first, second = (engine.index.points(one).astype(float) for one in pairs)
    difference = first - second
    deviations = rng.standard_normal((_DRAWS, d)) @ np.linalg.cholesky(_uncertainty(near, engine, rng)).T

    def shares(factors: Array) -> Array:
        total = _by_column(near.whitener, difference, factors).mean(axis=0)
        return total / max(float(total.sum()), 1e-300)

    drawn = np.array([shares(np.exp(-one)) for one in deviations])
    share, (lower, upper) = shares(np.ones(d)), np.quantile(drawn, [0.025, 0.975], axis=0)
    return Relevance(share, np.minimum(lower, share), np.maximum(upper, share), tuple(map(str, names)))


def _uncertainty(near: Near, engine: Engine, rng: np.random.Generator) -> Array:
    """The covariance (d, d) of the logarithms of lengthscales: the inverse of what the scores of single predictions say
    of them, each predicted from a few of its nearest others."""
    n, m = len(engine.y), min(_FEW, len(engine.y) - 1)
    chosen = rng.choice(n, min(n, _PROBES), replace=False)
    X = engine.index.points(chosen)
    found = engine.neighbors(X, m + 1).indices
    others = found != chosen[:, None]
    others[others.all(axis=1), -1] = False  # a copy of it lies nearer: the farthest is one too many
    found = found[others].reshape(len(chosen), m)
    rows, place = np.unique(found, return_inverse=True)
    noise = None if engine.noise is None else engine.noise[rows]
    noise_star = None if engine.noise is None else engine.noise[chosen]
    as_it_is = Whitener(np.zeros(X.shape[1]), np.ones(X.shape[1]), 0.0, 1.0)
    learner = engine.learner(engine.whiten(as_it_is, engine.index.points(rows)), engine.y[rows], 0, noise)
    probes = Probes(X, engine.y[chosen], np.full(len(chosen), -1), noise_star)
    hoods = learner.among(probes, place.reshape(found.shape).astype(np.int64))
    d = X.shape[1]
    theta = near.params.as_vector(d)
    scores = np.array([hoods.gradient(np.array([k]), near.kernel, theta, 1.0, 1.0)[0] for k in range(len(chosen))])
    scores *= theta
    scores = scores[:, :d] + (0.0 if near.params.broad is None else scores[:, d + 2 : -1])  # both parts stretched alike
    return np.linalg.inv(scores.T @ scores + np.eye(d) / _LEAST_SURE**2)


# --- rows -------------------------------------------------------------------------------------------------------------


def influence(explanation: Explanation, rows: NDArray[np.int64]) -> Influence:
    """Of training rows, by number, on the predictions that were explained."""
    hit = np.isin(explanation.indices, rows) & (explanation.weights != 0)
    queries, at = np.nonzero(hit)
    found, weights = explanation.indices[queries, at], explanation.weights[queries, at]
    order = np.lexsort((-np.abs(weights), found))
    return Influence(found[order], queries[order].astype(np.int64), weights[order])
