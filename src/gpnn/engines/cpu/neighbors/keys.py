"""Candidates as 64-bit keys: the bits of a squared distance (which sort as the numbers do) above the place of a row.
Sorting keys sorts by distance; rows that are equally far are then put in the order of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Array, Neighbors

NONE = np.uint64(2**64 - 1)  # the key of no row
DISTANCE, PLACE = np.uint64(32), np.uint64(2**32 - 1)  # of a key: by how much to shift, and what to mask


def everywhere(n_queries: int) -> NDArray[np.float32]:
    """No bounds."""
    return np.full(n_queries, np.inf, np.float32)


def smallest(keys: NDArray[np.uint64], n: int) -> NDArray[np.uint64]:
    """The n smallest of each line, sorted."""
    keys.partition(n - 1, axis=1)
    nearest = keys[:, :n]
    nearest.sort(axis=1)
    return nearest


def decoded(keys: NDArray[np.uint64], n_neighbors: int) -> Neighbors:
    """What sorted keys say."""
    if keys.shape[1] < n_neighbors or (keys.size and keys[:, -1].max() == NONE):
        raise InvalidInputError(f"The index holds, or looked at, fewer than {n_neighbors} rows. Ask for fewer.")
    return Neighbors((keys & PLACE).astype(np.int64), np.sqrt(squared_of(keys)))


def squared_of(keys: NDArray[np.uint64]) -> NDArray[np.float32]:
    return (keys >> DISTANCE).astype(np.uint32).view(np.float32)


def bits_of(squared: NDArray[np.float32]) -> NDArray[np.uint32]:
    return squared.view(np.uint32)


def just_above(squared: NDArray[np.float32]) -> NDArray[np.float32]:
    """A bound that lets rows in which are exactly so far."""
    return np.nextafter(squared, np.float32(np.inf))


Tied = Callable[[Array, NDArray[np.float32], int], NDArray[np.uint64]]
"""`StoredIndex.tied`."""


def in_table_order(keys: NDArray[np.uint64], n_neighbors: int, X: Array, order: Any, tied: Tied | None) -> Neighbors:
    """The nearest rows, of those that are equally far the ones that come first in the table. So answers do not depend
    on the order in which an index keeps rows, nor on how many indexes share them.

    keys: all rows nearer than the farthest of them. order: numbers in the table by place. tied: None where the search
    is approximate anyway.
    """
    if keys.shape[1] <= n_neighbors:
        keys = np.pad(keys, [(0, 0), (0, n_neighbors + 1 - keys.shape[1])], constant_values=NONE)
    keys.partition(n_neighbors, axis=1)
    nearest, next_one = keys[:, :n_neighbors], keys[:, n_neighbors]
    nearest.sort(axis=1)
    found = decoded(nearest, n_neighbors)
    equal = _as_far(nearest[:, 1:], nearest[:, :-1])
    more = _as_far(nearest[:, -1], next_one) | (next_one == NONE)  # none: not kept, or not there
    if not equal.any() and not more.any():
        return found
    some = np.flatnonzero(equal.any(axis=1))
    nearest[some] = _by_number(nearest[some], order)
    if tied is not None and len(order) > n_neighbors and more.any():
        _choose_last(nearest, np.flatnonzero(more), X, tied)
    return decoded(nearest, n_neighbors)


def _as_far(keys: NDArray[np.uint64], others: NDArray[np.uint64]) -> NDArray[np.bool_]:
    return (keys ^ others) <= PLACE


def _by_number(keys: NDArray[np.uint64], order: Any) -> NDArray[np.uint64]:
    """Sorted keys (q, m) with ties in the order of the table."""
    numbers = order[(keys & PLACE).astype(np.int64)].astype(np.uint64)
    return np.take_along_axis(keys, np.argsort(keys & ~PLACE | numbers, axis=1), axis=1)


def _choose_last(nearest: NDArray[np.uint64], some: NDArray, X: Array, tied: Tied) -> None:
    """Of `some` queries: rows as far as the last of their nearest, of which there may be more than were found."""
    last = _as_far(nearest[some], nearest[some, -1:])
    first = last.argmax(axis=1)
    found = tied(X[some], squared_of(nearest[some, -1]), nearest.shape[1] - int(first.min()))
    row, column = np.nonzero(last)
    nearest[some[row], column] = nearest[some[row], column] & ~PLACE | found[row, column - first[row]] & PLACE
