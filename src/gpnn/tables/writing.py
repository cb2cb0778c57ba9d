"""Tables written batch by batch: a file is whole or not there, standard output gets CSV as it comes."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from gpnn.common.errors import InvalidInputError
from gpnn.files.whole import check_folder, whole_or_nothing

Write = Callable[[pa.RecordBatch], None]
ENDINGS = (".csv", ".parquet")

_GROUP_ROWS = 1 << 18


def check_output(path: Path | None) -> None:
    if path is not None:
        check_folder(path, ENDINGS)


@contextmanager
def writing(path: Path | None, schema: pa.Schema) -> Iterator[Write]:
    """A function that appends a batch to the table at `path`, or to standard output as CSV."""
    check_output(path)
    try:
        if path is None:
            with _csv(sys.stdout.buffer, schema) as write:
                yield write
            return
        format = _csv if path.suffix.lower() == ".csv" else _parquet
        with whole_or_nothing(path) as unfinished, open(unfinished, "wb") as file, format(file, schema) as write:
            yield write
    except pa.ArrowException as error:
        raise InvalidInputError(
            f"A column cannot be written to {path or 'standard output'}: {error}. Keep other columns; Parquet takes "
            "more types than CSV."
        ) from error


@contextmanager
def _csv(file: IO[bytes], schema: pa.Schema) -> Iterator[Write]:
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(schema.names)
    file.write(header.getvalue().encode())
    options = pa.csv.WriteOptions(include_header=False)
    with pa.csv.CSVWriter(pa.PythonFile(file, "w"), schema, write_options=options) as writer:
        yield writer.write_batch
    file.flush()


@contextmanager
def _parquet(file: IO[bytes], schema: pa.Schema) -> Iterator[Write]:
    """Batches are gathered into groups of rows that are worth a place in the file's index."""
    waiting: list[pa.RecordBatch] = []
    with pa.parquet.ParquetWriter(file, schema) as writer:

        def flush() -> None:
            writer.write_table(pa.Table.from_batches(waiting, schema))
            waiting.clear()

        def write(batch: pa.RecordBatch) -> None:
            waiting.append(batch)
            if sum(part.num_rows for part in waiting) >= _GROUP_ROWS:
                flush()

        yield write
        if waiting:
            flush()
