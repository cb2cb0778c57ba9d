"""Boosted regression trees: what grows them from a table, and what they say of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpnn.common.types import Array
from gpnn.engines.parallel import for_each_block
from gpnn.stages.holdout import Rows
from gpnn.stages.mean import Linear

_MOST_BINS, _BINNED = 255, 20_000  # of a column; rows that say where they end
_HELD = 10  # one row in so many says when to stop
_BLOCK = 4096


@dataclass(frozen=True)
class Forest:
    """Trees in arrays, one after another: children come after their parents, the right one after the left."""

    base: float
    roots: NDArray[np.int32]
    column: NDArray[np.int32]
    """Of each node; −1 for leaves."""
    value: Array
    """Threshold, up to which rows go left; of leaves, what they say."""
    left: NDArray[np.int32]
    line: Linear | None = None
    """What they begin from, if that is more than `base`: they say what it leaves."""

    @classmethod
    def mean_of(cls, forests: Sequence[Forest]) -> Forest:
        """Of those that begin from the same line."""
        first = np.cumsum([0] + [len(one.column) for one in forests[:-1]]).astype(np.int32)
        roots, left = (
            np.concatenate([getattr(one, name) + at for one, at in zip(forests, first, strict=True)])
            for name in ("roots", "left")
        )
        column, value = (np.concatenate([getattr(one, name) for one in forests]) for name in ("column", "value"))
        value = np.where(column < 0, value / len(forests), value)
        return cls(float(np.mean([one.base for one in forests])), roots, column, value, left, forests[0].line)

    def first(self, n_trees: int) -> Forest:
        """Before the others grew."""
        return replace(self, roots=self.roots[:n_trees])

    def __call__(self, X: Array, n_jobs: int | None = None) -> Array:
        """What they say of rows X (q, d)."""
        from gpnn.engines.compiled.trees import add_trees  # numba comes with it: not before it is needed

        said = np.full(len(X), self.base)

        def add(part: slice) -> None:
            if self.line is not None:
                said[part] += self.line.predict(X[part])
            add_trees(np.ascontiguousarray(X[part]), self.roots, self.column, self.value, self.left, said[part])

        for_each_block(add, len(X), _BLOCK, n_jobs)
        return said


@dataclass(frozen=True)
class Growth:
    """How trees are grown: how many, how much of what is left each may explain, their leaves; after how many in a row
    that gained nothing on rows held out no more are grown (0: none are held out, and all are grown); how many columns
    each tree sees, half of them the first ones and the others drawn at random (0: all); among what share of these
    each split is chosen; the fewest rows in a leaf; and whether y are squares, of whose expectation trees say the
    logarithm."""

    n_trees: int
    rate: float
    leaves: int
    patience: int = 0
    seen: int = 0
    tried: float = 1.0
    least_rows: int = 20
    squares: bool = False


@dataclass(frozen=True)
class Grown:
    forest: Forest
    gains: Array
    """(d,): what splits of each of the binned columns took off the sum of squares."""

    @property
    def n_trees(self) -> int:
        return len(self.forest.roots)


@dataclass(frozen=True)
class Binned:
    """Columns of a table as numbers of bins (d, n), between whose values trees split."""

    columns: NDArray[np.int64]
    """Their numbers in the table, in which trees speak of them."""
    bins: NDArray[np.uint8]
    first: NDArray[np.int64]
    """(d + 1,): where each column's bins begin among all."""
    ends: Array
    """The threshold above each bin; infinite for the last of a column."""

    @classmethod
    def of(cls, X: Array, numbers: NDArray[np.int64] | None = None) -> Binned:
        """numbers: of the columns, in that order; None for all."""
        numbers = np.arange(X.shape[1]) if numbers is None else numbers
        columns = np.ascontiguousarray(X.T[numbers])
        some = slice(None) if len(X) <= _BINNED else np.random.default_rng(len(X)).permutation(len(X))[:_BINNED]
        bins, ends = np.empty(columns.shape, np.uint8), []
        for column, of_column in zip(columns, bins, strict=True):
            thresholds = _thresholds(column[some].astype(float))
            of_column[:] = np.searchsorted(thresholds, column, side="left")
            ends.append(np.append(thresholds, np.inf))
        return cls(numbers, bins, np.cumsum([0] + [len(of) for of in ends]), np.concatenate(ends))

    def only(self, numbers: NDArray[np.int64]) -> Binned:
        """Some of the columns, in that order."""
        ends = [self.ends[self.first[k] : self.first[k + 1]] for k in numbers]
        first = np.cumsum([0] + [len(of) for of in ends])
        return Binned(self.columns[numbers], self.bins[numbers], first, np.concatenate(ends))

    def grow(self, y: Array, rows: Rows, how: Growth, seed: int) -> Grown:
        """Trees for y (n,), from those rows."""
        from gpnn.engines.compiled.boosting import boost  # numba comes with it: not before it is needed

        rng, (d, _) = np.random.default_rng(seed), self.bins.shape
        n_held = len(rows) // _HELD if how.patience else 0
        rows = rng.permutation(rows).astype(np.int32)
        held, learned = np.sort(rows[:n_held]), np.sort(rows[n_held:])
        mean, seen = float(np.mean(y[learned])), min(how.seen or d, d)
        base, rest = (float(np.log(mean)), y / mean) if how.squares else (mean, y - mean)
        n_nodes = how.n_trees * (2 * how.leaves - 1)
        roots = np.empty(how.n_trees, np.int32)
        column, place, left = np.empty((3, n_nodes), np.int32)
        value, gains = np.empty(n_nodes), np.zeros(d)
        n_trees, n_nodes = boost(
            self.bins, self.first, rest, how.squares, learned, held, how.n_trees, how.rate, seen // 2, seen,
            max(1, round(how.tried * seen)), how.leaves, how.least_rows, how.patience, int(rng.integers(2**31)),
            roots, column, place, value, left, gains,
        )  # fmt: skip
        inner = np.flatnonzero(column[:n_nodes] >= 0)
        value[inner] = self.ends[self.first[column[inner]] + place[inner]]
        column[inner] = self.columns[column[inner]]
        kept = slice(n_nodes)
        forest = Forest(base, roots[:n_trees].copy(), column[kept].copy(), value[kept].copy(), left[kept].copy())
        return Grown(forest, gains)


def _thresholds(values: Array) -> Array:
    """Between the values of a column, or such that as many of them lie between one and the next."""
    distinct = np.unique(values)
    if len(distinct) <= _MOST_BINS:
        return (distinct[:-1] + distinct[1:]) / 2
    return np.unique(np.quantile(values, np.linspace(0, 1, _MOST_BINS + 1)[1:-1], method="midpoint"))
