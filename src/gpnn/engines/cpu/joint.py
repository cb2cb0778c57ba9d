"""The errors of all predictions together: a field is drawn at rows and queries, and predicted as the data were.

With f ~ GP and y = f + noise at the rows, e = f* − wᵀy_N has at each query the very variance that equation 7 gives, and
between queries the covariance that predictions from their own nearest rows have. Nothing is approximated but the field,
where points are many: a chain gives it, in which each follows from the nearest before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpnn.common.kernels import Kernel
from gpnn.common.types import Array, Hyperparameters
from gpnn.engines.compiled.chain import add_transposed, subtract_predictions
from gpnn.engines.cpu.chain import WHOLE, make_field, regression
from gpnn.engines.cpu.solver import local_weights
from gpnn.engines.index import NeighborIndex
from gpnn.engines.local import Noise
from gpnn.engines.parallel import for_each_block, shown

_QUERIES = 64  # that a thread works on at a time
_FIELD = 2**28  # bytes of the field that are held at a time, at 64 draws or more
_COLUMNS = 64
_KEPT = 2**25  # weights; more are made anew whenever they are needed


class CPUErrors:
    """Of predictions at X_star (q, d) from the nearest n_neighbors rows of an index, of whose noise something may be
    known."""

    _whole = WHOLE

    def __init__(
        self,
        index: NeighborIndex,
        X_star: NDArray[np.float32],
        n_neighbors: int,
        kernel: Kernel,
        params: Hyperparameters,
        n_jobs: int | None = None,
        progress: Any = None,
        noise: Noise | None = None,
    ):
        self.index, self.X, self.m = index, X_star, n_neighbors
        self.kernel, self.params, self.n_jobs = kernel, params, n_jobs
        self.used, self._number = self._rows_used()
        of_rows = None if noise is None else noise[self.used].variance(params)
        self._noise = of_rows  # of the rows used, where it is known
        self._ratio = np.full(len(self.used), params.noise_variance if of_rows is None else of_rows)[:, None]
        self._ratio /= params.kernel_variance
        points = np.concatenate([index.points(self.used), X_star])
        with shown(progress, len(points)) as bar:
            self.field = make_field(points, kernel, params, n_jobs, bar, self._whole)
        self._points = np.ascontiguousarray(points[: len(self.used)])
        self._rows, self._queries = np.split(self.field.place, [len(self.used)])
        self._distinct = len(np.unique(self._rows)) == len(self._rows)
        self._kept: dict[int, tuple[NDArray, Array]] = {}

    def draws(self, n: int, rng: np.random.Generator, out: Array) -> None:
        """out (q, n): errors, in whitened units of y."""
        most = max(_COLUMNS, _FIELD // (8 * max(1, len(self.field))))
        for first in range(0, n, most):
            self._draw(rng, out[:, first : first + most])

    def _draw(self, rng: np.random.Generator, out: Array) -> None:
        """Row by row of the field, from independent numbers that are the same whatever n_jobs."""
        n = out.shape[1]
        scale = np.sqrt(self.params.kernel_variance)
        drawn = np.empty((len(self.field), n), np.float32)
        for first in range(0, n, _COLUMNS // 4):
            part = slice(first, min(n, first + _COLUMNS // 4))
            values = rng.standard_normal((len(self.field), part.stop - part.start))
            drawn[:, part] = self.field.run(values, self.n_jobs)
        noise = np.sqrt(self._ratio).astype(np.float32)
        observed = np.empty((len(self.used), n), np.float32)
        for first in range(0, len(observed), _QUERIES * 64):
            part = slice(first, first + _QUERIES * 64)
            observed[part] = drawn[self._rows[part]]
            observed[part] += noise[part] * rng.standard_normal(observed[part].shape, np.float32)

        def errors(part: slice) -> None:
            found = drawn[self._queries[part]].astype(np.float64)
            subtract_predictions(*self._predictions(part), observed, found)
            out[part] = scale * found

        for_each_block(errors, len(self.X), _QUERIES, self.n_jobs)

    def variances(self, sums: Array, groups: NDArray[np.int64], n_groups: int) -> Array:
        """Of the weighted sums of errors (weights `sums` (q,)) over each group (numbers (q,)): (n_groups,)."""
        found = np.empty(n_groups)
        order = np.flatnonzero(sums)
        order = order[np.argsort(groups[order], kind="stable")]
        ends = np.searchsorted(groups[order], np.arange(n_groups + 1))
        for first in range(0, n_groups, _COLUMNS):
            last = min(n_groups, first + _COLUMNS)
            members = order[ends[first] : ends[last]]
            asked = np.zeros((len(self.used), last - first))  # of each observation
            for begin in range(0, len(members), _QUERIES * 16):
                some = members[begin : begin + _QUERIES * 16]
                add_transposed(*self._predictions(some), sums[some], groups[some] - first, asked)
            values = np.zeros((len(self.field), last - first))
            np.add.at(values, (self._queries[members], groups[members] - first), sums[members])
            self._take_from_rows(values, asked)
            self.field.run_transposed(values, self.n_jobs)
            found[first:last] = (values**2).sum(axis=0) + (self._ratio * asked**2).sum(axis=0)
        return self.params.kernel_variance * found

    def covariances(self, numbers: NDArray[np.integer]) -> Array:
        """Of the errors of all queries with those of `numbers` (k,): (q, k)."""
        found = np.empty((len(self.X), len(numbers)))
        for first in range(0, len(numbers), _COLUMNS):
            some = numbers[first : first + _COLUMNS]
            columns = np.arange(len(some))
            asked, values = np.zeros((len(self.used), len(some))), np.zeros((len(self.field), len(some)))
            add_transposed(*self._predictions(some), np.ones(len(some)), columns, asked)
            values[self._queries[some], columns] = 1
            self._take_from_rows(values, asked)
            self.field.run(self.field.run_transposed(values, self.n_jobs), self.n_jobs)
            seen = np.ascontiguousarray(values[self._rows] - self._ratio * asked)

            def apply(part: slice, values=values, seen=seen, first=first, some=some) -> None:
                block = values[self._queries[part]]
                subtract_predictions(*self._predictions(part), seen, block)
                found[part, first : first + len(some)] = block

            for_each_block(apply, len(self.X), _QUERIES, self.n_jobs)
        return self.params.kernel_variance * found

    def _rows_used(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The rows (as the index numbers them) that any prediction uses, and the number of each among them."""
        n = len(self.index.order)
        used = np.zeros(n, bool)

        def mark(part: slice) -> None:
            used[self.index.query(self.X[part], self.m).indices] = True

        for_each_block(mark, len(self.X), _QUERIES, self.n_jobs)
        number = np.full(n, -1, np.int32)
        rows = np.flatnonzero(used)
        number[rows] = np.arange(len(rows))
        if getattr(self.index, "regions", None) is not None:  # shards that hold some rows of each other
            _, first, number[rows] = np.unique(self.index.order[rows], return_index=True, return_inverse=True)
            rows = rows[first]
        return rows, number

    def _take_from_rows(self, values: Array, asked: Array) -> None:
        """values (c, k) at the places of rows, less `asked` (n, k) of each row."""
        if self._distinct:
            values[self._rows] -= asked
        else:
            np.subtract.at(values, self._rows, asked)

    def _predictions(self, part: slice | NDArray) -> tuple[NDArray[np.int32], Array]:
        """Of each query: the rows (numbers among those used) that it is predicted from, and their weights (eq. 6)."""
        if isinstance(part, slice) and part.start in self._kept:
            return self._kept[part.start]
        X = self.X[part]
        numbers = self._number[self.index.query(X, self.m).indices]
        weights = self._weights(X, numbers)
        if isinstance(part, slice) and len(self.X) * self.m <= _KEPT:
            self._kept[part.start] = numbers, weights
        return numbers, weights

    def _weights(self, X: Array, numbers: NDArray) -> Array:
        if self._noise is not None:
            return local_weights(X, self._points[numbers], self.kernel, self.params, self._noise[numbers])
        ratio = self.params.noise_variance / self.params.kernel_variance
        return regression(X, self._points, numbers, self.kernel, self.params, ratio)[0]
