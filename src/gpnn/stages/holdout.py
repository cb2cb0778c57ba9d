"""Which rows stand in for future queries, to learn, choose and calibrate on, and which may then be their neighbours.

A random row left out of its own prediction looks like a query that lies as near to the data as the rows do to each
other. Where queries will lie in gaps, whole patches of rows must be left out instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpnn.common.errors import GPnnWarning, InvalidInputError
from gpnn.common.types import Array
from gpnn.engines import Engine, Whitening

Rows = NDArray[np.int64]

SIZE_JUDGES = 3000
"""Rows on which the number of neighbours is chosen."""
_PATCHES, _SHARE = 40, 0.1
_FEWEST = 50


@dataclass(frozen=True)
class Holdout:
    """Row numbers: `learn` and `judge` (disjoint, in random order) are predicted, from rows not in `hidden`."""

    learn: Rows
    judge: Rows
    hidden: Rows
    """Sorted; rows that no prediction on `learn` or `judge` may use. A row never predicts itself, hidden or not."""
    n_parts: int | None = None
    """How many parts of the table the judges are of, if queries will be of other parts."""


def hold_out(
    kind,
    X: Array,
    y: Array,
    most: int,
    return_rows: bool,
    whitening: Whitening | None,
    engine: Engine,
    rng: np.random.Generator,
    progress: str | None = None,
) -> Holdout:
    """kind: "random", "patches" (which need a whitening), or a splitter. most: rows to calibrate on, at most."""
    if kind == "patches":
        assert whitening is not None
        return patches(X, whitening, engine, rng, progress)
    if kind != "random":
        return from_splitter(kind, X, y, rng)
    if return_rows or most == 0:
        return leave_one_out(len(X), rng, max(most, SIZE_JUDGES))
    return set_aside(len(X), rng, min(most, len(X) // 4))


def leave_one_out(n: int, rng: np.random.Generator, n_judges: int) -> Holdout:
    """Random rows, each predicted from all the others: nothing is hidden.

    Judges take no part in learning, not even as neighbours: a metric is fitted to pairs of rows, and its errors on the
    pairs that it has seen are too small (on Bike, z² by a tenth).
    """
    order = rng.permutation(n)
    if n < _FEWEST:  # too few to part
        return Holdout(order, order[:n_judges], _none())
    few = min(n_judges, n // 4)
    return Holdout(learn=order[few:], judge=order[:few], hidden=_none())


def set_aside(n: int, rng: np.random.Generator, n_judges: int) -> Holdout:
    """The paper's way: random rows kept out of the training rows for good."""
    order = rng.permutation(n)
    return Holdout(learn=order[n_judges:], judge=order[:n_judges], hidden=np.sort(order[:n_judges]))


def patches(
    X: Array, whitening: Whitening, engine: Engine, rng: np.random.Generator, progress: str | None = None
) -> Holdout:
    """A tenth of the rows, as compact patches around random rows, near to each other after `whitening`.

    Half of the patches are learned from, the other half judged on.
    """
    n = len(X)
    size = max(1, round(_SHARE * n / _PATCHES))
    centres = rng.choice(n, min(_PATCHES, n), replace=False)
    rows = engine.whiten(whitening, X, progress=progress)
    chosen = rows[centres]
    built = engine.build(rows, np.zeros(n), "exact", size, np.zeros(0, np.int64), 0, progress)
    members = built.index.order[built.neighbors(chosen, size).indices].astype(np.int64)
    taken = np.zeros(n, dtype=bool)
    parts: tuple[list[Rows], list[Rows]] = ([], [])
    for number, patch in enumerate(members):
        fresh = patch[~taken[patch]]
        taken[fresh] = True
        parts[number % 2].append(fresh)
    learn, judge = (rng.permutation(np.concatenate([*part, _none()])) for part in parts)
    return Holdout(learn, judge, np.flatnonzero(taken), n_parts=len(parts[1]))


def from_splitter(splitter, X: Array, y: Array, rng: np.random.Generator) -> Holdout:
    """The first split of a scikit-learn splitter: its test rows are judged on, half of them learned from."""
    try:
        splits: Iterable = splitter.split(X, y)
        _, test = next(iter(splits))
    except (AttributeError, TypeError, StopIteration) as error:
        raise InvalidInputError(
            f"holdout = {splitter!r} must be 'random', 'patches', or a scikit-learn splitter whose split(X, y) gives "
            f"at least one (train, test) pair of row numbers: {error}"
        ) from error
    test = rng.permutation(np.asarray(test, dtype=np.int64))
    if not 2 <= len(test) < len(X) - 1:
        raise InvalidInputError(f"holdout: the splitter holds out {len(test)} of {len(X)} rows; that leaves too few.")
    return Holdout(learn=test[len(test) // 2 :], judge=test[: len(test) // 2], hidden=np.sort(test))


def warn_of_few_rows(n: int, sizes: dict) -> None:
    """sizes: what was asked for and what there is, by the name of the setting."""
    changes = [
        f"{name} {asked} → {used}"
        for name, (asked, used) in sizes.items()
        if not isinstance(asked, str) and used < asked
    ]
    if changes:
        warnings.warn(
            f"Only {n} rows, fewer than the settings are made for; used instead: {', '.join(changes)}. "
            "Uncertainties from so few rows are rough.",
            GPnnWarning,
            stacklevel=4,
        )


def _none() -> Rows:
    return np.zeros(0, np.int64)
