"""Questions and answers as JSON, CSV or Arrow streams. Nothing a client sends is trusted, run or kept."""

from __future__ import annotations

import csv
import io
import json
import math
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from gpnn.common.errors import InvalidInputError, listed
from gpnn.common.types import Array, Prediction
from gpnn.serve.models import Rows, ServedModel
from gpnn.serve.refusals import RefusalError
from gpnn.tables.model import ANSWERS
from gpnn.tables.reading import Table, csv_table, reading

JSON, CSV, ARROW = "application/json", "text/csv", "application/vnd.apache.arrow.stream"
KINDS = (JSON, CSV, ARROW)

JSON_BYTES = 8 << 20  # Python reads JSON in one go, while nobody else is served: more than that goes as CSV or Arrow
_EXPANDED = 256 << 20  # bytes that texts may become when dictionaries and views are written out
_MOST_NEIGHBORS, _MOST_QUANTILES = 100, 200
_SPARE = ("rows", "columns", "y")


@dataclass(frozen=True)
class Options:
    """What is asked beside the rows."""

    coverage: float = 0.9
    neighbors: int = 0
    quantiles: tuple[float, ...] = ()
    keep: tuple[str, ...] = ()
    """Columns of CSV and Arrow bodies to put before the answers; "*" for all."""
    noise_variance: float | tuple[float, ...] | None = None
    """Of a model that was fitted with some: what is known of the noise of y*, for all rows or for each."""

    @classmethod
    def of(cls, query: Mapping[str, Any], content: Mapping[str, Any]) -> Options:
        """From the address (?coverage=0.8&keep=id,name) and from JSON, which goes first."""
        unknown = [str(name)[:40] for name in (*query, *content) if name not in (*cls.__annotations__, *_SPARE)]
        if unknown:
            raise RefusalError(
                422,
                f"Options that are not known: {listed(unknown)}.",
                f"Known are {', '.join(cls.__annotations__)}; rows go under 'rows' or 'columns'.",
                "See /docs.",
            )
        given: dict[str, Any] = {key: _read_option(key, text) for key, text in query.items()} | dict(content)
        options = cls(**{key: _fixed(value) for key, value in given.items() if key not in _SPARE})
        options._check()
        return options

    def _check(self) -> None:
        def is_share(value: Any) -> bool:
            return type(value) in (int, float) and 0 < value < 1

        wrong = None
        if not is_share(self.coverage):
            wrong = "coverage must be a number strictly between 0 and 1, such as 0.9"
        elif type(self.neighbors) is not int or not 0 <= self.neighbors <= _MOST_NEIGHBORS:
            wrong = f"neighbors must be a whole number from 0 to {_MOST_NEIGHBORS}"
        elif type(self.quantiles) is not tuple or not all(map(is_share, self.quantiles)):
            wrong = "quantiles must be a list of probabilities strictly between 0 and 1"
        elif len(self.quantiles) > _MOST_QUANTILES:
            wrong = f"quantiles must be at most {_MOST_QUANTILES}"
        elif type(self.keep) is not tuple or not all(isinstance(name, str) for name in self.keep):
            wrong = "keep must be a list of column names"
        elif not _are_variances(self.noise_variance):
            wrong = "noise_variance must be a number, or one for each row, none of them negative"
        if wrong:
            raise RefusalError(
                422, f"An option cannot be used: {wrong}.", "Correct it and send the rows again.", "See /docs."
            )


def _are_variances(value: Any) -> bool:
    values = () if value is None else value if isinstance(value, tuple) else (value,)
    return all(type(one) in (int, float) and 0 <= one < np.inf for one in values)


def _fixed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _read_option(name: str, text: str) -> Any:
    """Of the address, where all is text. What cannot be read stays text, and is refused as such."""
    try:
        if name in ("coverage", "noise_variance"):
            return float(text)
        if name == "neighbors":
            return int(text[:20])
        if name == "quantiles":
            return tuple(float(part) for part in text.split(","))
    except ValueError:
        return text
    return tuple(text.split(",")) if name == "keep" else text


@dataclass(frozen=True)
class Question:
    """A request, read: encoded rows, what is asked of them, and the columns that go back as they came."""

    rows: Rows
    options: Options
    kept: pa.Table | None = None
    outcomes: Any = None
    """What "y" was, where it was given."""
    values: dict[str, list] | None = None
    """Of JSON: the values as they came, by column."""

    @property
    def n_rows(self) -> int:
        return len(self.rows.whole)

    def with_noise(self, law: Prediction) -> Prediction:
        """Some of the question's laws, with the noise that it speaks of."""
        given = self.options.noise_variance
        if given is None:
            return law
        if law.known is None:
            raise RefusalError(
                422, "noise_variance was given, but the model was fitted without.", "Leave it out, or fit with --noise."
            )
        if isinstance(given, tuple) and len(given) != self.n_rows:
            raise RefusalError(422, f"noise_variance has {len(given)} values for {self.n_rows} rows.", "Give one each.")
        known = np.array(given)[self.rows.whole] if isinstance(given, tuple) else np.full(len(law), given)
        return replace(law, known=None, variance=law.own).with_noise(known)


def read(kind: str, body: bytes, model: ServedModel, query: Mapping[str, str], max_rows: int) -> Question:
    if kind == JSON:
        return _read_json(body, model, query, max_rows)
    options = Options.of(query, {})
    if options.neighbors:
        raise RefusalError(422, "Neighbours are lists of rows, which a flat table has no place for.", "Ask in JSON.")
    with reading("The body"):
        table = csv_table("The body", lambda: pa.BufferReader(body)) if kind == CSV else _arrow_table(body, max_rows)
        return _read_table(table, model, options, max_rows)


# --- JSON -------------------------------------------------------------------------------------------------------------


def _read_json(body: bytes, model: ServedModel, query: Mapping[str, str], max_rows: int) -> Question:
    content = parsed(body)
    options = Options.of(query, content)
    values = _columns(content, model, max_rows)
    return Question(model.rows_of_values(values), options, outcomes=content.get("y"), values=values)


def parsed(body: bytes) -> dict:
    if len(body) > JSON_BYTES:
        raise RefusalError(
            413,
            f"This JSON has {len(body):,} bytes; the server reads at most {JSON_BYTES:,}.",
            "Send several requests, or CSV, or an Arrow stream, which may be larger.",
            "See /docs.",
        )
    try:
        content = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except RecursionError as error:
        raise _bad_json("it is nested too deeply") from error
    except ValueError as error:
        raise _bad_json(str(error)[:200]) from error
    if not isinstance(content, dict):
        raise _bad_json("it is not an object")
    return content


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON; a missing value is null")


def _bad_json(reason: str) -> RefusalError:
    return RefusalError(
        400,
        f"The body cannot be read as JSON: {reason}.",
        'Send {"rows": [{"column": value, …}, …]} or {"columns": {"column": [value, …], …}} in UTF-8.',
        "See /docs.",
    )


def _columns(content: dict, model: ServedModel, max_rows: int) -> dict[str, list]:
    """Lists of values by column, all of one length."""
    if ("rows" in content) == ("columns" in content):
        raise _bad_json("it must have either 'rows' or 'columns'")
    names = model.encoder.inputs
    if "columns" in content:
        columns = content["columns"]
        if not isinstance(columns, dict) or not all(isinstance(values, list) for values in columns.values()):
            raise _bad_json("'columns' must be an object of lists")
        _require(columns, names, "The body")
        _check_rows(max((len(columns[name]) for name in names), default=0), max_rows)
        if len({len(columns[name]) for name in names}) > 1:
            lengths = listed([f"{name} ({len(columns[name])})" for name in names])
            raise InvalidInputError(f"Columns are of different lengths: {lengths}. Send one value a row in each.")
        return {name: columns[name] for name in names}
    rows = content["rows"]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise _bad_json("'rows' must be a list of objects")
    _check_rows(len(rows), max_rows)
    try:
        return {name: [row[name] for row in rows] for name in names}
    except KeyError:
        number, row = next((k, row) for k, row in enumerate(rows) if not all(name in row for name in names))
        _require(row, names, f"Row {number + 1}")
        raise


def _require(found: Mapping, names: list[str], where: str) -> None:
    """Refuse if a column is not there: a misspelt name must not pass for a missing value."""
    Table(where, dict.fromkeys(map(str, found), pa.null()), lambda _: iter(())).require(
        names, "Send null where a value is missing."
    )


def _check_rows(n: int, max_rows: int) -> None:
    if n > max_rows:
        raise RefusalError(
            413, f"The body has {n:,} rows or more; the server takes at most {max_rows:,} at a time.",
            "Send several requests, or start the server with a larger --max-rows.", "See /docs.",
        )  # fmt: skip


# --- CSV and Arrow ----------------------------------------------------------------------------------------------------


def _read_table(table: Table, model: ServedModel, options: Options, max_rows: int) -> Question:
    keep = list(table.types) if options.keep == ("*",) else list(options.keep)
    table.require(model.encoder.inputs, "The model was fitted with it.")
    table.require(keep, "It was asked for by name.")
    clash = [name for name in keep if name in ANSWERS]
    if clash or len(set(keep)) < len(keep):
        raise InvalidInputError(f"Columns to keep must differ from {', '.join(ANSWERS)}: {listed(clash)}. Rename them.")
    parts: list[Rows] = []
    kept: list[pa.RecordBatch] = []
    n_rows = 0
    for batch in table.batches(list(dict.fromkeys([*model.encoder.inputs, *keep]))):
        n_rows += batch.num_rows
        _check_rows(n_rows, max_rows)
        parts.append(model.rows(batch))
        kept.append(batch.select(keep))
    schema = pa.schema([(name, table.types[name]) for name in keep])
    return Question(_joined(parts, model), options, pa.Table.from_batches(kept, schema) if keep else None)


def _joined(parts: list[Rows], model: ServedModel) -> Rows:
    if not parts:
        return Rows(np.empty((0, len(model.encoder.outputs))), np.ones(0, bool), Counter(), {})
    missing: Counter = Counter()
    for part in parts:
        missing.update(part.missing)
    return Rows(
        np.concatenate([part.X for part in parts]),
        np.concatenate([part.whole for part in parts]),
        sum((part.unknown for part in parts), Counter()),
        dict(missing),
    )


def _arrow_table(body: bytes, max_rows: int) -> Table:
    """An IPC stream, held against what a few bytes could become: compressed or repeated values, rows without bytes."""
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(body)):
        if _is_compressed(message.metadata.to_pybytes()):
            raise RefusalError(
                422, "The Arrow stream is compressed, and could be of any size.",
                "Write it without compression: pyarrow.ipc.IpcWriteOptions(compression=None).", "See /docs.",
            )  # fmt: skip
    with pa.ipc.open_stream(pa.BufferReader(body)) as opened:
        types = {field.name: field.type for field in opened.schema}
        if len(types) < len(opened.schema):
            raise InvalidInputError("Several columns of the body have the same name. Rename them.")

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        n_rows = 0
        with pa.ipc.open_stream(pa.BufferReader(body)) as reader:
            for batch in reader:
                n_rows += batch.num_rows
                _check_rows(n_rows, max_rows)
                for name in columns:
                    column = batch.column(name)
                    column.validate(full=True)
                    _check_size(name, column)
                yield batch

    return Table("The body", types, read)


def _is_compressed(metadata: bytes) -> bool:
    """Whether a message is a batch whose buffers are compressed; Arrow's flatbuffer, read just so far."""

    def field(table: int, number: int) -> int | None:
        vtable = table - struct.unpack_from("<i", metadata, table)[0]
        if 4 + 2 * number >= struct.unpack_from("<H", metadata, vtable)[0]:
            return None
        offset = struct.unpack_from("<H", metadata, vtable + 4 + 2 * number)[0]
        return table + offset if offset else None

    def child(table: int, number: int) -> int | None:
        place = field(table, number)
        return None if place is None else place + struct.unpack_from("<I", metadata, place)[0]

    try:
        message = struct.unpack_from("<I", metadata)[0]
        kind_at, header = field(message, 1), child(message, 2)
        if kind_at is None or header is None:
            return False
        kind = metadata[kind_at]
        batch = child(header, 1) if kind == 2 else header  # a dictionary's batch lies one level deeper
        return kind in (2, 3) and batch is not None and field(batch, 3) is not None
    except (struct.error, IndexError) as error:
        raise ValueError("a message of the Arrow stream contradicts itself") from error


_PLAIN = (
    pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_null,
    pa.types.is_string, pa.types.is_large_string, pa.types.is_date, pa.types.is_time, pa.types.is_timestamp,
    pa.types.is_duration,
)  # fmt: skip


def _check_size(name: str, column: pa.Array) -> None:
    """Types that the model could read, and that are not much larger once written out."""
    kind = column.type
    if any(check(kind) for check in _PLAIN):
        return
    if str(kind) == "string_view":
        size = _view_bytes(column)
    elif pa.types.is_dictionary(kind) and (
        is_text := str(kind.value_type) in ("string", "large_string", "string_view")
    ):
        longest = pc.max(pc.binary_length(column.dictionary.cast(pa.large_string()))).as_py() if is_text else 8
        size = len(column) * (longest or 0)
    else:
        raise InvalidInputError(
            f"Column {name!r} is of type {kind}. Send numbers, booleans, dates, texts, or dictionaries of texts."
        )
    if size > _EXPANDED:
        raise RefusalError(
            413, f"The texts of column {name[:80]!r} are too large once written out.", "Send fewer rows."
        )


def _view_bytes(column: pa.Array) -> int:
    """Bytes of all texts of a string_view column: the first four of its sixteen bytes a value are the length."""
    views = np.frombuffer(column.buffers()[1], dtype="<i4").reshape(-1, 4)[column.offset : column.offset + len(column)]
    return int(np.maximum(views[:, 0], 0).sum(dtype=np.int64))


# --- answers ----------------------------------------------------------------------------------------------------------


def answer_kind(accept: str | None, asked_in: str) -> str:
    """The kind that the client wants to read: the one it asked in, unless its Accept header says otherwise."""
    if not accept:
        return asked_in
    wanted = [part.split(";")[0].strip().lower() for part in accept.split(",")]
    for kind in wanted:
        if kind in KINDS:
            return kind
        if kind in ("*/*", "application/*", "text/*") and (kind == "*/*" or asked_in.startswith(kind[:-1])):
            return asked_in
    cure = f"Accept one of {', '.join(KINDS)}, or */*."
    raise RefusalError(406, f"The answer cannot be given as {accept[:80]!r}.", cure, "See /docs.")


def columns_of(model: ServedModel, law: Prediction, options: Options) -> dict[str, Array]:
    """mean, sd, lower and upper, and the quantiles asked for: the same numbers as `TableModel.predict`."""
    levels = np.array([0.5 - options.coverage / 2, 0.5 + options.coverage / 2, *options.quantiles])
    lower, upper, *quantiles = model.ends(law, levels)
    answers = {"mean": law.mean, "sd": law.std, "lower": lower, "upper": upper}
    answers |= {f"q{level:g}": values for level, values in zip(options.quantiles, quantiles, strict=True)}
    if not all(np.isfinite(values).all() for values in answers.values()):
        raise InvalidInputError("An answer is not finite: an input is too large. Send values near the training range.")
    return answers


def as_json(model: ServedModel, question: Question, law: Prediction, beyond: dict, neighbors: list | None) -> bytes:
    """`beyond`: what `ServedModel.beyond` gave."""
    options, whole = question.options, question.rows.whole
    answers = columns_of(model, law, options)
    content: dict[str, Any] = {"model": model.name, "version": model.version, "target": model.table.target}
    content |= {"coverage": options.coverage}
    content |= {name: _spread(answers[name].tolist(), whole) for name in ANSWERS}
    if options.quantiles:
        content["quantiles"] = [_spread(answers[f"q{level:g}"].tolist(), whole) for level in options.quantiles]
    content["outside"] = _spread(_names_of(beyond, len(law)), whole)
    if question.rows.unknown:
        content["unknown_levels"] = dict(question.rows.unknown)
    if question.rows.missing:
        content["missing"] = question.rows.missing
    if neighbors is not None:
        content["neighbors"] = _spread(neighbors, whole)
    return json.dumps(content, allow_nan=False).encode()


def _names_of(beyond: dict[str, NDArray[np.bool_]], n_rows: int) -> list[list[str]]:
    """For each row, the columns that are beyond the training rows."""
    names: list[list[str]] = [[] for _ in range(n_rows)]
    for column, strange in beyond.items():
        for row in np.flatnonzero(strange):
            names[row].append(column)
    return names


def _spread(values: list, whole: NDArray[np.bool_]) -> list:
    """One entry a row, null where the row had no answer."""
    if len(values) == len(whole):
        return values
    answered = iter(values)
    return [next(answered) if there else None for there in whole]


class Writer:
    """An answer in CSV or Arrow, block by block."""

    def __init__(self, kind: str, model: ServedModel, question: Question):
        self._model, self._question = model, question
        self._sink = io.BytesIO()
        names = [*ANSWERS, *(f"q{level:g}" for level in question.options.quantiles)]
        kept = [] if question.kept is None else list(question.kept.schema)
        self._schema = pa.schema([*kept, *(pa.field(name, pa.float64()) for name in names)])
        target = pa.PythonFile(self._sink, "w")
        self._out: Any
        if kind == CSV:
            header = io.StringIO()
            csv.writer(header, lineterminator="\n").writerow(self._schema.names)
            self._sink.write(header.getvalue().encode())
            options = pa.csv.WriteOptions(include_header=False)
            self._out = pa.csv.CSVWriter(target, self._schema, write_options=options)
        else:
            self._out = pa.ipc.new_stream(target, self._schema)

    def block(self, part: slice, law: Prediction) -> bytes:
        """Of these rows of the question, of which `law` answers those that are whole."""
        whole = self._question.rows.whole[part]
        columns = []
        for values in columns_of(self._model, law, self._question.options).values():
            spread = np.full(len(whole), math.nan)
            spread[whole] = values
            columns.append(pa.array(spread, mask=~whole))
        kept = self._question.kept
        if kept is not None:
            table = kept.slice(part.start, part.stop - part.start)
            columns = [*(column.combine_chunks() for column in table.columns), *columns]
        self._out.write_table(pa.Table.from_arrays(columns, schema=self._schema))
        return self._taken()

    def end(self) -> bytes:
        self._out.close()
        return self._taken()

    def _taken(self) -> bytes:
        content = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return content
