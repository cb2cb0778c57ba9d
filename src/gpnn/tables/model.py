"""TableModel: an encoder and a regressor as one, from a table on disk to predictions in a table."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from gpnn.common.errors import FileError, GPnnWarning, InvalidInputError, listed
from gpnn.common.types import Array, Prediction
from gpnn.engines.parallel import progress_bar
from gpnn.files import model as model_file
from gpnn.regressor import GPnnRegressor
from gpnn.stages.far import OUTSIDE
from gpnn.stages.hiding import can_be_told
from gpnn.stages.sampling import Drawn
from gpnn.tables.checks import POLICIES, check_policy, check_stream, choose, named_in, named_once
from gpnn.tables.columns import CURE_OF_DAMAGE, numbers
from gpnn.tables.encoder import TableEncoder, missing_message, warn_of_unknown
from gpnn.tables.joint import JointTables
from gpnn.tables.reading import Table, as_table, names_files, open_tables
from gpnn.tables.rows import CURE, in_common, larger_parts, read_rows, usable_rows, warn_of_dropped
from gpnn.tables.scores import Scored
from gpnn.tables.to_come import Group, Time, Watch, said
from gpnn.tables.writing import check_output, writing

ANSWERS = ("mean", "sd", "lower", "upper")
"""The columns of a prediction that every model has."""

SUPPORT = "support"
"""The last one: the share of random rows that lie as far from the data as this one, or farther. Null where the model
does not know."""

_MANY, _FEW = 0.1, 10  # rows outside the support, of which users are told: a share, and more than a handful


@dataclass(frozen=True)
class TableModel(JointTables):
    """What `gpnn fit` makes: the rule that turns a table into numbers, the regressor fitted to them, and their names.

    Tables are paths (.csv, .csv.gz, .tsv, .parquet, .feather, .npy) or frames (pandas, polars, pyarrow).
    """

    missing: str = "error"
    group: str | None = None
    """The column whose values rows to come will not share, if that was said."""
    time: str | None = None
    """The column by which rows to come will be later, if that was said."""
    noise: str | None = None
    """The column of what is known of the target's noise, as a variance, if there is one."""
    weight: str | None = None
    """The column of weights, if there is one."""

    @classmethod
    def fit(
        cls,
        table,
        target: str | Sequence[str],
        *,
        regressor: GPnnRegressor | None = None,
        features: list[str] | None = None,
        ignore: list[str] | None = None,
        categories: list[str] | None = None,
        missing: str = "error",
        max_levels: int = 20,
        group: str | None = None,
        time: str | None = None,
        noise: str | None = None,
        weight: str | None = None,
        coordinates: Sequence[str] | None = None,
        periodic: Mapping[str, float] | None = None,
        memory: int | str | None = None,
        out: str | Path | None = None,
    ) -> TableModel:
        """Learn `target` from `features`, or from all other columns but those to `ignore`. The regressor is fitted.
        Several targets are learned together; of one row, some may be missing.

        group: a column of labels, if rows to come will be of groups that no training row has, such as new patients; it
        is no input. time: a column of numbers or dates, if they will be later than the training rows; it stays an input
        unless it is ignored. noise: a column of variances, what is known of each target's noise; weight: a column of
        weights. Neither is an input. coordinates: the columns of latitude and longitude in degrees, for places on the
        globe. periodic: columns whose values come round again, and after how much, such as {"hour": 24}.

        memory, out: for tables larger than memory. They go through in a stream, at most so much is held ("4GiB"), and
        the model is the folder `out`; see `GPnnRegressor.fit_stream`. Noise and weights are not for it.
        """
        check_policy(missing)
        targets = named_once(target)
        if memory is not None:
            others = {"several targets": targets[1] if len(targets) > 1 else None}
            check_stream(out, {"noise": noise, "weight": weight} | others)
        regressor = GPnnRegressor() if regressor is None else regressor
        table = _opened(table, "read" if regressor.verbose else None)
        to_come = said(table, targets, features, group, time)
        beside = [name for name in (noise, weight) if name is not None]
        table.require(beside, "It was named as a column of noise or weights.")
        names = choose(table, targets, features, [*(ignore or []), *([] if group is None else [group]), *beside])
        policy = "impute" if missing == "impute" else "error"
        encoder = TableEncoder(
            categories=categories or [], max_levels=max_levels, coordinates=coordinates, periodic=periodic,
            missing=policy,
        )  # fmt: skip
        n_rows = encoder.survey(table, names)
        if not encoder.outputs:
            raise InvalidInputError(f"Every column of {table.name} has one value only. There is nothing to learn from.")
        if memory is not None and out is not None:
            model = cls(encoder, regressor, targets[0], missing, group, time)
            model._fit_stream(table, memory, Path(out), to_come)
            return model
        watch = Watch(table, encoder, targets) if to_come is None and can_be_told(regressor) else None
        rows = read_rows(table, encoder, targets, missing, n_rows, to_come, watch, beside)
        if len(rows.y) < 2:
            raise InvalidInputError(
                f"{table.name} has {len(rows.y)} rows to learn from. Check that it is the right file, and that not "
                "every row has a missing value."
            )
        X = encoder.learn(rows.X, rows.y if len(targets) == 1 else in_common(rows.y))
        if missing == "impute":
            encoder.impute(X)
        if watch is not None:
            watch.warn()
        told = {} if to_come is None else {to_come.argument: rows.labels}
        told |= {} if noise is None else {"noise_variance": rows.beside[noise]}
        told |= {} if weight is None else {"sample_weight": rows.beside[weight]}
        regressor.fit(_named(X, encoder), rows.y, **told)
        target = targets[0] if len(targets) == 1 else targets
        return cls(encoder, regressor, target, missing, group, time, noise, weight)

    def _fit_stream(self, table: Table, memory: int | str, out: Path, to_come: Group | Time | None) -> None:
        """The encoder learns what it needs to from the sample; after that, rows are encoded as they will be."""
        encoder, missing = self.encoder, self.missing
        learned = False

        def batches() -> Iterator[tuple]:
            for rows in usable_rows(table, encoder, self.targets, missing, to_come):
                X = encoder.impute(rows.X) if learned and missing == "impute" else rows.X
                yield (X, rows.y) if to_come is None else (X, rows.y, rows.labels)

        def learn(drawn: Drawn) -> Drawn:
            nonlocal learned
            X = encoder.learn(drawn.X, drawn.y)
            learned = True
            return replace(drawn, X=encoder.impute(X) if missing == "impute" else X)

        self.regressor.fit_stream(
            batches, out, memory=memory, n_rows=table.n_rows, names=encoder.outputs, prepare=learn, schema=self.schema,
            to_come=None if to_come is None else to_come.argument,
        )  # fmt: skip

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
        to_come = {name: schema.get(name) for name in ("group", "time", "noise", "weight")}  # earlier files do not say
        named = all(name is None or isinstance(name, str) for name in to_come.values())
        names = named_in(target, regressor)
        if not (isinstance(encoder, dict) and names and missing in POLICIES and named):
            raise FileError(f"{path} says nothing of its columns that this gpnn understands. {CURE_OF_DAMAGE}")
        model = cls(TableEncoder.from_dict(encoder), regressor, names, missing, **to_come)
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
        return {
            "target": self.target, "missing": self.missing, "group": self.group, "time": self.time,
            "noise": self.noise, "weight": self.weight, "encoder": self.encoder.to_dict(),
        }  # fmt: skip

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,) if isinstance(self.target, str) else self.target

    def of(self, target: str | None = None) -> TableModel:
        """The model of one of several targets, as good as any other: for questions to one, and to be saved."""
        if target is None and isinstance(self.target, str):
            return self
        if target not in self.targets:
            asked = "" if target is None else f"{target!r} is not among them. "
            raise InvalidInputError(
                f"The targets of this model are {listed(list(self.targets))}. {asked}Say which one is meant: --target "
                f"{self.targets[0]} on the command line, of({self.targets[0]!r}) in Python."
            )
        if isinstance(self.target, str):
            return self
        return replace(self, regressor=self.regressor.targets_[self.targets.index(target)], target=target)

    def read_rows(self, table, missing: str | None = None) -> tuple[pd.DataFrame, Array]:
        """Encoded inputs and target (or targets, NaN where one is missing) of every row, but of those that `missing`
        (default: as in `fit`) leaves out."""
        return self._known_rows(table, missing)[:2]

    def _known_rows(self, table, missing: str | None) -> tuple[pd.DataFrame, Array, dict[str, Array]]:
        """Also what is known of their noise, as the regressor takes it."""
        table, missing = self._prepare(table, missing, list(self.targets))
        beside = [name for name in (self.noise, self.weight) if name is not None and name in table.types]
        rows = read_rows(table, self.encoder, self.targets, missing, table.n_rows, beside=beside)
        if missing == "impute":
            self.encoder.impute(rows.X)
        warn_of_unknown(rows.unknown)
        arguments = {self.noise: "noise_variance", self.weight: "sample_weight"}
        return _named(rows.X, self.encoder), rows.y, {arguments[name]: rows.beside[name] for name in beside}

    def evaluate(self, table, missing: str | None = None, units: str = "y") -> dict[str, Any]:
        """The scores of `GPnnRegressor.evaluate`, the number of rows they are of, and "outside_support": the share of
        rows outside the support, None where the model does not know. Of several targets, such scores by target."""
        if units not in ("y", "whitened"):
            raise InvalidInputError(f"units = {units!r} is unknown. Choose 'y' or 'whitened' (the paper's).")
        found: dict[str, Scored] = {name: Scored() for name in self.targets}
        for X, y, noise in self.in_parts(table, missing):
            with _in_our_words():
                law = self.regressor.predict_distribution(X, noise)
            for name, regressor, of_y, of_law in zip(self.targets, *self._by_target(y, law), strict=True):
                if len(of_y):
                    found[name] = found[name].and_also(
                        regressor._scores(of_y, of_law, units), of_law.support, len(of_y)
                    )
        for name, scored in found.items():
            if scored.n == 0:
                raise InvalidInputError(
                    f"No row is left to evaluate on. Check that the table has rows with a target ({name})."
                )
            self._warn_of_outside(scored.outside or 0, scored.n)
        scores = {name: scored.as_dict() for name, scored in found.items()}
        return scores[self.target] if isinstance(self.target, str) else scores

    def _by_target(self, y: Array, law: Prediction) -> tuple[list, list, list]:
        """Regressors, targets and laws, where these are known."""
        if isinstance(self.target, str):
            return [self.regressor], [y], [law]
        known = [np.flatnonzero(~np.isnan(column)) for column in y.T]
        laws = [self.regressor._of_target(law, j)[rows] for j, rows in enumerate(known)]
        return self.regressor.targets_, [column[rows] for column, rows in zip(y.T, known, strict=True)], laws

    def in_parts(self, table, missing: str | None = None) -> Iterator[tuple[pd.DataFrame, Array, Array | None]]:
        """Encoded inputs, targets and what is known of their noise, some thousand rows at a time."""
        table, missing = self._prepare(table, missing, list(self.targets))
        beside = [self.noise] if self.noise is not None and self.noise in table.types else []
        unknown: Counter = Counter()
        for rows in larger_parts(
            usable_rows(table, self.encoder, self.targets, missing, beside=beside, unknown=unknown)
        ):
            X = self.encoder.impute(rows.X) if missing == "impute" else rows.X
            yield _named(X, self.encoder), rows.y, rows.beside[0] if beside else None
        warn_of_unknown(unknown)

    def recalibrate(self, table, missing: str | None = None) -> TableModel:
        """Itself, its variances and the shape of its errors corrected by rows whose target is known. What was learned
        stays; `regressor.recalibration_` says what changed (of several targets, that of `regressor.targets_`)."""
        if not isinstance(self.target, str):
            for name in self.targets:
                self.of(name).recalibrate(table, missing)
            return self
        X, y, noise = self._some_rows(table, missing, "recalibrate on")
        noise.pop("sample_weight", None)
        self.regressor.recalibrate(X, y, **noise)
        return self

    def partial_fit(self, table, missing: str | None = None, window: int | None = None) -> TableModel:
        """Itself, with the rows of the table learned too; see `GPnnRegressor.partial_fit`. Rules for columns stay."""
        X, y, told = self._some_rows(table, missing, "learn from")
        self.regressor.partial_fit(X, y, window=window, **told)
        return self

    def explain(self, table, missing: str | None = None):
        """Of each row, why it is predicted as it is: `GPnnRegressor.explain`. Training rows are numbered from 0, as
        they were learned from: without those that `fit` left out for a missing value."""
        return self.regressor.explain(self.read_inputs(table, missing))

    def read_inputs(self, table, missing: str | None = None) -> pd.DataFrame:
        """Encoded inputs of every row, but of those that `missing` (default: as in `fit`) leaves out."""
        table, missing = self._prepare(table, missing, [])
        unknown: Counter = Counter()
        parts = [self.encoder.encode(batch, unknown) for batch in table.batches(self.encoder.inputs)]
        X = np.concatenate([np.empty((0, len(self.encoder.outputs))), *parts])
        if missing == "impute":
            self.encoder.impute(X)
        whole = ~np.isnan(X).any(axis=1)
        if missing == "error" and not whole.all():
            counts = self.encoder.missing_by_column(X)
            raise InvalidInputError(f"{table.name}: " + missing_message(counts, int((~whole).sum()), CURE))
        warn_of_unknown(unknown)
        warn_of_dropped(int((~whole).sum()), len(X), "were left out: a value is missing")
        return _named(X[whole], self.encoder)

    def predict(self, table, coverage: float = 0.9, keep: list[str] | None = None, missing: str | None = None):
        """A pyarrow table: the columns to keep, then mean, sd, lower, upper and support, a row for each row. Of several
        targets, each has such columns, with its name before them: price_mean."""
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

    def _some_rows(self, table, missing: str | None, purpose: str) -> tuple[pd.DataFrame, Array, dict[str, Array]]:
        X, y, noise = self._known_rows(table, missing)
        if len(y) == 0:
            raise InvalidInputError(f"No row is left to {purpose}. Check that the table has rows with a target.")
        return X, y, noise

    def _warn_of_outside(self, outside: int, n_rows: int) -> None:
        """Where many rows are of a kind that the model was not told of."""
        if self.group is None and self.time is None and outside > max(_FEW, _MANY * n_rows):
            warnings.warn(
                f"{outside:,} of {n_rows:,} rows lie outside the support: farther from the training rows than 99 of "
                "100 of these do from each other. A model learned for gaps answers them, and less is known of them. If "
                "rows to come are of new groups or later, fit again with --group or --time (group=… or time=… in "
                "Python); with some of their outcomes, gpnn recalibrate.",
                GPnnWarning,
                stacklevel=3,
            )

    # --- the stream ---------------------------------------------------------------------------------------------------

    def _prepare(self, table, missing: str | None, more: list[str]) -> tuple[Table, str]:
        missing = self.missing if missing is None else missing
        check_policy(missing)
        table = _opened(table, "read" if self.regressor.verbose else None)
        table.require(self.encoder.inputs, "The model was fitted with it.")
        table.require(more, "It was asked for by name.")
        return table, missing

    def _predictions(self, table: Table, coverage: float, keep: list[str], missing: str):
        """The schema of the answer, and its batches."""
        if not 0 < coverage < 1:
            raise InvalidInputError(f"coverage = {coverage} must lie strictly between 0 and 1, such as 0.9.")
        answers = (*ANSWERS, SUPPORT)
        one = isinstance(self.target, str)
        added = answers if one else [f"{target}_{name}" for target in self.targets for name in answers]
        if any(name in added for name in keep) or len(set(keep)) < len(keep):
            raise InvalidInputError(
                f"Columns to keep must differ from each other and from {', '.join(added)}: {listed(keep)}. Rename."
            )
        schema = pa.schema([*((name, table.types[name]) for name in keep), *((name, pa.float64()) for name in added)])
        return schema, self._stream(table, coverage, keep, missing, schema)

    def _stream(self, table: Table, coverage: float, keep: list[str], missing: str, schema: pa.Schema):
        unknown: Counter = Counter()
        n_rows = n_empty = n_outside = 0
        of_noise = [self.noise] if self.noise in table.types else []
        for batch in table.batches(list(dict.fromkeys([*self.encoder.inputs, *keep, *of_noise]))):
            X = self.encoder.encode(batch, unknown)
            if missing == "impute":
                self.encoder.impute(X)
            noise = [numbers(batch.column(name), name) for name in of_noise]
            whole = ~np.isnan(X).any(axis=1) & ~np.isnan(np.sum([np.zeros(len(X)), *noise], axis=0))
            if missing == "error" and not whole.all():
                first = n_rows + int(np.argmin(whole)) + 1
                counts = self.encoder.missing_by_column(X)
                raise InvalidInputError(
                    f"{table.name}, row {first:,}: " + missing_message(counts, int((~whole).sum()), CURE)
                )
            answers = np.full((len(self.targets), len(ANSWERS) + 1, len(X)), np.nan)
            if whole.any():
                answers[:, :, whole] = self._answer(X[whole], coverage, *(values[whole] for values in noise))
            n_outside += int(np.sum((answers[:, -1] < OUTSIDE).any(axis=0)))
            n_rows, n_empty = n_rows + len(X), n_empty + int((~whole).sum())
            columns = [batch.column(name) for name in keep]
            found = [
                pa.array(answer, mask=mask)
                for of_target in answers
                for answer, mask in zip(of_target, [*[~whole] * len(ANSWERS), np.isnan(of_target[-1])], strict=True)
            ]
            yield pa.RecordBatch.from_arrays([*columns, *found], schema=schema)
        warn_of_unknown(unknown)
        warn_of_dropped(n_empty, n_rows, "have no prediction: a value is missing")
        self._warn_of_outside(n_outside, n_rows)

    def _answer(self, X: Array, coverage: float, noise: Array | None = None) -> Array:
        """Mean, sd, lower, upper and support of each target (k, 5, n); NaN where nothing is known of the last."""
        with _in_our_words():
            law = self.regressor.predict_distribution(_named(X, self.encoder), noise)
        nothing = np.full(law.mean.shape if law.support is None else 0, np.nan)
        ends = self.regressor._ends(law, coverage)
        answers = [law.mean, law.std, *ends, nothing if law.support is None else law.support]
        return np.stack(answers)[None] if isinstance(self.target, str) else np.stack(answers).transpose(2, 0, 1)


@contextmanager
def _in_our_words() -> Iterator[None]:
    """Without the regressor's own warning of rows outside the support: a stream has one for all, with columns in it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* lie outside the support", GPnnWarning)
        yield


def _opened(table, progress: str | None) -> Table:
    return replace(open_tables(table) if names_files(table) else as_table(table), progress=progress)


def _named(X: Array, encoder: TableEncoder) -> pd.DataFrame:
    """X with the names of its columns, not copied."""
    return pd.DataFrame(X, columns=encoder.outputs, copy=False)
