"""Wide tables: which of many columns to learn from.

The time of learning grows with the columns, and so does the noise in a metric that has a lengthscale for each. Columns
are ranked twice: by how much of y, or of what is left of it, follows them one at a time, and by what a few boosted
trees split, which see what columns say together. Small models of the first 16, 32, 64 … of them are tried for as long
as rows that they have not seen gain by the others. Boosted trees beside the process learn from all of them: columns
that say little do not mislead these.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import rankdata

from gpnn.common.kernels import get_kernel
from gpnn.common.scales import TargetScale
from gpnn.common.types import Array
from gpnn.engines import Engine
from gpnn.stages.forest import Binned
from gpnn.stages.refinement import predict, rank_of_map
from gpnn.stages.trees import gains_of_columns
from gpnn.stages.trials import KERNEL, Trial

WIDE = 64
"""Columns; up to so many, all are learned from."""
_FEWEST = 400  # rows
_LEARN, _JUDGE, _RANKED = 16_000, 3000, 6000  # rows of a trial, and of those that rank columns
_FIRST = 16
_GAIN, _DEVIATIONS = 0.01, 2.0  # of NLL + log RMSE, for which twice the columns are worth their time
_MOST = 0.75  # of the columns; beyond, all are as good
_PATIENCE = 2  # times that more columns may be of no use
_HARDLY = 0.8  # of the variance: what few columns leave of it where all together may say more, through a linear map
_BINS = 8


def columns_that_matter(X: Array, y: Array, engine: Engine) -> NDArray[np.int64] | None:
    """Their numbers, sorted; None for all of them."""
    n, d = X.shape
    if d <= WIDE or n < _FEWEST:
        return None
    more_rows = n > 2 * _LEARN
    rows = np.random.default_rng(n).permutation(n)[: _LEARN + _JUDGE]
    X, t = X[rows], _normal_scores(y[rows])
    n_learn = max(len(rows) - _JUDGE, 2 * len(rows) // 3)
    learn, judge = np.arange(n_learn), np.arange(n_learn, len(rows))
    ranked = learn[:_RANKED]
    bins, gains = _binned(X[ranked]), gains_of_columns(Binned.of(X[ranked]), t[ranked])
    chosen = _next(bins, gains, t[ranked], np.zeros(0, np.int64), _FIRST)
    best: NDArray[np.int64] | None = None
    before: tuple[Array, Array] | None = None
    in_vain = 0
    while len(chosen) < _MOST * d:
        trial = Trial.begun(X[:, chosen], t, TargetScale(), learn, judge, engine)
        losses = trial.losses(trial.params.lengthscale)
        if before is None or _worth_it(before, losses):
            best, before, in_vain = np.sort(chosen), losses, 0
        elif more_rows and in_vain == 0 and len(chosen) <= WIDE:  # of no use yet, but they will have something to say
            best, in_vain = np.sort(chosen), 1
        elif (in_vain := in_vain + 1) == _PATIENCE:
            break
        left, _ = predict(trial.space.learner, trial.space.learn[ranked], get_kernel(KERNEL), trial.params)
        rest = trial.whitener.transform_y(t[ranked]) - left.mean
        more = _next(bins, gains, rest, chosen, len(chosen))
        if len(more) == 0:
            return best
        chosen = np.append(chosen, more)
    hidden = before is not None and np.mean(before[0]) > _HARDLY * np.var(t) and rank_of_map(n, d) > 0
    return None if hidden or not in_vain else best


def _worth_it(before: tuple[Array, Array], losses: tuple[Array, Array]) -> bool:
    """Whether judges gain by more columns, in NLL + log RMSE, and more than chance explains."""
    gain = before[1] - losses[1]
    unsure = float(np.std(gain)) / np.sqrt(len(gain))
    sharper = 0.5 * float(np.log(np.mean(before[0]) / np.mean(losses[0])))
    return float(np.mean(gain)) + sharper > max(_GAIN, _DEVIATIONS * unsure)


def _normal_scores(y: Array) -> Array:
    """Skewed targets and wild ones have their say, and no more."""
    return ndtri((rankdata(y) - 0.5) / len(y))


def _binned(X: Array) -> NDArray[np.int8]:
    """(d, n): which part of its own range each value lies in, parts of as many rows as ties allow; −1 throughout for a
    column that says nothing, or the same as one before it."""
    bins, seen = np.full(X.T.shape, -1, np.int8), set()
    inner = np.linspace(0, 1, _BINS + 1)[1:-1]
    for k, column in enumerate(X.T):
        values = np.ascontiguousarray(column)
        ends = np.unique(np.quantile(values, inner, method="nearest"))
        held = values.tobytes()
        if values.min() < values.max() and held not in seen:
            bins[k] = np.searchsorted(ends, values, side="left")
            if bins[k].min() == bins[k].max():  # nearly all of it is the largest value
                bins[k] = values < values.max()
        seen.add(held)
    return bins


def _next(bins: NDArray[np.int8], gains: Array, y: Array, known: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """n columns that are not known: half of them by the trees' gains, the others as y follows them."""
    by_trees = np.argsort(-gains, kind="stable")
    by_trees = by_trees[(gains[by_trees] > 0) & ~np.isin(by_trees, known)][: n // 2]
    return np.append(by_trees, _strongest(bins, y, np.append(known, by_trees), n - len(by_trees)))


def _strongest(bins: NDArray[np.int8], y: Array, known: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """The n columns, of those not known, that y or the size of y follows most; fewer where no more say anything."""
    strength = np.full(len(bins), -np.inf)
    size = np.abs(y - np.median(y))
    for k in np.setdiff1d(np.arange(len(bins)), known):
        if bins[k, 0] >= 0:
            strength[k] = max(_explained(bins[k], y), _explained(bins[k], size))
    order = np.argsort(-strength, kind="stable")[:n]
    return order[np.isfinite(strength[order])]


def _explained(bins: NDArray[np.int8], y: Array) -> float:
    """The share of y's variance that is between bins, less what chance makes."""
    counts = np.bincount(bins, minlength=_BINS)
    sums = np.bincount(bins, weights=y - y.mean(), minlength=_BINS)
    used = counts > 0
    between = float(np.sum(sums[used] ** 2 / counts[used])) / max(len(y) * float(np.var(y)), 1e-300)
    return between - (int(used.sum()) - 1) / len(y)
