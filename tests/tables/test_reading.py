import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from gpnn.errors import FileError, InvalidInputError
from gpnn.tables import reading
from gpnn.tables.reading import as_table, open_table

N = 1000


@pytest.fixture
def numbers(monkeypatch):
    """A table of several batches, whose rows know their place."""
    monkeypatch.setattr(reading, "BATCH_ROWS", 300)
    monkeypatch.setattr(reading, "_CSV_BLOCK", 1 << 12)
    return pd.DataFrame({"row": np.arange(N), "half": np.arange(N) / 2})


def read(table, column: str) -> np.ndarray:
    batches = list(table.batches([column]))
    assert max(batch.num_rows for batch in batches) <= reading.BATCH_ROWS
    return np.concatenate([batch.column(column).cast(pa.float64()).to_numpy() for batch in batches])


WRITERS = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "csv.gz": lambda frame, path: frame.to_csv(path, index=False),
    "tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "parquet": lambda frame, path: frame.to_parquet(path, row_group_size=170),
    "feather": lambda frame, path: frame.to_feather(path),
}


@pytest.mark.parametrize("ending", WRITERS)
def test_every_format_streams_its_rows_in_order(ending, numbers, tmp_path):
    path = tmp_path / f"table.{ending}"
    WRITERS[ending](numbers, path)
    table = open_table(path)
    assert list(table.types) == ["row", "half"]
    np.testing.assert_array_equal(read(table, "row"), np.arange(N))
    np.testing.assert_array_equal(read(table, "half"), np.arange(N) / 2)  # a second pass


@pytest.mark.parametrize("kind", ["<f8", ">f4", "i8", "bool"])
def test_columns_of_npy_are_named_by_number(kind, numbers, tmp_path):
    values = np.arange(2 * N).reshape(N, 2).astype(kind)
    np.save(tmp_path / "x.npy", values)
    table = open_table(tmp_path / "x.npy")
    assert list(table.types) == ["column_0", "column_1"]
    np.testing.assert_array_equal(read(table, "column_1"), values[:, 1].astype(float))


@pytest.mark.parametrize(
    "convert", [lambda frame: frame, pa.Table.from_pandas, "polars", lambda frame: frame.to_numpy()]
)
def test_frames_are_tables_too(convert, numbers):
    if convert == "polars":
        convert = pytest.importorskip("polars").from_pandas
    table = as_table(convert(numbers))
    np.testing.assert_array_equal(read(table, next(iter(table.types))), np.arange(N))


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_that_of_the_header(separator, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(separator.join(["a", '"b, or ; | c"', "d"]) + "\n" + separator.join("123") + "\n")
    assert list(open_table(path).types) == ["a", "b, or ; | c", "d"]


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8-sig")
    assert list(open_table(path).types) == ["a", "b"]


def test_the_index_that_pandas_writes_is_not_a_column(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [2.0, 3.0]}, index=[7, 5])
    frame.to_csv(tmp_path / "x.csv")
    frame.to_parquet(tmp_path / "x.parquet")
    for path in tmp_path.iterdir():
        assert list(open_table(path).types) == ["a", "b"]


BROKEN = {
    "empty": (b"", "Empty CSV"),
    "ragged": (b"a,b\n1,2\n3\n", "Expected 2 columns, got 1"),
    "latin-1": ("a,b\n1,é\n".encode("latin-1"), "UTF-8"),
    "a name in latin-1": ("é,b\n1,2\n".encode("latin-1"), "UTF-8"),
    "utf-16": ("a,b\n1,2\n".encode("utf-16"), "UTF-16"),
    "utf-16 without a mark": ("a,b\n1,2\n".encode("utf-16-le"), "UTF-16"),
    "open quote": (b'a,b\n1,2\n3,"4\n5,6\n', "never closed"),
    "a field beyond any sense": (b'a,b\n1,"' + b"x" * (1 << 23) + b'"\n', "cannot be read"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_csv_is_explained(case, tmp_path):
    content, reason = BROKEN[case]
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(FileError, match=reason):
        list(open_table(tmp_path / "x.csv").batches(["a"]))


def test_quotes_that_are_closed_may_hold_lines(tmp_path):
    (tmp_path / "x.csv").write_text('a,b\n1,"two\nlines"\n2,"3 ""inches"""\n3,"two\nlines"\n')
    table = open_table(tmp_path / "x.csv")
    assert [row["b"] for batch in table.batches(["b"]) for row in batch.to_pylist()] == [
        "two\nlines", '3 "inches"', "two\nlines",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "error", "reason"),
    [
        ("x.csv", b"a,a\n1,2\n", InvalidInputError, "same name: 'a'"),
        ("x.xlsx", b"", InvalidInputError, r"ending.*\.csv.*\.parquet"),
        ("x", b"", InvalidInputError, "ending"),
        ("x.parquet", b"PAR1", FileError, "cannot be read"),
        ("x.feather", b"ARROW1", FileError, "cannot be read"),
        ("x.csv.gz", gzip.compress(b"a,b\n1,2\n" * 1000, mtime=0)[:-20], FileError, "cannot be read"),
        ("x.npy", b"\x93NUMPY", FileError, "cannot be read"),
    ],
)
def test_other_files_that_are_no_tables(name, content, error, reason, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=reason):
        list(open_table(tmp_path / name).batches(["a"]))


@pytest.mark.parametrize("values", [np.zeros(3), np.zeros((2, 2, 2)), np.array([["a"]]), np.array([[1j]])])
def test_arrays_that_are_no_tables(values, tmp_path):
    np.save(tmp_path / "x.npy", values)
    with pytest.raises(InvalidInputError, match="matrix of numbers"):
        open_table(tmp_path / "x.npy")


def test_pickled_arrays_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.array([[{}]]), allow_pickle=True)
    with pytest.raises(FileError, match="cannot be read"):
        open_table(tmp_path / "x.npy")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileError, match="There is no file"):
        open_table(tmp_path / "x.csv")


def test_a_missing_column_brings_near_names():
    table = as_table(pd.DataFrame({"temperature": [1.0], "wind": [2.0]}))
    with pytest.raises(InvalidInputError, match=r"no column 'temprature'. Did you mean 'temperature'.*It was"):
        table.require(["temprature"], "It was asked for.")
