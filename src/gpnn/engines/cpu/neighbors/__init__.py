"""Seam 1: how the m nearest training rows are found.

An index is built once from whitened rows and asked often. It keeps its own copy of the rows, in its own order (near
rows near each other), and numbers them in that order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Array, Neighbors
from gpnn.engines.cpu.neighbors.flat import Flat
from gpnn.engines.cpu.neighbors.ivf import IVF
from gpnn.engines.cpu.neighbors.kdtree import KDTree
from gpnn.engines.index import NeighborIndex

__all__ = ["IVF", "Flat", "KDTree", "NeighborIndex", "automatic_index", "make_index", "nearest_others", "recall"]

_KDTREE_UP_TO = 10  # columns; beyond, boxes overlap the search ball almost everywhere
_FLAT_UP_TO = 25_000  # rows; below, comparing all of them takes less than building cells


def make_index(name: str | NeighborIndex, n: int, d: int, n_neighbors: int) -> NeighborIndex:
    """The index to build for n rows of d columns; an object that is one already is returned as it is."""
    if not isinstance(name, str):
        return name
    if name == "auto":
        return automatic_index(n, d, n_neighbors)
    by_name: dict[str, NeighborIndex] = {"exact": _exact(d), "kdtree": KDTree(), "flat": Flat(), "ivf": IVF()}
    if name not in by_name:
        raise InvalidInputError(
            f"index = {name!r} is unknown. Choose one of: auto, {', '.join(by_name)}, or give an object such as "
            "gpnn.neighbors.IVF(recall=0.999)."
        )
    return by_name[name]


def automatic_index(n: int, d: int, n_neighbors: int) -> KDTree | Flat | IVF:
    """The one that is quickest for these sizes."""
    small = n <= max(_FLAT_UP_TO, 4 * n_neighbors)
    return _exact(d) if small or d <= _KDTREE_UP_TO else IVF()


def _exact(d: int) -> KDTree | Flat:
    return KDTree() if d <= _KDTREE_UP_TO else Flat()


def recall(found: Neighbors, true: Neighbors) -> float:
    """The share of the true neighbours that were found; rows as near as the farthest true one count as true."""
    farthest = true.distances[:, -1:] * (1 + 1e-6)
    return float(np.mean(found.distances <= farthest))


def nearest_others(index: NeighborIndex, X: Array, own: NDArray[np.integer], n_neighbors: int) -> NDArray[np.integer]:
    """The rows nearest to each of X, numbered as in the index, but never row own[i] of what it was built from.

    Where own[i] is no such row (say −1), nothing is left out.
    """
    found = index.query(X, min(n_neighbors + 1, len(index.order))).indices
    drop = index.order[found] == np.asarray(own)[:, None]
    drop[~drop.any(axis=1), -1] = True  # not among them: the farthest is one too many
    return found[~drop].reshape(len(found), found.shape[1] - 1)
