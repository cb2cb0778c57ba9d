"""From a table to rows that can be learned from or judged on: encoded, those without a target left out or refused."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpnn.common.errors import GPnnWarning, InvalidInputError, listed
from gpnn.common.types import Array
from gpnn.tables.columns import numbers
from gpnn.tables.encoder import TableEncoder, missing_message
from gpnn.tables.reading import Table
from gpnn.tables.to_come import Group, Time, Watch

CURE = "ask for --impute (median or most frequent level) or --drop-missing (missing='impute' or 'drop' in Python)"
_PART = 2**18  # rows of a test table that are held at a time


@dataclass(frozen=True)
class Rows:
    X: Array
    """Encoded; NaN where "impute" has work to do."""
    y: Array
    """(n,), or (n, k) of several targets, NaN where one is missing."""
    labels: Array
    """Groups or times (n,), if they were asked for; zeros if not."""
    beside: Array
    """Columns of noise or weights (k, n)."""


@dataclass(frozen=True)
class Whole:
    """All rows of a table."""

    X: Array
    y: Array
    labels: Array
    unknown: Counter
    beside: dict[str, Array]


def usable_rows(
    table: Table,
    encoder: TableEncoder,
    targets: Sequence[str],
    missing: str,
    to_come: Group | Time | None = None,
    watch: Watch | None = None,
    beside: Sequence[str] = (),
    unknown: Counter | None = None,
) -> Iterator[Rows]:
    """Batch by batch. A row without any target, without group or time is left out, or an error in the end."""
    more = [*([] if to_come is None else [to_come.name]), *([] if watch is None else watch.columns), *beside]
    unknown = Counter() if unknown is None else unknown
    lacking: Counter = Counter()
    seen = incomplete = 0
    for batch in table.batches(list(dict.fromkeys([*encoder.inputs, *targets, *more]))):
        X = encoder.encode(batch, unknown)
        y = np.stack([numbers(batch.column(name), name) for name in targets], axis=1)
        untold = np.isnan(y).all(axis=1)
        y = y if len(targets) > 1 else y[:, 0]
        labels = np.zeros(len(y)) if to_come is None else to_come.read(batch.column(to_come.name))
        if watch is not None:
            watch.look(batch)
        absent = encoder.missing_by_column(X) if missing != "impute" else {}
        others = [(name, numbers(batch.column(name), name)) for name in beside]
        without = [(" and ".join(targets), untold), (to_come.name if to_come else "", np.isnan(labels))]
        for name, gone in (*without, *((name, np.isnan(values)) for name, values in others)):
            if gone.any():
                absent[name] = int(gone.sum())
        lacking.update(absent)
        unusable, without_input = untold | np.isnan(labels), np.isnan(X).any(axis=1)
        for _, values in others:
            unusable |= np.isnan(values)
        wanted = ~unusable if missing == "impute" else ~(unusable | without_input)
        seen, incomplete = seen + len(wanted), incomplete + int((~wanted).sum())
        kept = np.array([values[wanted] for _, values in others]).reshape(len(beside), int(wanted.sum()))
        yield Rows(X, y, labels, kept) if wanted.all() else Rows(X[wanted], y[wanted], labels[wanted], kept)
    if lacking and missing == "error":
        raise InvalidInputError(f"{table.name}: " + missing_message(lacking, incomplete, CURE))
    warn_of_dropped(incomplete, seen, f"were left out: a value is missing in {listed(list(lacking))}")


def read_rows(
    table: Table,
    encoder: TableEncoder,
    targets: Sequence[str],
    missing: str,
    n_rows: int | None,
    to_come: Group | Time | None = None,
    watch: Watch | None = None,
    beside: Sequence[str] = (),
) -> Whole:
    """All of them, in arrays made once if the number is known."""
    X, labels = np.empty((n_rows or 0, len(encoder.outputs))), np.empty(n_rows or 0)
    y = np.empty((n_rows or 0, len(targets)) if len(targets) > 1 else n_rows or 0)
    read_beside: list[Array] = []
    unknown: Counter = Counter()
    done = 0
    for rows in usable_rows(table, encoder, targets, missing, to_come, watch, beside, unknown):
        end = done + len(rows.y)
        if end > len(y):
            X, y, labels = (np.resize(of, (2 * end, *of.shape[1:])) for of in (X, y, labels))
        X[done:end], y[done:end], labels[done:end] = rows.X, rows.y, rows.labels
        read_beside.append(rows.beside)
        done = end
    columns = np.concatenate([np.empty((len(beside), 0)), *read_beside], axis=1)
    return Whole(X[:done], y[:done], labels[:done], unknown, dict(zip(beside, columns, strict=True)))


def larger_parts(batches: Iterable[Rows], size: int = _PART) -> Iterator[Rows]:
    """The same rows in larger parts."""
    held: list[Rows] = []
    for rows in batches:
        held.append(rows)
        if sum(len(one.y) for one in held) >= size:
            yield _joined(held)
            held = []
    if any(len(one.y) for one in held):
        yield _joined(held)


def _joined(parts: list[Rows]) -> Rows:
    X, y, labels = (np.concatenate([getattr(part, name) for part in parts]) for name in ("X", "y", "labels"))
    return Rows(X, y, labels, np.concatenate([part.beside for part in parts], axis=1))


def in_common(Y: Array) -> Array:
    """What levels with many rows are told apart by, where targets are several: the mean of those that are known, each
    with mean 0 and variance 1."""
    spread = np.nanstd(Y, axis=0)
    return np.nanmean((Y - np.nanmean(Y, axis=0)) / np.where(spread > 0, spread, 1.0), axis=1)


def warn_of_dropped(dropped: int, n_rows: int, what: str) -> None:
    if dropped:
        warnings.warn(f"{dropped:,} of {n_rows:,} rows {what}.", GPnnWarning, stacklevel=3)
