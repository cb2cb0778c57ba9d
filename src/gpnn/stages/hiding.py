"""Queries that are not like random rows, imitated: which rows a probe may not be predicted from.

A random row, left out of its own prediction alone, stands for a query that lies as near to the data as the rows do to
each other. The next patient, the next month or a place between the flight lines does not. Here parts of the table are
out of sight: what lies around the probe in one of the columns (`Slabs`), is of its group (`Groups`), or comes after it
(`Times`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Array
from gpnn.engines.parallel import blocks
from gpnn.stages.holdout import Rows

Mask = Callable[[slice], NDArray[np.bool_]]
"""Of some of the probes: which of the rows they do not see (q, n), in an array of its own."""

FOLDS = 4
_JUDGED = 0.2  # of the rows, in each fold
_WIDEST, _WIDEST_JUDGED = 0.5, 0.05  # slabs, as shares of the rows
_NARROWEST_JUDGED = 0.005
_PROBED = 200  # rows whose neighbours tell which columns matter
_NEAR = 32  # the neighbour whose distance says which columns keep rows apart
_ORIGINS = np.array([0.5, 0.6, 0.7, 0.8])  # times to predict from, as shares of the rows
_STRETCHES = 5  # of the time that is judged from each of them
_TRIES = 1000
_SEARCHED = 64  # probes whose neighbours are looked for at a time


@dataclass(frozen=True)
class Fold:
    """Numbers of rows: those that a member never sees, and those of them that judge it, in random order."""

    hidden: Rows
    judge: Rows
    part: Rows
    """Of each judge, the part of the table that was hidden with it: errors in one part have a cause in common."""


class Hiding(Protocol):
    """Of a sample's rows, by their numbers in it."""

    @property
    def everywhere(self) -> bool:
        """Whether all queries will be like that, not only those that lie beyond the training rows."""
        ...

    def folds(self, rng: np.random.Generator) -> list[Fold]: ...

    def mask(self, probes: Rows, seen: Rows, rng: np.random.Generator) -> Mask:
        """What each of the probes does not see of the rows `seen`. Where next to nothing were left, it sees all."""
        ...

    def mask_of_judges(self, judges: Rows, seen: Rows, rng: np.random.Generator) -> Mask: ...


@dataclass(frozen=True)
class Slabs:
    """All rows whose value in one column is close to the probe's, equal ones among them.

    In most tables that is how the future differs: a date, an age or a place that no row has, while the other columns
    have known values. Columns are drawn by how far they keep rows apart in the metric of `near` (n, d).
    """

    near: Array

    everywhere = False

    def folds(self, rng: np.random.Generator) -> list[Fold]:
        return [self._fold(rng) for _ in range(FOLDS)]

    def _fold(self, rng: np.random.Generator) -> Fold:
        n = len(self.near)
        part = np.full(n, -1)
        every = np.arange(n)
        for number in range(_TRIES):
            if np.mean(part >= 0) > _JUDGED:
                break
            slab = self._slabs(rng.integers(n, size=1), every, _NARROWEST_JUDGED, _WIDEST_JUDGED, rng)
            fresh = slab(slice(0, 1))[0] & (part < 0)
            if np.mean(fresh | (part >= 0)) < 1.5 * _JUDGED:
                part[fresh] = number
        else:  # columns of few values only: a slab would be half of the table
            part[rng.choice(n, int(_JUDGED * n) + 1, replace=False)] = _TRIES
        return _fold(part, rng)

    def mask(self, probes: Rows, seen: Rows, rng: np.random.Generator) -> Mask:
        return self._slabs(probes, seen, 1 / len(seen), _WIDEST, rng)

    def mask_of_judges(self, judges: Rows, seen: Rows, rng: np.random.Generator) -> Mask:
        """The judges' own slabs are out of sight already; for half of them, another one is."""
        slabs, half = self.mask(judges, seen, rng), rng.random(len(judges)) < 0.5

        def mask(part: slice) -> NDArray[np.bool_]:
            hidden = slabs(part)
            hidden[~half[part]] = False
            return hidden

        return mask

    @cached_property
    def _relevance(self) -> Array:
        """The chance of each column to be drawn."""
        rank = min(_NEAR, len(self.near) - 1)
        squared = np.partition(squared_distances(self.near[:_PROBED], self.near), rank, axis=1)[:, rank]
        reach = float(np.sqrt(np.median(squared)))
        relevance = np.minimum(1.0, self.near.std(axis=0) / max(reach, 1e-30)) + 1e-9
        return relevance / relevance.sum()

    def _slabs(self, probes: Rows, seen: Rows, narrowest: float, widest: float, rng) -> Mask:
        n, q = len(seen), len(probes)
        columns = rng.choice(self.near.shape[1], q, p=self._relevance)
        half = (0.5 * n * np.exp(rng.uniform(np.log(narrowest), np.log(widest), q))).astype(int)
        low, high = np.empty((2, q), self.near.dtype)
        for column in np.unique(columns):
            of = np.flatnonzero(columns == column)
            values = np.sort(self.near[seen, column])
            place = np.searchsorted(values, self.near[probes[of], column])
            low[of] = values[np.clip(place - half[of], 0, n - 1)]
            high[of] = values[np.clip(place + half[of], 0, n - 1)]

        own = self.near[probes, columns]
        low, high = np.minimum(low, own)[:, None], np.maximum(high, own)[:, None]
        drawn, place = np.unique(columns, return_inverse=True)
        by_column = np.ascontiguousarray(self.near[np.ix_(seen, drawn)].T)

        def mask(part: slice) -> NDArray[np.bool_]:
            values = by_column[place[part]]
            return _something_left((values >= low[part]) & (values <= high[part]))

        return mask


@dataclass(frozen=True)
class Groups:
    """All rows of the probe's own group: queries will be of groups that no training row has."""

    labels: NDArray[np.int64]

    everywhere = True

    def of(self, rows: Rows) -> Groups:
        return Groups(self.labels[rows])

    def folds(self, rng: np.random.Generator) -> list[Fold]:
        groups = rng.permutation(np.unique(self.labels))
        parts = [np.where(np.isin(self.labels, groups[fold::FOLDS]), self.labels, -1) for fold in range(FOLDS)]
        return [_fold(part, rng) for part in parts if (part >= 0).any()]

    def mask(self, probes: Rows, seen: Rows, rng: np.random.Generator) -> Mask:
        return lambda part: _something_left(self.labels[probes[part], None] == self.labels[None, seen])

    mask_of_judges = mask


@dataclass(frozen=True)
class Times:
    """All rows after the probe, and some just before it: queries will come after the training rows.

    Of a row with hardly any past, its past is hidden instead: the metric does not care which way time runs.
    """

    times: Array

    everywhere = True

    def of(self, rows: Rows) -> Times:
        return Times(self.times[rows])

    def folds(self, rng: np.random.Generator) -> list[Fold]:
        found = []
        for origin in _ORIGINS:
            edges = np.quantile(self.times, origin + _JUDGED * np.linspace(0, 1, _STRETCHES + 1))
            part = np.searchsorted(edges, self.times, side="left") - 1
            later = np.flatnonzero(part >= 0)
            fold = _fold(np.where(part < _STRETCHES, part, -1), rng)
            found.append(replace(fold, hidden=later))
        return [fold for fold in found if len(fold.judge)]

    def mask(self, probes: Rows, seen: Rows, rng: np.random.Generator) -> Mask:
        values = np.sort(self.times[seen])
        n, place = len(seen), np.searchsorted(values, self.times[probes])
        ahead = (n * _JUDGED * rng.random(len(probes))).astype(int)
        past = place - ahead > n // 4
        edge = values[np.clip(np.where(past, place - ahead, place + ahead), 0, n - 1)]

        def mask(part: slice) -> NDArray[np.bool_]:
            times, own = self.times[None, seen], self.times[probes[part], None]
            later = times >= np.minimum(edge[part, None], own)
            earlier = times <= np.maximum(edge[part, None], own)
            return _something_left(np.where(past[part, None], later, earlier))

        return mask

    def mask_of_judges(self, judges: Rows, seen: Rows, rng: np.random.Generator) -> Mask:
        return lambda part: np.zeros((part.stop - part.start, len(seen)), dtype=bool)


def can_be_told(model) -> bool:
    """Whether a regressor's `fit` takes groups and times: not if it is said already how to hold out, or nothing is
    learned."""
    return model.params is None and model.refine and model.holdout == "random"


def check_queries_to_come(model, n: int, groups, times) -> Groups | Times | None:
    """What `fit` was told of the queries to come: labels or times (n,) of its rows, or nothing."""
    given = {name: value for name, value in (("groups", groups), ("times", times)) if value is not None}
    if not given:
        return None
    if len(given) == 2:
        raise InvalidInputError("Give groups or times, not both: are queries to come of new groups, or of later times?")
    ((name, values),) = given.items()
    if not can_be_told(model):
        raise InvalidInputError(
            f"{name} says how to hold out, choose and learn. That needs refine=True, params=None and "
            "holdout='random'; a splitter as holdout (such as sklearn's GroupKFold) is the other way to say it."
        )
    values = np.asarray(values)
    if values.shape != (n,):
        raise InvalidInputError(f"{name} has the shape {values.shape}; give one value for each of the {n} rows.")
    missing = np.array([value is None or value != value for value in values])  # NaN, NaT and NA differ from themselves
    if missing.any():
        raise InvalidInputError(
            f"{name} is missing in {missing.sum()} of {n} rows, first in row {np.argmax(missing)}. Fill or drop them."
        )
    distinct, labels = np.unique(values, return_inverse=True)
    if len(distinct) < FOLDS:
        raise InvalidInputError(
            f"{name} has {len(distinct)} distinct values; at least {FOLDS} are needed to learn from some how others "
            "turn out. Check that it is the right column."
        )
    if name == "groups":
        return Groups(labels.astype(np.int64))
    if values.dtype.kind in "mM":
        values = values.astype("int64")
    elif values.dtype.kind not in "iufb":
        raise InvalidInputError(
            f"times are {values.dtype}, which has no order in time. Give numbers or dates (pandas.to_datetime)."
        )
    return Times(values.astype(float))


def _fold(part: Rows, rng: np.random.Generator) -> Fold:
    """Of the part that each row belongs to, −1 for none."""
    hidden = np.flatnonzero(part >= 0)
    judge = rng.permutation(hidden)
    return Fold(hidden, judge, part[judge])


def _something_left(hidden: NDArray[np.bool_]) -> NDArray[np.bool_]:
    too_many = np.count_nonzero(hidden, axis=1) >= (1 - 0.5 * _WIDEST) * hidden.shape[1]
    hidden[too_many] = False
    return hidden


def nearest_seen(rows: Array, X: Array, own: Rows, n_neighbors: int, mask: Mask) -> Rows:
    """Numbers (q, m) of the rows nearest to each of X (q, d), but for `own` (−1: none) and what the mask hides."""
    from gpnn.engines.compiled.rows import smallest_shown  # numba comes with it: not before it is needed

    found = np.empty((len(X), n_neighbors), np.int64)
    squares = (rows**2).sum(axis=1)
    for part in blocks(len(X), _SEARCHED):
        hidden, mine = mask(part), np.flatnonzero(own[part] >= 0)
        hidden[mine, own[part][mine]] = True
        smallest_shown(squared_distances(X[part], rows, squares), hidden, found[part])
    return found


def squared_distances(A: Array, B: Array, squares: Array | None = None) -> Array:
    """(q, n), about as exact as the numbers are: good enough to rank rows by. squares (n,): of the rows of B."""
    found = (A**2).sum(axis=1)[:, None] + ((B**2).sum(axis=1) if squares is None else squares)
    found -= 2 * A @ B.T
    return np.maximum(found, 0, out=found)
