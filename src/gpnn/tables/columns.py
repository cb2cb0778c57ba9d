"""What a column becomes: the rules by which values turn into numbers, each a small record that JSON can hold.

`encode` gives one row of numbers per value, NaN where the value is missing; `fill` is what stands in for it on request.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpnn.common import geography
from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Array

PERIODS = {"day": 1.0, "week": 7.0, "year": 365.2425}
"""The cycles of a date, in days."""

_MICROSECONDS_PER_DAY = 86_400e6
_FOLDS, _FOLD_SEED = 5, (2023, 11, 5)  # a seed that nobody's data was drawn with
_PRIOR_ROWS = 10.0
CURE_OF_DAMAGE = "The model file was altered, or written by a newer gpnn; fit again, or install that version."


@dataclass(frozen=True)
class Number:
    """A number as it is; durations in seconds. Infinite values count as missing."""

    kind: ClassVar[str] = "number"
    name: str
    fill: tuple[float, ...] = ()

    @property
    def outputs(self) -> list[str]:
        return [self.name]

    def encode(self, values: pa.Array, unknown: Counter) -> Array:
        return numbers(values, self.name)[:, None]


@dataclass(frozen=True)
class Boolean(Number):
    """False is 0, true is 1."""

    kind: ClassVar[str] = "boolean"

    def encode(self, values: pa.Array, unknown: Counter) -> Array:
        if is_text(values.type):
            values = _parsed(values, pa.bool_(), self.name, "true or false")
        return super().encode(values, unknown)


@dataclass(frozen=True)
class Date:
    """Days since 1970-01-01 (UTC where the zone is known), and sine and cosine of the cycles that the column goes
    through: each part that the training rows vary in."""

    kind: ClassVar[str] = "date"
    name: str
    parts: tuple[str, ...]
    """Of "days" and PERIODS."""
    fill: tuple[float, ...] = ()

    @property
    def outputs(self) -> list[str]:
        names = [["days"] if part == "days" else [f"{part}_sin", f"{part}_cos"] for part in self.parts]
        return [f"{self.name}.{name}" for group in names for name in group]

    def encode(self, values: pa.Array, unknown: Counter) -> Array:
        return self.of_days(days(values, self.name))

    def of_days(self, time: Array) -> Array:
        columns = []
        for part in self.parts:
            if part == "days":
                columns.append(time)
            else:
                angle = 2 * np.pi * (time / PERIODS[part] % 1.0)
                columns += [np.sin(angle), np.cos(angle)]
        return np.column_stack(columns)


@dataclass(frozen=True)
class OneHot:
    """Few levels: a column of zeros and ones for each but the most frequent, which is all zeros.

    A level that the training rows did not have becomes their average: the shares of the levels.
    """

    kind: ClassVar[str] = "one-hot"
    name: str
    levels: tuple[str, ...]
    """The most frequent first."""
    shares: tuple[float, ...]
    fill: tuple[float, ...] = ()

    @property
    def outputs(self) -> list[str]:
        return [f"{self.name}={level}" for level in self.levels[1:]]

    def encode(self, values: pa.Array, unknown: Counter) -> Array:
        codes = level_codes(values, self.name, self.levels, unknown)
        table = np.vstack([np.eye(len(self.levels)), self.shares, np.full(len(self.levels), np.nan)])
        return table[codes, 1:]  # missing is code −1, the last row; unknown the one before


@dataclass(frozen=True)
class TargetMean:
    """Many levels: the mean target of the level's training rows, drawn towards the overall mean as if by ten more rows.

    Training rows themselves get means from other rows only (five folds), so that no row's input holds its own target.
    A level that the training rows did not have becomes the overall mean.
    """

    kind: ClassVar[str] = "target mean"
    name: str
    levels: tuple[str, ...]
    means: tuple[float, ...] = ()
    """One per level, and the overall mean; empty until the target is known: `encode` then gives level numbers."""
    fill: tuple[float, ...] = ()

    @property
    def outputs(self) -> list[str]:
        return [f"{self.name}.target_mean"]

    def encode(self, values: pa.Array, unknown: Counter) -> Array:
        table = np.array([*(self.means or range(len(self.levels) + 1)), np.nan])
        return table[level_codes(values, self.name, self.levels, unknown)][:, None]

    def learn(self, codes: Array, y: Array) -> tuple[TargetMean, Array]:
        """With the means of all rows, and what the training rows (level numbers, NaN if missing) become."""
        known = ~np.isnan(codes)
        level = np.where(known, codes, 0).astype(np.int64)
        fold = np.random.default_rng(_FOLD_SEED).integers(_FOLDS, size=len(y))
        shape = (_FOLDS, len(self.levels))
        place = np.ravel_multi_index((fold[known], level[known]), shape)
        count = np.bincount(place, minlength=np.prod(shape)).reshape(shape)
        total = np.bincount(place, weights=y[known], minlength=np.prod(shape)).reshape(shape)
        means = _shrunken(total.sum(axis=0), count.sum(axis=0), y.mean())
        out_of_fold = _shrunken(total.sum(axis=0) - total, count.sum(axis=0) - count, y.mean())
        column = np.where(known, out_of_fold[fold, level], np.nan)
        return replace(self, means=(*means.tolist(), float(y.mean()))), column


@dataclass(frozen=True)
class Circle:
    """A number that comes round again: a place on a circle as long as its period."""

    kind: ClassVar[str] = "circle"
    name: str
    period: float
    fill: tuple[float, ...] = ()

    @property
    def outputs(self) -> list[str]:
        return [f"{self.name}_sin", f"{self.name}_cos"]

    def encode(self, values: pa.Array, unknown: Counter) -> Array:
        return geography.circle(numbers(values, self.name), float(self.period))


@dataclass(frozen=True)
class Place:
    """Latitude and longitude in degrees: kilometres east and north of their middle, and up where they are far apart."""

    kind: ClassVar[str] = "place"
    name: str
    """Of the latitude."""
    longitude: str
    centre: tuple[float, float]
    flat: bool
    extent: tuple[float, float]
    """The lowest and the highest latitude of the training rows."""
    fill: tuple[float, ...] = ()

    @property
    def outputs(self) -> list[str]:
        return ["east", "north"] if self.flat else ["east", "north", "up"]

    def encode(self, values: pa.Array, unknown: Counter, longitudes: pa.Array | None = None) -> Array:
        latitude = numbers(values, self.name)
        longitude = numbers(values if longitudes is None else longitudes, self.longitude)
        geography.check_places(latitude, longitude, (self.name, self.longitude))
        return geography.on_columns(geography.directions(latitude, longitude), self.centre, self.flat)


@dataclass(frozen=True)
class Longitude:
    """What a Place reads beside its latitude; no column of its own comes of it."""

    kind: ClassVar[str] = "longitude"
    name: str
    extent: tuple[float, float]
    fill: tuple[float, ...] = ()

    @property
    def outputs(self) -> list[str]:
        return []

    def encode(self, values: pa.Array, unknown: Counter) -> Array:
        return np.empty((len(values), 0))


Column = Number | Boolean | Date | OneHot | TargetMean | Circle | Place | Longitude
_KINDS: dict[str, type] = {
    kind.kind: kind for kind in (Number, Boolean, Date, OneHot, TargetMean, Circle, Place, Longitude)
}


def to_dict(column: Column) -> dict:
    return {"kind": column.kind} | asdict(column)


def from_dict(record: dict) -> Column:
    """What `to_dict` gave; anything else is refused here, not when it is used."""
    try:
        fields = {key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}
        column = _KINDS[str(fields.pop("kind"))](**fields)
        probe = column.encode(pa.nulls(1), Counter())
        sound = probe.shape == (1, len(column.outputs)) == (1, len(column.fill)) and probe.dtype == np.float64
        sound &= np.array(column.fill, dtype=float).dtype == np.float64 and isinstance(column.name, str)
        if isinstance(column, OneHot | TargetMean):
            sound &= isinstance(column.levels, tuple) and all(isinstance(level, str) for level in column.levels)
        if isinstance(column, Circle):
            sound &= bool(0 < float(column.period) < np.inf)
        if isinstance(column, Place | Longitude):
            sound &= len(column.extent) == 2
        if isinstance(column, Place):
            sound &= isinstance(column.longitude, str) and len(column.centre) == 2
        if isinstance(column, TargetMean):
            sound &= len(column.means) == len(column.levels) + 1
    except (AttributeError, LookupError, TypeError, ValueError, pa.ArrowException) as error:
        raise InvalidInputError(f"A column of the encoding cannot be read ({error}). {CURE_OF_DAMAGE}") from error
    if not sound:
        raise InvalidInputError(
            f"Column {str(column.name)[:40]!r} of the encoding contradicts itself. {CURE_OF_DAMAGE}"
        )
    return column


def _shrunken(total: Array, count: Array, overall: float) -> Array:
    return (total + _PRIOR_ROWS * overall) / (count + _PRIOR_ROWS)


# --- from values to floats --------------------------------------------------------------------------------------------


def numbers(values: pa.Array, name: str) -> Array:
    """As float64, NaN where missing or infinite."""
    kind = values.type
    if is_text(kind):
        values = _parsed(values, pa.float64(), name, "numbers")
    elif pa.types.is_duration(kind):
        values = pc.divide(values.cast(pa.duration("us"), safe=False).cast(pa.int64()).cast(pa.float64()), 1e6)
    elif not is_number(kind):
        raise wrong_type(name, kind, "numbers")
    found = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.where(np.isfinite(found), found, np.nan)


def days(values: pa.Array, name: str) -> Array:
    """Days since 1970-01-01, NaN where missing; of a time of day, its part of the day."""
    kind = values.type
    if is_text(kind):
        for type_of_date in (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.time64("us")):
            if parses(values, type_of_date):
                break
        values = _parsed(values, type_of_date, name, "dates such as 2024-01-31 or 2024-01-31T12:00")
    elif pa.types.is_time(kind):
        values = values.cast(pa.time64("us"), safe=False)
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        values = values.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False)
    elif not pa.types.is_null(kind):
        raise wrong_type(name, kind, "dates")
    microseconds = values.cast(pa.int64()).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return microseconds / _MICROSECONDS_PER_DAY


def texts(values: pa.Array, name: str) -> pa.DictionaryArray:
    """Each value's level, as text."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    try:
        return values.cast(pa.string()).dictionary_encode()
    except pa.ArrowException as error:
        raise wrong_type(name, values.type, "categories") from error


def level_codes(values: pa.Array, name: str, levels: tuple[str, ...], unknown: Counter) -> np.ndarray:
    """Each value's number among `levels`; −1 where missing, len(levels) where unknown, which is counted."""
    encoded = texts(values, name)
    numbers = {level: number for number, level in enumerate(levels)}
    table = np.array([numbers.get(text, len(levels)) for text in encoded.dictionary.to_pylist()] + [-1])
    codes = table[encoded.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)]
    if strange := int(np.sum(codes == len(levels))):
        unknown[name] += strange
    return codes


def is_text(kind: pa.DataType) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def is_number(kind: pa.DataType) -> bool:
    return any(
        check(kind)
        for check in (
            pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_null,
        )
    )  # fmt: skip


def parses(values: pa.Array, kind: pa.DataType) -> bool:
    """Whether each of these texts is a value of this type."""
    try:
        _parse(values, kind)
    except pa.ArrowException:
        return False
    return True


def _parse(values: pa.Array, kind: pa.DataType) -> pa.Array:
    values = pc.utf8_trim_whitespace(values.cast(pa.string()))
    if pa.types.is_time(kind):
        moments = pc.binary_join_element_wise("1970-01-01T", values, "").cast(pa.timestamp("us"))
        return moments.cast(pa.int64()).cast(pa.time64("us"))
    return values.cast(kind)


def _parsed(values: pa.Array, kind: pa.DataType, name: str, wanted: str) -> pa.Array:
    try:
        return _parse(values, kind)
    except pa.ArrowException as error:
        wrong = next(value for value in values.unique() if not parses(pa.array([value.as_py()], pa.string()), kind))
        raise InvalidInputError(
            f"Column {name!r} holds {str(wrong)[:40]!r} where the model needs {wanted}. Check that it is the right "
            f"column, that no text has slipped into it, and that decimals have a point."
        ) from error


def wrong_type(name: str, kind: pa.DataType, wanted: str) -> InvalidInputError:
    return InvalidInputError(
        f"Column {name!r} is of type {kind}, where {wanted} are needed. Convert it, or leave it out (--ignore)."
    )
