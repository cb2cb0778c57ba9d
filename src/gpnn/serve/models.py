"""What is served: model files by name, each with its columns, and picked up anew when the file is replaced."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from gpnn.common.errors import FileError, InvalidInputError, listed
from gpnn.common.types import Array, Prediction
from gpnn.engines import Engine
from gpnn.files import model as model_file
from gpnn.files.container import check_is_file
from gpnn.files.whole import head_of
from gpnn.regressor import GPnnRegressor
from gpnn.serve.training import Training, value_of
from gpnn.tables.columns import Boolean, Circle, Date, Longitude, Number, OneHot, Place, TargetMean
from gpnn.tables.encoder import TableEncoder, missing_message
from gpnn.tables.model import TableModel

_SHOWN_LEVELS = 1000
_FARTHEST = 100.0  # training sd that a row counts for in the drift
_DIGEST = slice(24, 56)  # of the file: the SHA-256 of its header, which holds the checksums of all arrays

Stamp = tuple[int, int, int]
"""Which file it is: inode, time of the last change, length."""


def version_of(path: str | os.PathLike) -> str:
    """What tells one model file from another, wherever they lie."""
    with open(head_of(Path(path)), "rb") as file:
        return file.read(_DIGEST.stop)[_DIGEST].hex()[:12]


@dataclass(frozen=True)
class Rows:
    """Questions, encoded: one row each of those that can be answered."""

    X: Array
    """(k, d), finite."""
    whole: NDArray[np.bool_]
    """(n,): whether the row has all its values; the others have no answer."""
    unknown: Counter
    """Levels that the training rows did not have, counted by column."""
    missing: dict[str, int]
    """Missing values, by column."""


class ServedModel:
    """One model file, loaded, with all that requests ask of it. Never changed: a new file is a new object."""

    def __init__(self, name: str, path: Path, n_jobs: int | None = None, engine: str | Engine = "cpu"):
        self.name, self.path = name, path
        self.stamp = stamp_of(path)
        regressor, schema = model_file.read(path)
        regressor.set_params(engine=engine, n_jobs=n_jobs, verbose=0)
        if hasattr(regressor, "targets_"):
            raise InvalidInputError(
                f"{path} has {len(regressor.targets_)} targets, and a server answers for one. Make a model file of "
                "each: TableModel.load(…).of(target).save(…)."
            )
        table = TableModel.load(path, verify=False) if schema is not None else _plain(regressor)
        self.table = TableModel(table.encoder, regressor, table.target, table.missing)
        self.version = version_of(path)
        if stamp_of(path) != self.stamp:
            raise FileError(f"{path} was replaced while it was read. It is read again in a moment.")
        self.encoder, self.regressor = self.table.encoder, regressor
        self.columns = self.encoder.columns_
        self.training = Training(regressor)
        self._engine = regressor._holding_engine()  # as `predictor` does: made once, and the rows checked by `rows`
        self._named = hasattr(regressor, "feature_names_in_")
        self._outputs = self.encoder.outputs
        self._quick = _quick_rules(self.columns)
        self._bounds = _bounds(self.columns, self.training)
        of_levels = [isinstance(column, OneHot) for column in self.columns for _ in column.outputs]
        self._levels = np.flatnonzero(of_levels)
        sd = self.training.spread.sd
        self._per_sd = np.divide(1.0, sd, out=np.zeros_like(sd), where=sd > 0)
        middle = self.training.spread.middle[None, :]
        self.law(middle)  # whatever compiles, compiles before the first request
        self.neighbors(middle, 1)

    # --- from values to rows ------------------------------------------------------------------------------------------

    def rows_of_values(self, values: dict[str, list]) -> Rows:
        """Of JSON: lists of numbers, texts, booleans and nulls by column. Numbers and levels take a short way."""
        try:
            parts = [rule(values[column.name]) for rule, column in zip(self._quick, self.columns, strict=True)]
        except _LongWayError:
            arrays = [arrow_of(values[column.name], column.name) for column in self.columns]
            return self.rows(pa.RecordBatch.from_arrays(arrays, names=self.encoder.inputs))
        return self._finished(np.hstack(parts), Counter())

    def rows(self, batch: pa.RecordBatch) -> Rows:
        """Of a batch that has the model's columns."""
        unknown: Counter = Counter()
        return self._finished(self.encoder.encode(batch, unknown), unknown)

    def _finished(self, X: Array, unknown: Counter) -> Rows:
        """Missing values refused, filled, or their rows left out: as the model was told when it was fitted."""
        X = np.ascontiguousarray(X)
        whole = np.asarray(np.isfinite(X).all(axis=1))
        if whole.all():
            return Rows(X, whole, unknown, {})
        missing = self.encoder.missing_by_column(X)
        if self.table.missing == "impute":
            return Rows(self.encoder.impute(X), np.ones(len(X), bool), unknown, missing)
        if self.table.missing == "error":
            cure = "fit the model with --impute or --drop-missing"
            raise InvalidInputError(missing_message(missing, int((~whole).sum()), cure))
        return Rows(X[whole], whole, unknown, missing)

    # --- from rows to answers -----------------------------------------------------------------------------------------

    def law(self, X: Array) -> Prediction:
        return self.regressor._law(X, self._engine)[0]

    def ends(self, law: Prediction, levels: Array) -> Array:
        """Quantiles of y* of these orders (k, n), as `GPnnRegressor.predict_quantiles` gives them."""
        standard = self.regressor._standard_quantile(levels, law)
        return np.array([law.at(end) for end in standard.T])

    def beyond(self, X: Array) -> dict[str, NDArray[np.bool_]]:
        """By column, which rows (n,) have a value that the training rows do not reach: out of range, or a new level.

        Columns without any such row are left out.
        """
        low, high = self._bounds
        strange = (low > X) | (high < X)
        if len(self._levels):
            strange[:, self._levels] = (X[:, self._levels] != 0) & (X[:, self._levels] != 1)
        found: dict[str, NDArray[np.bool_]] = {}
        if not strange.any():
            return found
        first = 0
        for column in self.columns:
            part = np.asarray(strange[:, first : first + len(column.outputs)].any(axis=1))
            first += len(column.outputs)
            if part.any():
                found[column.name] = part
        return found

    def standardised(self, X: Array) -> Array:
        """Less the mean of the training rows, in their sd; cut at ±100, so that one row cannot drown all others."""
        spread = self.training.spread
        with np.errstate(over="ignore"):
            return np.clip((X - spread.mean) * self._per_sd, -_FARTHEST, _FARTHEST)

    def neighbors(self, X: Array, n: int) -> list[list[dict]]:
        """For each row, the n nearest training rows: number, distance in the learned metric, values and target."""
        given = pd.DataFrame(X, columns=self._outputs) if self._named else X
        found = self.regressor.kneighbors(given)
        answer = []
        for numbers, distances in zip(found.indices[:, :n], found.distances[:, :n], strict=True):
            inputs, y = self.training.rows(numbers)
            answer.append(
                [
                    {"row": int(number), "distance": float(distance), "y": float(f"{target:.6g}"),
                     "values": self._values(encoded)}
                    for number, distance, target, encoded in zip(numbers, distances, y, inputs, strict=True)
                ]
            )  # fmt: skip
        return answer

    def _values(self, encoded: Array) -> dict[str, Any]:
        values, first, sd = {}, 0, self.training.spread.sd
        for column in self.columns:
            width = len(column.outputs)
            if width:
                values[column.name] = value_of(column, encoded[first : first + width], sd[first : first + width])
            first += width
        return values

    # --- in words -----------------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """What `GET /model` says."""
        regressor, report, spread = self.regressor, self.regressor.fit_report_, self.training.spread
        columns, first = [], 0
        for column in self.columns:
            width = len(column.outputs)
            columns.append(_described(column, spread, first, width))
            first += width
        return {
            "name": self.name,
            "version": self.version,
            "target": self.table.target,
            "missing": self.table.missing,
            "columns": columns,
            "ranges_from_rows": spread.n_rows,
            "rows": report["n"],
            "kernel": regressor.kernel_,
            "neighbors": regressor.n_neighbors_,
            "shape": regressor.shape_.name,
            "target_scale": regressor.target_scale_.kind,
            "alpha": regressor.alpha_,
            "alpha_interval": list(regressor.alpha_interval_),
            "fit_report": {
                name: report[name]
                for name in ("n", "d", "whitening", "index", "recall", "seconds", "n_neighbors")
                if name in report
            },
        }


# --- columns ----------------------------------------------------------------------------------------------------------


class _LongWayError(Exception):
    """A value that the short way does not know; Arrow and the encoder decide what it means."""


def _quick_rules(columns) -> list:
    """For each column a function from a list of JSON values to its encoded part: the same numbers as the encoder's."""

    def number(values: list) -> Array:
        if not all(type(value) is float or type(value) is int for value in values):
            raise _LongWayError
        try:
            return np.array(values, dtype=float)[:, None]
        except OverflowError as error:
            raise InvalidInputError("A number is beyond 1e308. Send numbers that fit a double.") from error

    def levels_of(column: OneHot | TargetMean):
        encoded = column.encode(pa.array(column.levels, pa.string()), Counter())
        table = dict(zip(column.levels, encoded, strict=True))

        def level(values: list) -> Array:
            if not all(type(value) is str and value in table for value in values):
                raise _LongWayError
            return np.array([table[value] for value in values]).reshape(len(values), len(column.outputs))

        return level

    def long_way(values: list) -> Array:
        raise _LongWayError

    rules = []
    for column in columns:
        if type(column) is Number:
            rules.append(number)
        elif isinstance(column, OneHot | TargetMean) and column.outputs:
            rules.append(levels_of(column))
        else:
            rules.append(long_way)
    return rules


def arrow_of(values: list, name: str) -> pa.Array:
    """JSON values of one column. Whole numbers and others are one type, as they are in JSON."""
    try:
        if any(type(value) is float for value in values):
            values = [float(value) if type(value) is int else value for value in values]
        return pa.array(values)
    except (pa.ArrowException, OverflowError, ValueError, TypeError, UnicodeError) as error:
        reason = " ".join(str(error).split())[:120].rstrip(".")
        raise InvalidInputError(
            f"Column {name!r} holds values that do not go together ({reason}). "
            "Send numbers, or texts, or true and false, and null where a value is missing."
        ) from error


def _plain(regressor: GPnnRegressor) -> TableModel:
    """A regressor without a schema, as `GPnnRegressor.save` keeps it: numbers, by the names it knows or x0, x1, …"""
    d = regressor.n_features_in_
    names = [str(name) for name in getattr(regressor, "feature_names_in_", [f"x{k}" for k in range(d)])]
    encoder = TableEncoder()
    encoder.columns_ = tuple(Number(name, (0.0,)) for name in names)
    return TableModel(encoder, regressor, "y", "error")


def _bounds(columns, training: Training) -> tuple[Array, Array]:
    """The training range of each encoded column, a hair wider, as rows in the file are float32."""
    spread = training.spread
    room = 1e-5 * (spread.high - spread.low) + 1e-6 * np.abs(spread.high + spread.low)
    low, high = spread.low - room, spread.high + room
    first = 0
    for column in columns:  # cycles and levels have no range worth the name
        width = len(column.outputs)
        if isinstance(column, Circle):
            low[first : first + width], high[first : first + width] = -np.inf, np.inf
        if isinstance(column, Date):
            from_here = first + (1 if column.parts[:1] == ("days",) else 0)
            low[from_here : first + width], high[from_here : first + width] = -np.inf, np.inf
        first += width
    return low, high


def _described(column, spread, first: int, width: int) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": column.name, "kind": column.kind}
    if isinstance(column, OneHot | TargetMean):
        facts["kind"] = "category"
        facts["levels"] = list(column.levels[:_SHOWN_LEVELS])
        facts["n_levels"] = len(column.levels)
        facts["typical"] = column.levels[0]
        return facts
    if isinstance(column, Circle | Place | Longitude):  # as people write them
        low, high = (0.0, float(column.period)) if isinstance(column, Circle) else column.extent
        middle = {"typical": (low + high) / 2, "mean": (low + high) / 2, "sd": (high - low) / 4}
        return facts | {"kind": "number", "range": [low, high]} | middle
    ends = [end[first : first + width] for end in (spread.low, spread.high, spread.middle)]
    low, high, typical = (value_of(column, end, spread.sd[first : first + width]) for end in ends)
    if isinstance(column, Boolean):
        return facts | {"typical": typical}
    facts |= {"range": [low, high], "typical": typical}
    if isinstance(column, Number):
        facts |= {"mean": float(f"{spread.mean[first]:.6g}"), "sd": float(f"{spread.sd[first]:.6g}")}
    return facts


# --- files by name ----------------------------------------------------------------------------------------------------


def stamp_of(path: Path) -> Stamp:
    check_is_file(head_of(path))
    found = os.stat(head_of(path))
    return found.st_ino, found.st_mtime_ns, found.st_size


@dataclass
class Registry:
    """The models by name. `refresh` replaces those whose file was replaced; requests keep the one they began with."""

    paths: dict[str, Path]
    n_jobs: int | None = None
    engine: str | Engine = "cpu"
    models: dict[str, ServedModel] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    """By name, why the file as it now is cannot be served; the model before it goes on."""
    reloads: Counter = field(default_factory=Counter)
    failures: Counter = field(default_factory=Counter)
    _refused: dict[str, Stamp] = field(default_factory=dict)

    @classmethod
    def of(cls, paths: list[Path], n_jobs: int | None = None, engine: str | Engine = "cpu") -> Registry:
        names = Counter(path.stem for path in paths)
        twice = [name for name, times in names.items() if times > 1]
        if twice:
            raise InvalidInputError(f"Several model files are called {listed(twice)}. Rename them: names must differ.")
        registry = cls({path.stem: path for path in paths}, n_jobs, engine)
        for name, path in registry.paths.items():
            registry.models[name] = ServedModel(name, path, n_jobs, engine)
        return registry

    def stale(self) -> list[str]:
        """Models whose file is another than the one loaded, and than one that was refused already."""
        changed = []
        for name, path in self.paths.items():
            try:
                stamp = stamp_of(path)
            except OSError as error:
                self.errors[name] = f"{path.name} is gone ({error.strerror}). The model loaded before is served on."
                continue
            if stamp not in (self.models[name].stamp, self._refused.get(name)):
                changed.append(name)
            elif stamp == self.models[name].stamp:
                self.errors.pop(name, None)
        return changed

    def refresh(self, name: str) -> None:
        """Load the file as it now is; the switch is one assignment. A broken file leaves what there was."""
        stamp = None
        try:
            stamp = stamp_of(self.paths[name])
            fresh = ServedModel(name, self.paths[name], self.n_jobs, self.engine)
        except Exception as error:  # whatever is wrong with a file must not end the service of the one before
            if stamp is not None:
                self._refused[name] = stamp
            self.errors[name] = " ".join(str(error).split()) or type(error).__name__
            self.failures[name] += 1
            return
        self.models[name] = fresh
        self.errors.pop(name, None)
        self.reloads[name] += 1
