"""Three ways to the m nearest of n rows x ~ N(0, I/d) of each query (Alg. 1, A1–A2), all with the same law.

Each gives offsets x − x*, nearest first: kernels are stationary, so nothing else matters, and an offset keeps its
digits when n is so large that x and x* agree in most of theirs.
"""

from typing import Protocol

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray
from scipy.special import chndtrix, expit

from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Array
from gpnn.engines.cpu.neighbors import Flat, make_index
from gpnn.engines.cpu.neighbors.cells import Rows
from gpnn.engines.parallel import blocks, for_each_block, progress_bar

_BLOCK = 2**18  # rows generated at a time; the sample does not depend on n beyond its length
_QUERIES = 32
_IN_MEMORY = 2**32  # numbers: 16 GiB


class Sampler(Protocol):
    def __call__(
        self, n: int, X_star: Array, n_neighbors: int, seed: int, n_jobs: int | None, progress: str | None
    ) -> NDArray[np.float32]:
        """Offsets (q, m, d) of the n_neighbors nearest of n rows from each row of X_star (q, d)."""
        ...


def from_sample(n, X_star, n_neighbors, seed, n_jobs, progress):
    """n rows in memory, and an exact index over them."""
    d = X_star.shape[1]
    if n * d > _IN_MEMORY:
        raise InvalidInputError(
            f"sampler='sample' keeps all rows in memory: {n:,} × {d} numbers need {n * d * 4 / 2**30:,.0f} GiB. "
            "Use 'stream' for the same rows in little memory, or 'direct' for any n at once."
        )
    rows = Rows.allocate(n, d)
    for_each_block(lambda block: _fill(rows[block], seed, block.start // _BLOCK), n, _BLOCK, n_jobs, progress)
    index = make_index("exact", n, d, n_neighbors).build(rows, n_neighbors, X_star, n_jobs, progress=progress)
    offsets = np.empty((len(X_star), n_neighbors, d), np.float32)

    def search(part: slice) -> None:
        offsets[part] = index.points(index.query(X_star[part], n_neighbors).indices) - X_star[part, None]

    for_each_block(search, len(X_star), _QUERIES, n_jobs, progress)
    return offsets


def from_stream(n, X_star, n_neighbors, seed, n_jobs, progress):
    """The same rows, one block after another: those nearest so far are all that is kept."""
    queries, d = X_star.shape
    distances = np.full((queries, n_neighbors), np.inf, np.float32)
    offsets = np.zeros((queries, n_neighbors, d), np.float32)
    with progress_bar(n, progress) as bar:
        for number, block in enumerate(blocks(n, _BLOCK)):
            size = block.stop - block.start
            rows = Rows.allocate(size, d)
            _fill(rows, seed, number)
            m = min(n_neighbors, size)
            index = Flat().build(rows, m, X_star)

            def merge(part: slice, index=index, m=m) -> None:
                found = index.query(X_star[part], m)
                merged = np.concatenate([distances[part], found.distances], axis=1)
                nearest = np.argsort(merged, axis=1, kind="stable")[:, :n_neighbors]
                candidates = np.concatenate([offsets[part], index.points(found.indices) - X_star[part, None]], axis=1)
                distances[part] = np.take_along_axis(merged, nearest, axis=1)
                offsets[part] = np.take_along_axis(candidates, nearest[..., None], axis=1)

            for_each_block(merge, queries, _QUERIES, n_jobs)
            bar.update(size)
    return offsets


def _fill(rows: NDArray[np.float32], seed: int, block: int) -> None:
    rows[:] = default_rng([seed, block]).standard_normal((_BLOCK, rows.shape[1]), dtype=np.float32)[: len(rows)]
    rows /= np.float32(np.sqrt(rows.shape[1]))


def directly(n, X_star, n_neighbors, seed, n_jobs, progress):
    """No sample at all: distances from order statistics, then a direction for each. O(m·d) per query, for any n.

    docs/theory.md has the derivation.
    """
    queries, d = X_star.shape
    offsets = np.empty((queries, n_neighbors, d), np.float32)

    def one_block(part: slice) -> None:
        rng = default_rng([seed, part.start])
        distance_to_origin = np.linalg.norm(X_star[part], axis=1, keepdims=True)
        # The share of all rows that lie nearer than the k-th nearest: U_(k) of n uniforms, by Rényi's representation.
        exponentials = rng.standard_exponential((part.stop - part.start, n_neighbors))
        shares = -np.expm1(-np.cumsum(exponentials / (n - np.arange(n_neighbors)), axis=1))
        # d·r² is non-central χ² with d degrees of freedom and non-centrality d·|x*|².
        r = np.sqrt(chndtrix(shares, d, d * distance_to_origin**2) / d)
        towards_origin = np.where(distance_to_origin > 0, -X_star[part], 1.0)  # at the origin any direction will do
        towards_origin /= np.linalg.norm(towards_origin, axis=1, keepdims=True)
        offsets[part] = r[..., None] * von_mises_fisher(rng, towards_origin, d * r * distance_to_origin)

    for_each_block(one_block, queries, _QUERIES, n_jobs, progress)
    return offsets


def von_mises_fisher(rng: Generator, centre: Array, concentration: Array) -> Array:
    """Unit vectors (q, m, d) with density ∝ exp(κ·cos of the angle to the centre): centre (q, d), κ (q, m)."""
    d = centre.shape[1]
    if d == 1:
        towards = rng.random(concentration.shape) < expit(2 * concentration)
        return (np.where(towards, 1.0, -1.0) * centre)[..., None]
    cosine = _cosines(rng, concentration, d)[..., None]
    across = rng.standard_normal((*concentration.shape, d))
    across -= np.einsum("qmd,qd->qm", across, centre)[..., None] * centre[:, None]
    across /= np.linalg.norm(across, axis=-1, keepdims=True)
    return cosine * centre[:, None] + np.sqrt(1 - cosine**2) * across


def _cosines(rng: Generator, concentration: Array, d: int) -> Array:
    """w in (−1, 1) with density ∝ (1 − w²)^((d−3)/2)·exp(κw), by rejection (Wood 1994)."""
    kappa = concentration.ravel()
    b = (d - 1) / (2 * kappa + np.hypot(2 * kappa, d - 1))
    x = (1 - b) / (1 + b)
    peak = kappa * x + (d - 1) * np.log(4 * b / (1 + b) ** 2)  # the last factor is 1 − x²
    w = np.empty_like(kappa)
    todo = np.arange(len(kappa))
    while len(todo):
        z = rng.beta((d - 1) / 2, (d - 1) / 2, len(todo))
        candidate = (1 - (1 + b[todo]) * z) / (1 - (1 - b[todo]) * z)
        log_ratio = kappa[todo] * candidate + (d - 1) * np.log(1 - x[todo] * candidate) - peak[todo]
        accepted = log_ratio >= -rng.standard_exponential(len(todo))
        w[todo[accepted]] = candidate[accepted]
        todo = todo[~accepted]
    return w.reshape(concentration.shape)


SAMPLERS: dict[str, Sampler] = {"direct": directly, "sample": from_sample, "stream": from_stream}
