"""TableModel: an encoder and a regressor as one, from a table on disk to predictions in a table."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from gpnn.common.errors import FileError, GPnnWarning, InvalidInputError, listed
from gpnn.common.types import Array
from gpnn.engines.parallel import progress_bar
from gpnn.files import model as model_file
from gpnn.regressor import GPnnRegressor
from gpnn.tables.columns import CURE_OF_DAMAGE, numbers
from gpnn.tables.encoder import TableEncoder, missing_message, warn_of_unknown
from gpnn.tables.reading import Table, as_table, open_table
from gpnn.tables.writing import check_output, writing

ANSWERS = ("mean", "sd", "lower", "upper")
"""The columns of a prediction."""

POLICIES = ("error", "impute", "drop")
"""What to do where a value is missing. Whichever it is, a row without target is of no use to `fit`: "impute" and "drop"
leave it out."""

_CURE = "ask for --impute (median or most frequent level) or --drop-missing (missing='impute' or 'drop' in Python)"


@dataclass(frozen=True)
class TableModel:
    """What `gpnn fit` makes: the rule that turns a table into numbers, the regressor fitted to them, and their names.

    Tables are paths (.csv, .csv.gz, .tsv, .parquet, .feather, .npy) or frames (pandas, polars, pyarrow).
    """

    encoder: TableEncoder
    regressor: GPnnRegressor
    target: str
    missing: str = "error"

    @classmethod
    def fit(
        cls,
        table,
        target: str,
        *,
        regressor: GPnnRegressor | None = None,
        features: list[str] | None = None,
        ignore: list[str] | None = None,
        categories: list[str] | None = None,
        missing: str = "error",
        max_levels: int = 20,
    ) -> TableModel:
        """Learn `target` from `features`, or from all other columns but those to `ignore`. The regressor is fitted."""
        _check_policy(missing)
        regressor = GPnnRegressor() if regressor is None else regressor
        table = _opened(table, "read" if regressor.verbose else None)
        names = _choose(table, target, features, ignore or [])
        policy = "impute" if missing == "impute" else "error"
        encoder = TableEncoder(categories=categories or [], max_levels=max_levels, missing=policy)
        n_rows = encoder.survey(table, names)
        if not encoder.outputs:
            raise InvalidInputError(f"Every column of {table.name} has one value only. There is nothing to learn from.")
        rows = _read(table, encoder, target, missing, n_rows)
        if len(rows.y) < 2:
            raise InvalidInputError(
                f"{table.name} has {len(rows.y)} rows to learn from. Check that it is the right file, and that not "
                "every row has a missing value."
            )
        X = encoder.learn(rows.X, rows.y)
        if missing == "impute":
            encoder.impute(X)
        regressor.fit(_named(X, encoder), rows.y)
        return cls(encoder, regressor, target, missing)

    @classmethod
    def load(cls, path: str | Path, verify: bool = True) -> TableModel:
        """From a model file that `save` (or `gpnn fit`) wrote."""
        regressor, schema = model_file.read(path, verify=verify)
        if schema is None:
            raise InvalidInputError(
                f"{path} holds a regressor without column names, as GPnnRegressor.save writes it. "
                "Load it with GPnnRegressor.load, or make a model of a table with gpnn fit."
            )
        encoder, target, missing = (schema.get(name) for name in ("encoder", "target", "missing"))
        if not (isinstance(encoder, dict) and isinstance(target, str) and missing in POLICIES):
            raise FileError(f"{path} says nothing of its columns that this gpnn understands. {CURE_OF_DAMAGE}")
        model = cls(TableEncoder.from_dict(encoder), regressor, target, missing)
        if len(model.encoder.outputs) != regressor.n_features_in_:
            raise FileError(
                f"{path} encodes a table as {len(model.encoder.outputs)} columns, but its regressor takes "
                f"{regressor.n_features_in_}. {CURE_OF_DAMAGE}"
            )
        return model

    def save(self, path: str | Path) -> None:
        """One file: the regressor, and the rule for the columns as its schema."""
        model_file.write(path, self.regressor, schema=self.schema())

    def schema(self) -> dict:
        """What the model file says of the table."""
        return {"target": self.target, "missing": self.missing, "encoder": self.encoder.to_dict()}

    def read_rows(self, table, missing: str | None = None) -> tuple[pd.DataFrame, Array]:
        """Encoded inputs and target of every row, but of those that `missing` (default: as in `fit`) leaves out."""
        table, missing = self._prepare(table, missing, [self.target])
        rows = _read(table, self.encoder, self.target, missing, table.n_rows)
        if missing == "impute":
            self.encoder.impute(rows.X)
        warn_of_unknown(rows.unknown)
        return _named(rows.X, self.encoder), rows.y

    def evaluate(self, table, missing: str | None = None, units: str = "y") -> dict[str, float]:
        """The scores of `GPnnRegressor.evaluate`, and the number of rows they are of."""
        X, y = self.read_rows(table, missing)
        if len(y) == 0:
            raise InvalidInputError("No row is left to evaluate on. Check that the table has rows with a target.")
        return {"rows": len(y)} | self.regressor.evaluate(X, y, units)

    def predict(self, table, coverage: float = 0.9, keep: list[str] | None = None, missing: str | None = None):
        """A pyarrow table: the columns to keep, then mean, sd, lower and upper, a row for each row."""
        table, missing = self._prepare(table, missing, keep or [])
        schema, batches = self._predictions(table, coverage, keep or [], missing)
        return pa.Table.from_batches(batches, schema)

    def predict_file(
        self,
        table,
        out: Path | None,
        coverage: float = 0.9,
        keep: list[str] | None = None,
        missing: str | None = None,
        progress: str | None = None,
    ) -> int:
        """The same in a stream, from a file of any size to another (None: standard output); the number of rows.

        The file is whole or not there.
        """
        check_output(out)
        table, missing = self._prepare(table, missing, keep or [])
        schema, batches = self._predictions(table, coverage, keep or [], missing)
        n_rows = 0
        with writing(out, schema) as write, progress_bar(table.n_rows, progress) as bar:
            for batch in batches:
                write(batch)
                n_rows += batch.num_rows
                bar.update(batch.num_rows)
        return n_rows

    # --- the stream ---------------------------------------------------------------------------------------------------

    def _prepare(self, table, missing: str | None, more: list[str]) -> tuple[Table, str]:
        missing = self.missing if missing is None else missing
        _check_policy(missing)
        table = _opened(table, "read" if self.regressor.verbose else None)
        table.require(self.encoder.inputs, "The model was fitted with it.")
        table.require(more, "It was asked for by name.")
        return table, missing

    def _predictions(self, table: Table, coverage: float, keep: list[str], missing: str):
        """The schema of the answer, and its batches."""
        if not 0 < coverage < 1:
            raise InvalidInputError(f"coverage = {coverage} must lie strictly between 0 and 1, such as 0.9.")
        clash = [name for name in keep if name in ANSWERS]
        if clash or len(set(keep)) < len(keep):
            raise InvalidInputError(
                f"Columns to keep must differ from each other and from {', '.join(ANSWERS)}: {listed(keep)}. Rename."
            )
        schema = pa.schema([*((name, table.types[name]) for name in keep), *((name, pa.float64()) for name in ANSWERS)])
        return schema, self._stream(table, coverage, keep, missing, schema)

    def _stream(self, table: Table, coverage: float, keep: list[str], missing: str, schema: pa.Schema):
        unknown: Counter = Counter()
        n_rows = n_empty = 0
        for batch in table.batches(list(dict.fromkeys([*self.encoder.inputs, *keep]))):
            X = self.encoder.encode(batch, unknown)
            if missing == "impute":
                self.encoder.impute(X)
            whole = ~np.isnan(X).any(axis=1)
            if missing == "error" and not whole.all():
                first = n_rows + int(np.argmin(whole)) + 1
                counts = self.encoder.missing_by_column(X)
                raise InvalidInputError(
                    f"{table.name}, row {first:,}: " + missing_message(counts, int((~whole).sum()), _CURE)
                )
            answers = np.full((len(ANSWERS), len(X)), np.nan)
            if whole.any():
                answers[:, whole] = self._answer(X[whole], coverage)
            n_rows, n_empty = n_rows + len(X), n_empty + int((~whole).sum())
            columns = [batch.column(name) for name in keep]
            yield pa.RecordBatch.from_arrays(
                [*columns, *(pa.array(answer, mask=~whole) for answer in answers)], schema=schema
            )
        warn_of_unknown(unknown)
        _warn_of_dropped(n_empty, n_rows, "have no prediction: a value is missing")

    def _answer(self, X: Array, coverage: float) -> Array:
        """Mean, sd, lower and upper (4, n)."""
        law = self.regressor.predict_distribution(_named(X, self.encoder))
        ends = self.regressor._standard_quantile(np.array([0.5 - coverage / 2, 0.5 + coverage / 2]), law).T
        return np.vstack([law.mean, law.std, *(law.mean + law.std * end for end in ends)])


@dataclass(frozen=True)
class _Rows:
    X: Array
    y: Array
    unknown: Counter


def _read(table: Table, encoder: TableEncoder, target: str, missing: str, n_rows: int | None) -> _Rows:
    """Encoded rows (NaN where "impute" has work to do) and targets, in arrays made once if the number is known."""
    X, y = np.empty((n_rows or 0, len(encoder.outputs))), np.empty(n_rows or 0)
    unknown: Counter = Counter()
    lacking: Counter = Counter()
    done = seen = incomplete = 0
    for batch in table.batches([*encoder.inputs, target]):
        X_batch = encoder.encode(batch, unknown)
        y_batch = numbers(batch.column(target), target)
        without_target, without_input = np.isnan(y_batch), np.isnan(X_batch).any(axis=1)
        lacking.update(encoder.missing_by_column(X_batch) if missing != "impute" else {})
        lacking.update({target: int(without_target.sum())} if without_target.any() else {})
        wanted = ~without_target if missing == "impute" else ~(without_target | without_input)
        seen, incomplete = seen + len(wanted), incomplete + int((~wanted).sum())
        end = done + int(wanted.sum())
        if end > len(y):
            X, y = np.resize(X, (2 * end, X.shape[1])), np.resize(y, 2 * end)
        X[done:end], y[done:end] = X_batch[wanted], y_batch[wanted]
        done = end
    if lacking and missing == "error":
        raise InvalidInputError(f"{table.name}: " + missing_message(lacking, incomplete, _CURE))
    _warn_of_dropped(incomplete, seen, f"were left out: a value is missing in {listed(list(lacking))}")
    return _Rows(X[:done], y[:done], unknown)


def _warn_of_dropped(dropped: int, n_rows: int, what: str) -> None:
    if dropped:
        warnings.warn(f"{dropped:,} of {n_rows:,} rows {what}.", GPnnWarning, stacklevel=3)


def _opened(table, progress: str | None) -> Table:
    opened = open_table(table) if isinstance(table, str | Path) else as_table(table)
    return replace(opened, progress=progress)


def _choose(table: Table, target: str, features: list[str] | None, ignore: list[str]) -> list[str]:
    """The input columns, by name."""
    table.require([target], "Name the target with --target.")
    table.require(ignore, "It was to be ignored.")
    if features is not None:
        table.require(features, "It was asked for as a feature.")
        if target in features:
            raise InvalidInputError(f"{target!r} is the target; it cannot be a feature too.")
    names = [name for name in dict.fromkeys(features or table.types) if name != target and name not in ignore]
    if not names:
        raise InvalidInputError(
            f"{table.name} has no column to learn {target!r} from. It has: {listed(list(table.types))}."
        )
    return names


def _check_policy(missing: str) -> None:
    if missing not in POLICIES:
        raise InvalidInputError(f"missing = {missing!r} is unknown. Choose one of: {', '.join(POLICIES)}.")


def _named(X: Array, encoder: TableEncoder) -> pd.DataFrame:
    """X with the names of its columns, not copied."""
    return pd.DataFrame(X, columns=encoder.outputs, copy=False)
