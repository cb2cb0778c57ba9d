"""TableEncoder: a table of numbers, booleans, dates and categories as a matrix of floats, by a rule that is stored."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from gpnn.common import geography
from gpnn.common.errors import GPnnWarning, InvalidInputError, listed
from gpnn.common.types import Array
from gpnn.stages.validation import check_integer
from gpnn.tables import columns as rules
from gpnn.tables.columns import PERIODS, Boolean, Circle, Column, Date, Longitude, Number, OneHot, Place, TargetMean
from gpnn.tables.reading import Table, as_table

VERSION = 1

_DATES = [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.time64("us")]
_MEANINGS = [pa.float64(), pa.bool_(), *_DATES]  # what text may mean where a file has no other type
_TURNS = 2  # of a cycle that the dates must go through for it to count
_MOST_LEVELS = 100_000
_MISREAD = {
    "a number with a decimal comma": re.compile(r"[+-]?\d{1,3}(\.?\d{3})*,\d+"),
    "a date that is not written as 2024-01-31": re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}( .*)?"),
}


class TableEncoder(TransformerMixin, BaseEstimator):
    """Columns by their type: numbers as they are; booleans 0 and 1; dates as days and the cycles they go through;
    categories as zeros and ones if they have few levels, as mean targets if many. `gpnn.tables.columns` has the rules.

    Parameters
    ----------
    categories : names of columns that are categories, whatever their values look like
    max_levels : categories with more levels than this become mean targets, for which `fit` needs y
    coordinates : names of the columns of latitude and longitude, in degrees: places on the globe
    periodic : names of columns whose values come round again, and after how much: {"hour": 24, "wind": 360}
    missing : "error" refuses missing values and says where they are; "impute" puts in the median or the most frequent
        level of the training rows; "keep" leaves NaN

    Attributes
    ----------
    columns_ : the rule of each column, with what it learned
    """

    def __init__(
        self,
        *,
        categories: Sequence[str] = (),
        max_levels: int = 20,
        coordinates: Sequence[str] | None = None,
        periodic: Mapping[str, float] | None = None,
        missing: str = "error",
    ):
        self.categories = categories
        self.coordinates = coordinates
        self.periodic = periodic
        self.max_levels = max_levels
        self.missing = missing

    def fit(self, X, y=None) -> TableEncoder:
        """Learn the rules from a table: pandas, polars, pyarrow, or a matrix of numbers."""
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X, y=None, **_) -> Array:
        """`fit`, and the rows as the regressor should learn from them: mean targets come from other rows."""
        table = as_table(X)
        self.survey(table, list(table.types))
        unknown: Counter = Counter()
        encoded = [self.encode(batch, unknown) for batch in table.batches(self.inputs)]
        return self._without_missing(self.learn(np.concatenate(encoded), y))

    def transform(self, X) -> Array:
        check_is_fitted(self)
        table = as_table(X)
        table.require(self.inputs, "The encoder was fitted with it; give it the same columns.")
        unknown: Counter = Counter()
        encoded = [self.encode(batch, unknown) for batch in table.batches(self.inputs)]
        warn_of_unknown(unknown)
        return self._without_missing(np.concatenate([np.empty((0, len(self.outputs))), *encoded]))

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        check_is_fitted(self)
        return np.array(self.outputs, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return "columns_" in self.__dict__

    @property
    def inputs(self) -> list[str]:
        return [column.name for column in self.columns_]

    @property
    def outputs(self) -> list[str]:
        return [name for column in self.columns_ for name in column.outputs]

    # --- the stored rule ----------------------------------------------------------------------------------------------

    def to_dict(self) -> dict:
        """Everything that `transform` needs, for JSON."""
        check_is_fitted(self)
        return {
            "version": VERSION,
            "categories": list(self.categories),
            "max_levels": self.max_levels,
            "coordinates": None if self.coordinates is None else list(self.coordinates),
            "periodic": None if self.periodic is None else dict(self.periodic),
            "missing": self.missing,
            "columns": [rules.to_dict(column) for column in self.columns_],
        }

    @classmethod
    def from_dict(cls, record: dict) -> TableEncoder:
        if record.get("version") != VERSION:
            raise InvalidInputError(
                f"This encoding is of version {record.get('version')}, and this gpnn reads version {VERSION}. "
                "Use the gpnn that wrote it, or fit again."
            )
        settings = ("categories", "max_levels", "coordinates", "periodic", "missing")
        encoder = cls(**{name: record[name] for name in settings if name in record})
        encoder.columns_ = tuple(rules.from_dict(column) for column in record.get("columns", ()))
        return encoder

    # --- the same in a stream: survey, then encode each batch, then learn from the whole ------------------------------

    def survey(self, table: Table, names: list[str]) -> int:
        """A rule for each of these columns, from one look at all rows (two if they are text). The number of rows."""
        check_integer("max_levels", self.max_levels, 1)
        if self.missing not in ("error", "impute", "keep"):
            raise InvalidInputError(f"missing = {self.missing!r} is unknown. Choose one of: error, impute, keep.")
        table.require(list(self.categories), "It was said to be a category.")
        types, n_rows = read_types(table, names)
        types.update(dict.fromkeys(set(names) & set(self.categories), pa.string()))
        if n_rows == 0:
            raise InvalidInputError(f"{table.name} has no rows. Check that it is the right file, and that it is whole.")
        empty = [name for name, kind in types.items() if pa.types.is_null(kind)]
        if empty:
            raise InvalidInputError(f"No row has a value in {listed(empty)}. Leave these columns out (--ignore).")
        self.columns_ = tuple(self._rules(table, types, n_rows))
        return n_rows

    def encode(self, batch: pa.RecordBatch, unknown: Counter) -> Array:
        """Rows (n, d) as numbers, NaN where a value is missing; unknown levels are counted by column."""
        return np.hstack([_encoded(column, batch, unknown) for column in self.columns_])

    def learn(self, X: Array, y: Array | None) -> Array:
        """What needs all encoded rows: mean targets, and what to put in for missing values. X, changed in place."""
        first = 0
        learned: list[Column] = []
        for column in self.columns_:
            part = X[:, first : first + len(column.outputs)]
            if isinstance(column, TargetMean):
                if y is None:
                    raise InvalidInputError(
                        f"Column {column.name!r} has {len(column.levels)} levels, which become mean targets: call "
                        f"fit(X, y). Or raise max_levels = {self.max_levels}, or leave the column out."
                    )
                column, part[:, 0] = column.learn(part[:, 0], np.asarray(y, dtype=float))
            learned.append(replace(column, fill=_fill(column, part)))
            first += part.shape[1]
        self.columns_ = tuple(learned)
        return X

    def impute(self, X: Array) -> Array:
        """Missing values replaced in place by those of the training rows: median, or most frequent level."""
        fill = np.array([value for column in self.columns_ for value in column.fill])
        rows, places = np.nonzero(np.isnan(X))
        X[rows, places] = fill[places]
        return X

    def missing_by_column(self, X: Array) -> dict[str, int]:
        """How many rows of X have no value, for each input column where there are some."""
        first, counts = 0, {}
        for column in self.columns_:
            width = len(column.outputs)
            if width and (count := int(np.isnan(X[:, first]).sum())):
                counts[column.name] = count
            first += width
        return counts

    def _without_missing(self, X: Array) -> Array:
        if self.missing == "impute":
            return self.impute(X)
        if self.missing == "error" and (counts := self.missing_by_column(X)):
            raise InvalidInputError(missing_message(counts, len(X), "fill them with TableEncoder(missing='impute')"))
        return X

    def _rules(self, table: Table, types: dict[str, pa.DataType], n_rows: int):
        categories = [name for name, kind in types.items() if rules.is_text(kind) or pa.types.is_dictionary(kind)]
        dates = [name for name, kind in types.items() if pa.types.is_temporal(kind) and not pa.types.is_duration(kind)]
        levels, phases = _survey(table, categories, dates)
        places, periods = self._geography(table, types)
        place = _place(table, places) if places else {}
        for name, kind in types.items():
            if name in places:
                yield place[name]
            elif name in periods:
                yield Circle(name, periods[name])
            elif name in categories:
                if name not in self.categories:
                    _check_meaning(name, levels[name], table.untyped)
                yield self._category(name, levels[name], n_rows)
            elif name in dates:
                yield Date(name, _parts(phases[name]))
            elif pa.types.is_boolean(kind):
                yield Boolean(name)
            elif rules.is_number(kind) or pa.types.is_duration(kind):
                yield Number(name)
            else:
                raise rules.wrong_type(name, kind, "numbers, booleans, dates or categories")

    def _geography(self, table: Table, types: dict[str, pa.DataType]) -> tuple[list[str], dict[str, float]]:
        """The columns of latitude and longitude (or none), and the periods of those that come round again."""
        places = list(self.coordinates or [])
        periods = {name: float(period) for name, period in (self.periodic or {}).items()}
        if places and (len(places) != 2 or places[0] == places[1] or isinstance(self.coordinates, str)):
            raise InvalidInputError(f"coordinates = {self.coordinates!r} must be two columns: latitude and longitude.")
        table.require([*places, *periods], "It was said to be a coordinate, or to be periodic.")
        for name in [*places, *periods]:
            if name not in types or not rules.is_number(types[name]):
                raise InvalidInputError(
                    f"{name!r} was said to be a coordinate, or to be periodic; it must be an input, and hold numbers."
                )
        wrong = [name for name, period in periods.items() if not 0 < period < np.inf or name in places]
        if wrong:
            raise InvalidInputError(
                f"periodic = {self.periodic!r}: the period of {wrong[0]} must be a positive number, such as 24 or 360, "
                "and coordinates need none."
            )
        return places, periods

    def _category(self, name: str, counts: Counter, n_rows: int) -> Column:
        if not counts:
            raise InvalidInputError(f"No row has a value in {name}. Leave this column out (--ignore).")
        if len(counts) > max(self.max_levels, n_rows // 2):
            raise InvalidInputError(
                f"Column {name!r} has {len(counts):,} different texts in {n_rows:,} rows, such as "
                f"{next(iter(counts))[:40]!r}. That is a name of rows, not a category; leave it out (--ignore)."
            )
        if len(counts) > self.max_levels:
            return TargetMean(name, tuple(sorted(counts)))
        levels = sorted(counts, key=lambda level: (-counts[level], level))
        return OneHot(name, tuple(levels), tuple(counts[level] / counts.total() for level in levels))


def _encoded(column: Column, batch: pa.RecordBatch, unknown: Counter) -> Array:
    values = batch.column(column.name)
    if isinstance(column, Place):
        return column.encode(values, unknown, batch.column(column.longitude))
    return column.encode(values, unknown)


def _place(table: Table, names: list[str]) -> dict[str, Column]:
    """The rules for latitude and longitude, whose middle and extent take two looks at all rows."""
    low, high = np.full(2, np.inf), np.full(2, -np.inf)

    def of_batches():
        for batch in table.batches(names):
            latitude, longitude = (rules.numbers(batch.column(name), name) for name in names)
            geography.check_places(latitude, longitude, (names[0], names[1]))
            known = ~np.isnan(latitude + longitude)
            both = np.column_stack([latitude, longitude])[known]
            np.minimum(low, both.min(axis=0, initial=np.inf), out=low)
            np.maximum(high, both.max(axis=0, initial=-np.inf), out=high)
            yield geography.directions(*both.T)

    centre = geography.middle(sum((unit.sum(axis=0) for unit in of_batches()), np.zeros(3)))
    widest = max((float(geography.angles(unit, centre).max(initial=0)) for unit in of_batches()), default=0.0)
    extents = [(float(first), float(last)) for first, last in zip(low, high, strict=True)]
    latitude = Place(names[0], names[1], centre, geography.is_flat(widest), extents[0])
    return {names[0]: latitude, names[1]: Longitude(names[1], extents[1])}


def _check_meaning(name: str, levels: Counter, untyped: bool) -> None:
    """Refuse texts that were meant to be something else: as categories they would be of little use."""
    some = list(islice(levels, 1000))
    cure = "or leave the column out (--ignore), or say that it is a category (--categories)."
    for meaning, kind in {"numbers": pa.float64(), "dates": pa.timestamp("us")}.items() if untyped else ():
        odd = [level for level in some if not rules.parses(pa.array([level]), kind)]
        if 0 < len(odd) < len(some) / 2:
            raise InvalidInputError(
                f"Column {name!r} holds {odd[0][:40]!r} among {meaning}. Correct it (a missing value is nothing, or "
                f"NA), {cure}"
            )
    for meaning, pattern in _MISREAD.items():
        if some and all(pattern.fullmatch(level.strip()) for level in some):
            raise InvalidInputError(
                f"Column {name!r} holds texts such as {some[0]!r}, each of which looks like {meaning}. Write it so "
                f"that it can be read, {cure}"
            )


def missing_message(counts: dict[str, int], n_rows: int, cure: str) -> str:
    columns = listed([f"{name} ({count:,})" for name, count in counts.items()])
    return f"Values are missing or infinite in {n_rows:,} rows, by column: {columns}. Complete them, or {cure}."


def warn_of_unknown(unknown: Counter) -> None:
    if unknown:
        columns = listed([f"{name} (in {count:,} rows)" for name, count in unknown.items()])
        warnings.warn(
            f"Levels that the training rows did not have: {columns}. They are taken as the average of the others.",
            GPnnWarning,
            stacklevel=3,
        )


def read_types(table: Table, names: list[str]) -> tuple[dict[str, pa.DataType], int]:
    """The type of each column, of texts what all of them can be read as; and the number of rows."""
    types = {name: table.types[name] for name in names}
    meanings = {name: list(_MEANINGS if table.untyped else _DATES) for name in names if rules.is_text(types[name])}
    if not meanings and table.n_rows is not None:
        return types, table.n_rows
    n_rows, filled = 0, set()
    for batch in table.batches(list(meanings) or names):
        n_rows += batch.num_rows
        for name in meanings:
            values = batch.column(name).drop_null()
            if len(values):
                filled.add(name)
                meanings[name] = [kind for kind in meanings[name] if rules.parses(values, kind)]
    for name, kinds in meanings.items():
        types[name] = [*kinds, pa.string()][0] if name in filled else pa.null()
    return types, n_rows


def _survey(table: Table, categories: list[str], dates: list[str]):
    """How often each level occurs, and the ranges of the dates and of their phases in each cycle."""
    levels: dict[str, Counter] = {name: Counter() for name in categories}
    phases: dict[str, dict[str, Array]] = {name: {} for name in dates}
    for batch in table.batches(categories + dates) if categories or dates else ():
        for name in categories:
            for entry in pc.value_counts(rules.texts(batch.column(name), name).drop_null()).to_pylist():
                levels[name][entry["values"]] += entry["counts"]
            if len(levels[name]) > _MOST_LEVELS:
                raise InvalidInputError(
                    f"Column {name!r} has over {_MOST_LEVELS:,} different texts. That is a name of rows, not a "
                    "category; leave it out (--ignore)."
                )
        for name in dates:
            time = rules.days(batch.column(name), name)
            time = time[~np.isnan(time)]
            for part, period in {"days": 0.0, **PERIODS}.items() if len(time) else ():
                phase = time if part == "days" else np.mod(time, period)
                phase = np.append(phase, phases[name].get(part, []))
                phases[name][part] = np.array([phase.min(), phase.max()])
    return levels, phases


def _parts(phases: dict[str, Array]) -> tuple[str, ...]:
    """The parts of a date that vary: of the cycles, those it goes through twice or more; of a time of day, the day."""
    if not phases:
        return ("days",)
    low, high = phases["days"]
    if 0 <= low <= high < 1:
        return ("day",)
    cycles = [
        part
        for part, period in PERIODS.items()
        if high - low >= _TURNS * period and np.ptp(phases[part]) > 0.01 * period
    ]
    return ("days", *cycles)


def _fill(column: Column, encoded: Array) -> tuple[float, ...]:
    """The median; of categories as zeros and ones, the most frequent level; of dates, the parts of their median."""
    if isinstance(column, OneHot | Longitude):
        return (0.0,) * encoded.shape[1]
    known = encoded[~np.isnan(encoded).any(axis=1)]
    if len(known) == 0:
        raise InvalidInputError(f"No row has a value in {column.name}. Leave this column out (--ignore).")
    if isinstance(column, Circle):
        mean = known.mean(axis=0)
        return tuple((mean * column.period / (2 * np.pi) / max(np.linalg.norm(mean), 1e-12)).tolist())
    if isinstance(column, Date):
        time = known[:, 0] if "days" in column.parts else np.arctan2(known[:, 0], known[:, 1]) / (2 * np.pi) % 1.0
        return tuple(column.of_days(np.median(time, keepdims=True))[0].tolist())
    return tuple(np.median(known, axis=0).tolist())
