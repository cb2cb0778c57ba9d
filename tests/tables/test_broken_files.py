"""Thousands of broken tables: each gets predictions or one line that says what is wrong, never a traceback, a run
without end, or half a file."""

import random
import signal

import numpy as np
import pyarrow.parquet
import pytest

from gpnn import TableModel
from gpnn.cli import main
from gpnn.errors import FileError, InvalidInputError

_INSERTED = [
    b"\0",
    b'"',
    b",",
    b";",
    b"\n",
    b"\r",
    b"\r\n",
    b"\xff",
    b"\xc3",
    b"\xff\xfe",
    b"-",
    b"e",
    b"9" * 400,
    b"1,5",
]


@pytest.fixture
def check(model, tmp_path, monkeypatch, capsys):
    """A function that predicts a file of these bytes and says whether it went well."""
    monkeypatch.setattr(TableModel, "load", lambda path: model)
    out = tmp_path / "out.parquet"

    def overdue(*_):
        raise TimeoutError("a file that takes half a minute")

    def check(name: str, content: bytes, *options: str) -> bool:
        table = tmp_path / name
        table.write_bytes(content)
        signal.alarm(30)
        code = main(["predict", "model.gpnn", str(table), "--out", str(out), "--jobs", "1", *options])
        signal.alarm(0)
        written = capsys.readouterr()
        last = written.err.splitlines()[-1]
        if code == 0:
            rows = pyarrow.parquet.read_metadata(out).num_rows
            assert last == f"gpnn: predicted {rows:,} rows"
            out.unlink()
        else:
            assert code == 2
            assert last.startswith("gpnn: ")
            assert len(written.err.splitlines()) == 1
        assert written.out == ""
        assert list(tmp_path.iterdir()) == [table]
        table.unlink()
        return code == 0

    before = signal.signal(signal.SIGALRM, overdue)
    yield check
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def contents(frame, tmp_path_factory):
    """A good table of twelve rows, in each format."""
    folder = tmp_path_factory.mktemp("good")
    frame = frame[:12].drop(columns="price")
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_parquet(folder / "t.parquet")
    frame.to_feather(folder / "t.feather")
    np.save(folder / "t.npy", np.zeros((12, 3)))
    return {path.suffix[1:]: path.read_bytes() for path in folder.iterdir()}


def broken(content: bytes, rng: random.Random) -> bytes:
    """Cut off, flipped, lengthened, shortened, or overwritten somewhere."""
    changed = bytearray(content)
    place = rng.randrange(len(content))
    match rng.randrange(5):
        case 0:
            del changed[place:]
        case 1:
            for _ in range(rng.choice([1, 1, 2, 8])):
                changed[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        case 2:
            changed[place:place] = rng.choice(_INSERTED)
        case 3:
            del changed[place : place + rng.randrange(1, 40)]
        case 4:
            changed[place : place + rng.randrange(1, 9)] = rng.randbytes(rng.randrange(9))
    return bytes(changed)


@pytest.mark.parametrize(("ending", "cases"), [("csv", 1200), ("parquet", 1200), ("feather", 600), ("npy", 300)])
def test_files_broken_at_random(ending, cases, check, contents):
    rng = random.Random(ending)
    went_well = sum(check(f"t.{ending}", broken(contents[ending], rng)) for _ in range(cases))
    assert went_well < 0.5 * cases  # most of them were noticed


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_training_files_broken_at_random(ending, frame, quick_regressor, tmp_path):
    path = tmp_path / f"t.{ending}"
    frame = frame[:30].drop(columns="street")
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    content, rng = path.read_bytes(), random.Random(ending)
    refused = 0
    for _ in range(200):
        path.write_bytes(broken(content, rng))
        try:
            TableModel.fit(path, "price", regressor=quick_regressor, missing=rng.choice(["error", "impute", "drop"]))
        except (InvalidInputError, FileError):
            refused += 1
    assert 100 < refused < 200


@pytest.mark.parametrize("ending", ["csv", "parquet", "feather"])
def test_the_files_were_good_before(ending, check, contents):
    assert check(f"t.{ending}", contents[ending])


ROW = "0.5,3,true,2020-05-06,Bern,s1"
HEADER = "size,rooms,new,sold,city,street"
GOOD = {
    "no rows": f"{HEADER}\n",
    "no line end": f"{HEADER}\n{ROW}",
    "windows": f"{HEADER}\r\n{ROW}\r\n",
    "byte order mark": f"\ufeff{HEADER}\n{ROW}\n",
    "semicolons": f"{HEADER}\n{ROW}\n".replace(",", ";"),
    "spaces": f"{HEADER}\n 0.5 , 3 , TRUE , 2020-05-06 ,Bern,s1\n",
    "quotes": f'{HEADER}\n"0.5","3","true","2020-05-06","Bern","s1"\n',
    "empty lines": f"{HEADER}\n\n{ROW}\n\n",
    "unknown level": f"{HEADER}\n{ROW.replace('Bern', 'Æther ☃')}\n",
    "long text": f"{HEADER}\n{ROW.replace('Bern', 'x' * 1_000_000)}\n",
    "beyond 64 bits": f"{HEADER}\n{ROW.replace('3', '9' * 30)}\n",
}
BAD = {
    "nothing": "",
    "a line end": "\n",
    "NULs": "\0" * 100,
    "a NUL": f"{HEADER}\n{ROW.replace('0.5', '0.5' + chr(0))}\n",
    "ragged": f"{HEADER}\n{ROW}\n1,2\n",
    "too long": f"{HEADER}\n{ROW},1\n",
    "no header": f"{ROW}\n{ROW}\n",
    "decimal comma": f"{HEADER}\n{ROW}\n".replace(",", ";").replace("0.5", "0,5"),
    "twice": f"{HEADER},size\n{ROW},1\n",
    "infinite": f"{HEADER}\n{ROW.replace('0.5', 'inf')}\n",
    "too large": f"{HEADER}\n{ROW.replace('0.5', '1e999')}\n",
    "not a number": f"{HEADER}\n{ROW.replace('0.5', 'nan')}\n",
    "missing": f"{HEADER}\n{ROW.replace('0.5', '')}\n",
    "text": f"{HEADER}\n{ROW.replace('0.5', 'half')}\n",
    "hexadecimal": f"{HEADER}\n{ROW.replace('0.5', '0x1p3')}\n",
    "thirteenth month": f"{HEADER}\n{ROW.replace('2020-05', '2020-13')}\n",
    "open quote": f"{HEADER}\n{ROW}\n{ROW.replace('s1', chr(34) + 's1')}\n{ROW}\n",
    "open quote in front": f'"{HEADER}\n{ROW}\n',
    "huge field": f"{HEADER}\n{ROW.replace('Bern', 'x' * 10_000_000)}\n",
    "a column short": f"{HEADER.removesuffix(',street')}\n{ROW.removesuffix(',s1')}\n",
}


@pytest.mark.parametrize("case", GOOD)
def test_csv_that_can_be_read(case, check):
    assert check("t.csv", GOOD[case].encode())


@pytest.mark.parametrize("case", BAD)
def test_csv_that_cannot(case, check):
    assert not check("t.csv", BAD[case].encode())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "cp1252", "utf-7"])
def test_wrong_encodings(encoding, check):
    text = f"{HEADER}\n{ROW.replace('Bern', 'Zürich')}\n"
    assert check("t.csv", text.encode(encoding)) == (encoding == "utf-7")  # which is ASCII, of a level not known


@pytest.mark.parametrize("ending", ["csv", "parquet", "feather", "npy"])
@pytest.mark.parametrize("pretended", ["csv", "csv.gz", "parquet", "feather", "npy"])
def test_files_that_are_not_what_their_name_says(ending, pretended, check, contents):
    went_well = check(f"t.{pretended}", contents[ending])
    assert went_well == (ending == pretended != "npy")  # whose columns have no names that the model knows


@pytest.mark.parametrize("case", ["missing", "infinite", "not a number"])
def test_dropped_rows_are_rows_still(case, check, capsys):
    assert check("t.csv", BAD[case].encode(), "--drop-missing")
