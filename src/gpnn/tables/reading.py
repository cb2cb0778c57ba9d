"""Tables as streams of record batches, rows in order, in bounded memory: CSV, Parquet, Feather, NPY, and frames."""

from __future__ import annotations

import glob
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from gpnn.common.errors import FileError, InvalidInputError, listed
from gpnn.engines.parallel import blocks, progress_bar

BATCH_ROWS = 16_384
MISSING_TEXTS = ["", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>"]
"""What stands for a missing value in CSV, as in pandas."""

_CSV_BLOCK = 1 << 20  # bytes; no row may be longer, and up to 32 blocks are read ahead
_SEPARATORS = ",;\t|"
_INDEX = re.compile(r"(__index_level_\d+__)?")  # as pandas names the numbers of rows: in CSV not at all


@dataclass(frozen=True)
class Table:
    """Named columns of some types, whose rows can be streamed as often as needed."""

    name: str
    types: dict[str, pa.DataType]
    read: Callable[[list[str]], Iterator[pa.RecordBatch]]
    """Batches of any size with at least the columns asked for."""
    n_rows: int | None = None
    """None: unknown before the end."""
    untyped: bool = False
    """Every value is a text, also a number; what it means is to be found out."""
    progress: str | None = None
    """Name of the bar that each pass over the rows shows."""

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """All rows of these columns, at most BATCH_ROWS at a time."""
        with reading(self.name), progress_bar(self.n_rows, self.progress) as bar:
            for batch in self.read(columns):
                chosen = pa.RecordBatch.from_arrays([batch.column(name) for name in columns], names=columns)
                chosen.validate(full=True)  # a damaged file must not lead outside of its buffers
                for part in blocks(batch.num_rows, BATCH_ROWS):
                    yield chosen.slice(part.start, part.stop - part.start)
                    bar.update(part.stop - part.start)

    def require(self, columns: list[str], cure: str) -> None:
        """Refuse if some of the columns are not there, with the names that come near."""
        absent = [name for name in columns if name not in self.types]
        if not absent:
            return
        near = [match for name in absent for match in get_close_matches(name, list(self.types), 1)]
        hint = f" Did you mean {listed([repr(name) for name in near])}?" if near else ""
        raise InvalidInputError(
            f"{self.name} has no column {listed([repr(name) for name in absent])}.{hint} "
            f"It has: {listed(list(self.types))}. {cure}"
        )


def open_table(path: str | Path) -> Table:
    """The table in a file, by its ending."""
    path = Path(path)
    ending = _ending(path)
    if ending not in _OPENERS:
        raise InvalidInputError(
            f"{path}: cannot tell the type of this file from its ending. Name it {', '.join(_OPENERS)}."
        )
    if not path.is_file():
        raise FileError(f"There is no file {path}. Check the name and the folder ({Path.cwd()}).")
    with reading(str(path)):
        table = _OPENERS[ending](path)
    if not table.types:
        raise FileError(f"{path} has no columns. Check that it is the right file, and that it is whole.")
    return table


def names_files(table) -> bool:
    """Whether this is a path, or several."""
    several = isinstance(table, list | tuple) and len(table) > 0
    return isinstance(table, str | Path) or (several and all(isinstance(one, str | Path) for one in table))


def open_tables(paths: str | Path | Sequence[str | Path]) -> Table:
    """Files as one table, rows in the order of their names: one, several, a folder of them, or a pattern."""
    said = [paths] if isinstance(paths, str | Path) else list(paths)
    files = [file for path in said for file in _files(Path(path))]
    if len(files) == 1:
        return open_table(files[0])
    tables = [open_table(file) for file in files]
    first, name = tables[0], f"{said[0]}{' and others' * (len(said) > 1)} ({len(tables)} files)"
    for table in tables[1:]:
        table.require(list(first.types), f"{first.name} has it; files that are one table have the same columns.")
        other = [column for column, kind in first.types.items() if table.types[column] != kind]
        if other and not all(_both_numbers(first.types[column], table.types[column]) for column in other):
            raise InvalidInputError(
                f"{listed(other)} of {table.name} is {table.types[other[0]]}, and of {first.name} "
                f"{first.types[other[0]]}. Write the files with the same types."
            )

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        for table in tables:
            with reading(table.name):
                yield from table.read(columns)

    counts = [table.n_rows for table in tables]
    n_rows = None if None in counts else sum(count for count in counts if count is not None)
    return Table(name, first.types, read, n_rows, first.untyped)


def _files(path: Path) -> list[Path]:
    """In the order of their names."""
    if path.is_dir():
        found = [file for file in sorted(path.iterdir()) if _ending(file) in _OPENERS and not file.name.startswith(".")]
        if not found:
            raise FileError(f"There is no table in the folder {path}: no file that ends in {', '.join(_OPENERS)}.")
        return found
    if path.exists() or not glob.has_magic(str(path)):
        return [path]
    found = [Path(file) for file in sorted(glob.glob(str(path), recursive=True))]
    if not found:
        raise FileError(f"No file is called {path}. Check the name and the folder ({Path.cwd()}).")
    return found


def _ending(path: Path) -> str:
    return "".join(path.suffixes[-2:]).lower() if path.suffix.lower() == ".gz" else path.suffix.lower()


def _both_numbers(one: pa.DataType, other: pa.DataType) -> bool:
    return all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in (one, other))


def as_table(frame) -> Table:
    """A table in memory: pandas, polars, pyarrow, anything else that speaks Arrow, or a matrix of numbers."""
    with reading("the table"):
        if hasattr(frame, "iloc"):
            arrow = pa.Table.from_pandas(frame.rename(columns=str), preserve_index=False)
        elif hasattr(frame, "__arrow_c_stream__"):
            arrow = pa.table(frame)
        else:
            return _matrix("the matrix", np.asarray(frame))
    return Table(
        "the table",
        _types(arrow.schema, "the table"),
        lambda columns: iter(arrow.select(columns).to_batches()),
        arrow.num_rows,
    )


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Whatever goes wrong while reading, said in one line."""
    try:
        yield
    except (FileError, InvalidInputError):
        raise
    except (pa.ArrowException, OSError, ValueError, EOFError, OverflowError, MemoryError) as error:
        reason = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
        raise FileError(
            f"{name} cannot be read: {reason}. It is truncated, damaged, or not what its name says; CSV must be UTF-8, "
            "with as many cells in each row as in the header. Check it, or write it again."
        ) from error


def _types(schema: pa.Schema, name: str) -> dict[str, pa.DataType]:
    names = Counter(name for name in schema.names if not _INDEX.fullmatch(name))
    twice = [name for name, times in names.items() if times > 1]
    if twice:
        raise InvalidInputError(
            f"{name} has several columns of the same name: {listed([repr(name) for name in twice])}. "
            "Columns are found by name; rename them."
        )
    return {name: schema.field(name).type for name in names}


# --- one function per type of file ------------------------------------------------------------------------------------


def _open_csv(path: Path) -> Table:
    return csv_table(str(path), lambda: pa.input_stream(str(path)))


def csv_table(name: str, open_stream: Callable[[], pa.NativeFile]) -> Table:
    """CSV that can be opened as often as it is read: a file, or bytes in memory."""
    with open_stream() as stream:
        header = stream.read(_CSV_BLOCK).split(b"\n", 1)[0]
    if header.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in header:
        raise FileError(f"{name} is UTF-16 or not text at all. Save it as CSV in UTF-8.")
    outside_quotes = re.sub(r'"[^"]*"', "", header.decode(errors="replace"))
    separator = max(_SEPARATORS, key=outside_quotes.count)

    def reader(columns: list[str]) -> pa.csv.CSVStreamingReader:
        return pa.csv.open_csv(
            open_stream(),
            pa.csv.ReadOptions(block_size=_CSV_BLOCK),
            pa.csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            pa.csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()),
                include_columns=columns,  # none: all
                null_values=MISSING_TEXTS,
                strings_can_be_null=True,
            ),
        )

    with reader([]) as first:
        types = dict.fromkeys(_types(first.schema, name), pa.string())

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        last = None
        with reader(list(types)) as batches:
            for last in batches:
                yield last
        if last is not None and last.num_rows:
            _check_quotes(name, open_stream, last.slice(last.num_rows - 1).to_pylist()[0])

    return Table(name, types, read, untyped=True)


def _check_quotes(name: str, open_stream: Callable[[], pa.NativeFile], last_row: dict) -> None:
    """A quote that is never closed swallows the rest of the file into the last cell."""
    if any("\n" in value for value in last_row.values() if value is not None):
        quotes = 0
        with open_stream() as stream:
            while part := stream.read(_CSV_BLOCK):
                quotes += part.count(b'"')
        if quotes % 2:
            raise FileError(f'{name}: a quote (") is opened and never closed. Its last cell holds several lines.')


def _open_parquet(path: Path) -> Table:
    def open_file() -> pa.parquet.ParquetFile:
        return pa.parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)

    with open_file() as file:
        types, n_rows = _types(file.schema_arrow, str(path)), file.metadata.num_rows

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        with open_file() as file:
            yield from file.iter_batches(BATCH_ROWS, columns=columns)

    return Table(str(path), types, read, n_rows)


def _open_feather(path: Path) -> Table:
    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)

    with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
        return Table(str(path), _types(reader.schema, str(path)), read)


def _open_npy(path: Path) -> Table:
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # numpy reads the header as Python's own parser would: anything can come of it
        raise ValueError(error) from error
    return _matrix(str(path), matrix)


def _matrix(name: str, matrix: np.ndarray) -> Table:
    """Columns of an array have no names of their own; here they are column_0, column_1, …"""
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"{name} holds an array of shape {matrix.shape} and type {matrix.dtype}. "
            "A table is a matrix of numbers: rows first, then columns."
        )

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        for part in blocks(len(matrix), BATCH_ROWS):
            rows = matrix[part].astype(float)
            yield pa.RecordBatch.from_arrays(
                [pa.array(rows[:, numbers[column]]) for column in columns], names=list(columns)
            )

    numbers = {f"column_{number}": number for number in range(matrix.shape[1])}
    return Table(name, dict.fromkeys(numbers, pa.float64()), read, len(matrix))


_OPENERS: dict[str, Callable[[Path], Table]] = {
    ".csv": _open_csv,
    ".csv.gz": _open_csv,
    ".tsv": _open_csv,
    ".parquet": _open_parquet,
    ".feather": _open_feather,
    ".npy": _open_npy,
}
