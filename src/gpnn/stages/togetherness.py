"""Do errors go together as much as the model says? Learned from sums over blocks of training rows that are hidden.

Variances are calibrated row by row; what the errors of neighbours have in common is the kernel's word alone. So blocks
of rows are put out of sight, some with all rows between them and some with a part of these, and predicted by the local
process from the others around. What all covariances within a block should be multiplied by, so that sums lie within
their intervals as often as these say, follows from how far they came out. It depends on how far the block is from data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from gpnn.common.types import Array
from gpnn.engines import Engine
from gpnn.stages.near import Near
from gpnn.stages.whitening import Whitener

FEWEST = 2000
"""Training rows; with fewer, blocks would overlap."""
_BLOCKS, _SIZES, _SPARED = 60, (10, 40, 120), (0, 4)  # blocks of each size; rows left in sight for each hidden
_AROUND, _MOST_AROUND = 4, 600  # times m, rows around a block
_BINS = 3
_FACTORS = np.geomspace(0.1, 10, 81)
_LEVELS = np.array([0.8, 0.9, 0.95])  # of intervals that sums should lie in
_DOUBT = 0.15  # what covariances hardly matter for leaves them as they are


@dataclass(frozen=True)
class Togetherness:
    knots: Array
    """Logarithms of the latent variance of a block's rows, on average, and there:"""
    factors: Array
    """what covariances are multiplied by."""

    def __call__(self, latent: Array) -> Array:
        """Of sums over rows whose latent variance averages `latent` (k,)."""
        return np.interp(np.log(latent), self.knots, self.factors)


_known: WeakKeyDictionary[Any, dict[tuple, Togetherness]] = WeakKeyDictionary()
"""By index, and by what else it depends on: learned once for a fit."""


def togetherness_of(near: Near, engine: Engine, make: Callable[[], Engine], rescale: float) -> Togetherness:
    """engine: holds the training rows. make: one without rows. rescale: what recalibration multiplies variances by."""
    params = near.params
    of = near.kernel.name, near.n_neighbors, near.floor, params.kernel_variance, params.noise_variance, rescale
    known = _known.setdefault(engine.index, {})
    if of not in known:
        known[of] = learn_togetherness(near, engine, make, rescale)
    return known[of]


def learn_togetherness(near: Near, engine: Engine, make: Callable[[], Engine], rescale: float) -> Togetherness:
    rng = np.random.default_rng(0)
    index, m, n = engine.index, near.n_neighbors, len(engine.y)
    here = replace(near, whitener=_as_they_are(index.points(np.zeros(1, int)).shape[1]))
    found: list[tuple[float, float, float, float]] = []
    for size, spared in product(_SIZES, _SPARED):
        within = size * (1 + spared)
        around = within + min(_AROUND * m, _MOST_AROUND)
        if 4 * around > n:
            continue
        centres = index.points(rng.choice(n, min(_BLOCKS, n // around), replace=False))
        patches = engine.neighbors(centres, around).indices
        hidden, block = _hide(patches[:, :within], size, rng)
        rest = np.setdiff1d(patches, hidden)
        if len(rest) <= m:
            continue
        small = make()
        rows = small.whiten(here.whitener, index.points(rest))
        small = small.build(rows, engine.y[rest], "auto", m, np.arange(min(len(rest), 500)), seed=0)
        X, y = index.points(hidden).astype(float), engine.y[hidden]
        law, claimed, *_ = here.law(small, X)
        found += _outcomes(here, small, X, y - law.mean, rescale * law.variance, claimed, block)
    return _fitted(np.array(found)) if found else Togetherness(np.zeros(1), np.ones(1))


def _hide(inner: NDArray[np.integer], size: int, rng) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of blocks, some of each of `inner` (b, k), and the number of the block of each; no row is in two."""
    chosen = [rng.choice(rows, size, replace=False) for rows in inner]
    hidden, first = np.unique(np.concatenate(chosen), return_index=True)
    return hidden, np.repeat(np.arange(len(inner)), size)[first]


def _outcomes(near: Near, engine: Engine, X: Array, errors: Array, variance: Array, claimed: Array, block: NDArray):
    """Of each block: the average latent variance, the squared error of its mean, and that mean's variance, if errors
    were independent and as the model says."""
    latent = np.maximum(claimed - near.params.noise_variance, 1e-12 * near.params.kernel_variance)
    share = latent / (latent + near.params.noise_variance)
    n_blocks = int(block.max()) + 1
    size = np.maximum(np.bincount(block, minlength=n_blocks), 1)

    def mean(values: Array) -> Array:
        return np.bincount(block, values, minlength=n_blocks) / size

    joint = engine.errors(engine.whiten(near.whitener, X), near.n_neighbors, near.kernel, near.params)
    sums = joint.variances(np.sqrt(share * variance / latent) / size[block], block, n_blocks)
    whole = sums + mean((1 - share) * variance) / size
    rows = zip(mean(latent), mean(errors) ** 2, mean(variance) / size, whole, strict=True)
    return [row for row, count in zip(rows, np.bincount(block, minlength=n_blocks), strict=True) if count > 1]


def _fitted(found: Array) -> Togetherness:
    latent, squared, naive, whole = found[np.argsort(found[:, 0])].T
    knots, factors = [], []
    for part in np.array_split(np.arange(len(latent)), _BINS):
        variance = naive[part] + _FACTORS[:, None] * (whole[part] - naive[part])
        z = np.sqrt(squared[part] / np.maximum(variance, 1e-300))
        off = np.abs(np.log(np.quantile(z, _LEVELS, axis=1) / ndtri(0.5 + _LEVELS / 2)[:, None])).mean(axis=0)
        knots.append(float(np.mean(np.log(latent[part]))))
        factors.append(float(_FACTORS[np.argmin(off + _DOUBT * np.abs(np.log(_FACTORS)))]))
    return Togetherness(np.array(knots), np.array(factors))


def _as_they_are(d: int) -> Whitener:
    return Whitener(np.zeros(d), np.ones(d), 0.0, 1.0)
