"""What rows to come will be like: of groups that no training row has, or later. Which column says so, and which look
as if they might."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpnn.common.errors import GPnnWarning, InvalidInputError
from gpnn.common.types import Array
from gpnn.stages.hiding import FOLDS
from gpnn.tables import columns as rules
from gpnn.tables.columns import Date
from gpnn.tables.encoder import TableEncoder, read_types
from gpnn.tables.reading import Table

_LABEL = re.compile(
    r"(subject|patient|participant|person|customer|client|user|household|store|shop|site|device|sensor|station|group)s?"
    r"|(.*[\W_])?id",
    re.IGNORECASE,
)
_CAMEL_LABEL = re.compile(r".*[a-z]I[dD]")
_TIME = re.compile(r"date|date[\W_]?time|time[\W_]?stamp|time", re.IGNORECASE)
_BIRTH = re.compile(r"birth|born|(^|[\W_])dob($|[\W_])", re.IGNORECASE)  # of a person, not of the row
_LOOKED_AT = 65_536  # rows: enough to see whether values repeat
_REPEATED = 0.9  # distinct values per row; above, a label names rows
_TRIED = 100  # texts, for what they mean
_NAMED = 3


@dataclass(frozen=True)
class Group:
    """A column of labels, of any type that can be written: rows to come have other ones."""

    name: str
    numbers: dict[str, int] = field(default_factory=dict)
    argument = "groups"

    def read(self, values: pa.Array) -> Array:
        """A number for each label (n,), NaN where there is none."""
        if pa.types.is_floating(values.type):
            values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
        labels = rules.texts(values, self.name)
        known = [self.numbers.setdefault(text, len(self.numbers)) for text in labels.dictionary.to_pylist()]
        return np.array([*known, np.nan])[labels.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)]


@dataclass(frozen=True)
class Time:
    """A column of numbers or dates: those of rows to come are later."""

    name: str
    is_date: bool
    argument = "times"

    def read(self, values: pa.Array) -> Array:
        """(n,), dates as days, NaN where there is none."""
        return rules.days(values, self.name) if self.is_date else rules.numbers(values, self.name)


def said(
    table: Table, targets: Sequence[str], features: list[str] | None, group: str | None, time: str | None
) -> Group | Time | None:
    """The column that was named as the group or the time of rows, once it is one."""
    if group is not None and time is not None:
        raise InvalidInputError(
            "Say group or time, not both: will rows to come be of new groups, or later? If of both, say group, and "
            "keep the time among the inputs."
        )
    for option, name in {"group": group, "time": time}.items():
        if name is None:
            continue
        table.require([name], f"It was named as the {option} of rows (--{option}).")
        if name in targets:
            raise InvalidInputError(f"{name!r} is the target; it cannot be the {option} of rows too. Name another one.")
    if group is not None:
        if group in (features or ()):
            raise InvalidInputError(
                f"{group!r} cannot be a feature: as the group of rows, it has values that no row to come will have. "
                "Leave it out of the features."
            )
        return Group(group)
    return None if time is None else Time(time, _is_date(table, time))


def _is_date(table: Table, name: str) -> bool:
    kind = read_types(table, [name])[0][name]
    if pa.types.is_null(kind):
        raise InvalidInputError(f"No row has a value in {name!r}, which was to say when rows are from. Name another.")
    if pa.types.is_time(kind):
        raise InvalidInputError(
            f"Column {name!r} is a time of day, which begins again every day: it does not say which rows are later. "
            "Name a column of dates or of numbers that grow."
        )
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        return True
    if rules.is_number(kind) or pa.types.is_duration(kind):
        return False
    raise InvalidInputError(
        f"Column {name!r} ({kind}) holds neither numbers nor dates such as 2024-01-31 or 2024-01-31T12:00, so that it "
        "does not say which rows are later. Check that it is the right column, or write it so."
    )


class Watch:
    """Columns that by their names or types may be labels of groups, or times, and what is seen of them on the way."""

    def __init__(self, table: Table, encoder: TableEncoder, targets: Sequence[str]):
        dates = {column.name for column in encoder.columns_ if isinstance(column, Date) and "days" in column.parts}
        dates |= {name for name, kind in table.types.items() if pa.types.is_date(kind) or pa.types.is_timestamp(kind)}
        dates = {name for name in dates if not _BIRTH.search(name)}
        others = {name: kind for name, kind in table.types.items() if name not in (*targets, *dates)}
        self._labels = [name for name, kind in others.items() if _is_named_as_label(name) and _may_be_label(kind)]
        self._times = [name for name in table.types if name in dates or (name in others and _TIME.fullmatch(name))]
        self._seen: dict[str, set[str]] = {name: set() for name in self.columns}
        self._filled = dict.fromkeys(self.columns, 0)
        self._n_rows = 0

    @property
    def columns(self) -> list[str]:
        return [*self._labels, *self._times]

    def look(self, batch: pa.RecordBatch) -> None:
        if self._n_rows >= _LOOKED_AT:
            return
        self._n_rows += batch.num_rows
        for name, seen in self._seen.items():
            values = rules.texts(batch.column(name), name)
            seen.update(values.dictionary.to_pylist())
            self._filled[name] += len(values) - values.null_count

    def warn(self) -> None:
        """In one line, what is taken for granted where nobody said otherwise."""
        labels = [name for name in self._labels if self._labels_groups(name)]
        times = [name for name in self._times if self._tells_time(name)]
        if not labels and not times:
            return
        looks = [f"{_either(labels)} looks like a label of groups"] if labels else []
        looks += [f"{_either(times)} {'like a time' if labels else 'looks like a time'}"] if times else []
        will_be = " or ".join(["of new groups"] * bool(labels) + ["later"] * bool(times))
        options = {"group": labels, "time": times}
        flags = " or ".join(f"--{option} {shlex.quote(names[0])}" for option, names in options.items() if names)
        arguments = " or ".join(f"{option}={names[0]!r}" for option, names in options.items() if names)
        warnings.warn(
            f"Column {', '.join(looks)}: rows to come are taken to be like random rows of this table. If they will be "
            f"{will_be}, say {flags} ({arguments} in Python).",
            GPnnWarning,
            stacklevel=3,
        )

    def _labels_groups(self, name: str) -> bool:
        """Whether values repeat, are enough to hold some out, and are no measurements."""
        seen = self._seen[name]
        return FOLDS <= len(seen) <= _REPEATED * self._filled[name] and not any(map(_is_fraction, seen))

    def _tells_time(self, name: str) -> bool:
        some = pa.array(sorted(self._seen[name])[:_TRIED], pa.string())
        times = (pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC"))  # pandas 2 has "ns"
        kinds = (pa.float64(), *times)
        return len(self._seen[name]) >= FOLDS and any(rules.parses(some, kind) for kind in kinds)


def _is_named_as_label(name: str) -> bool:
    return bool(_LABEL.fullmatch(name.strip()) or _CAMEL_LABEL.fullmatch(name.strip()))


def _may_be_label(kind: pa.DataType) -> bool:
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)  # whole numbers of which some are missing
    return number or rules.is_text(kind) or pa.types.is_dictionary(kind)


def _is_fraction(text: str) -> bool:
    try:
        return not float(text).is_integer()
    except ValueError:
        return False


def _either(names: list[str]) -> str:
    return " or ".join(repr(name) for name in names[:_NAMED])
