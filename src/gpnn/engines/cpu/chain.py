"""Making fields: an order of points, the nearest before each, and the weights of these links."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpnn.common.kernels import Kernel
from gpnn.common.types import Array, Hyperparameters
from gpnn.engines.chain import Chain, Whole
from gpnn.engines.compiled import aligned
from gpnn.engines.compiled.chain import coarse_to_fine, regress
from gpnn.engines.compiled.covariance import as_compiled
from gpnn.engines.compiled.vectors import LANES
from gpnn.engines.cpu.neighbors import KDTree, automatic_index
from gpnn.engines.cpu.neighbors.cells import Rows
from gpnn.engines.local import JITTERS
from gpnn.engines.parallel import for_each_block, one_blas_thread

WHOLE = 2048
"""Points up to which a field needs no chain."""
_LINKS = {1: 24, 2: 48, 3: 96}
_MOST_LINKS = 160
"""Points before it that each point follows from, by the number of columns: enough for variances of errors within half a
per cent in two, within a few in eight (`benchmarks/joint.py`)."""
_SEARCHED = 3  # times as many as are wanted, of which two thirds may come later in the order
_GROWTH = 2  # of the part of the order that an index is built for
_POINTS = 256  # that a thread works on at a time


def make_field(
    points: NDArray[np.float32],
    kernel: Kernel,
    params: Hyperparameters,
    n_jobs: int | None,
    progress=None,
    whole: int = WHOLE,
) -> Chain | Whole:
    """The field of this kernel at points (p, d); without a chain where there are no more than `whole` of them."""
    if len(points) == 0:
        return Whole(np.zeros(0, np.int64), np.zeros((0, 0)))
    numbers, place = _order(points, n_jobs)
    points = np.ascontiguousarray(points[numbers])
    if len(points) <= whole:
        return Whole(place, _whole_factor(points, kernel, params))
    before = _nearest_before(points, _LINKS.get(points.shape[1], _MOST_LINKS), n_jobs)
    weights, rest = np.empty(before.shape, np.float32), np.empty(len(points))

    def link(part: slice) -> None:
        weights[part], left, _ = regression(points[part], points, before[part], kernel, params, 0.0)
        rest[part] = np.sqrt(left)

    for_each_block(link, len(points), _POINTS, n_jobs, progress)
    return Chain(place, before, weights, rest)


def _whole_factor(points: Array, kernel: Kernel, params: Hyperparameters) -> Array:
    correlation = kernel.correlations(points, points, params)
    for jitter in JITTERS[1:]:  # without any, the pivots of smooth kernels would be rounding noise
        try:
            with one_blas_thread():
                return np.linalg.cholesky(correlation + jitter * np.eye(len(points)))
        except np.linalg.LinAlgError:
            continue
    raise np.linalg.LinAlgError("the covariance matrix is not positive definite, even with jitter")


def _order(X: NDArray[np.float32], n_jobs: int | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of points X (p, d): which of them is at each place (c,), and the place of each (p,); the same ones share one."""
    bytes_of_rows = np.ascontiguousarray(X + np.float32(0)).view(f"V{4 * X.shape[1]}")[:, 0]  # without −0
    _, first, same = np.unique(bytes_of_rows, return_index=True, return_inverse=True)
    distinct = Rows.allocate(len(first), X.shape[1])
    distinct[:] = X[first]
    near_each_other = KDTree().build(distinct, 1, distinct[:1], n_jobs).order.astype(np.int64)  # they share caches
    order = coarse_to_fine(X[first], near_each_other)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return first[order], place[same]


def _nearest_before(X: NDArray[np.float32], n_before: int, n_jobs: int | None) -> NDArray[np.int32]:
    """The nearest points of X (c, d) before each, nearest first, (c, n_before); −1 where there are no more."""
    c, before = len(X), np.full((len(X), n_before), -1, np.int32)
    done, end = 0, min(c, 4 * n_before)
    while done < c:
        rows = Rows.allocate(end, X.shape[1])
        rows[:] = X[:end]
        wanted = end if done == 0 else _SEARCHED * n_before + 1
        index = automatic_index(end, X.shape[1], wanted).build(rows, wanted, X[:end][:: max(1, end // 500)], n_jobs)

        def search(part: slice, done=done, wanted=wanted, index=index) -> None:
            at = np.arange(done + part.start, done + part.stop)
            found = index.order[index.query(X[at], wanted).indices]
            later = found >= at[:, None]
            ranked = np.argsort(later, axis=1, kind="stable")[:, :n_before]
            before[at, : ranked.shape[1]] = np.take_along_axis(np.where(later, -1, found), ranked, axis=1)

        for_each_block(search, end - done, _POINTS, n_jobs)
        done, end = end, min(c, _GROWTH * end)
    return before


def regression(
    X: Array, points: Array, numbers: NDArray, kernel: Kernel, params: Hyperparameters, noise: float
) -> tuple[Array, Array, float]:
    """Weights (b, k) with which values at points[numbers] predict that at each of X (b, d), the variance left (b,), and
    the largest jitter. noise: that of the values, relative to σ_f²."""
    (b, k), d = numbers.shape, X.shape[1]
    weights, rest = np.zeros((b, k)), np.full(b, np.nan)
    lanes = LANES[np.dtype(np.float64)]
    padded = -(-k // lanes) * lanes
    A, z = aligned((padded + lanes) * padded, np.float64), aligned(padded * d, np.float64)
    inverse = np.broadcast_to(1 / np.asarray(params.lengthscale, dtype=float), d).copy()
    for jitter in JITTERS:
        regress(
            as_compiled(kernel, params, d), X, points, numbers, inverse, 1 + noise + jitter, np.isnan(rest), A, z,
            weights, rest,
        )  # fmt: skip
        if not np.isnan(rest).any():
            return weights, rest, float(jitter)
    raise np.linalg.LinAlgError("a local covariance matrix is not positive definite, even with jitter")
