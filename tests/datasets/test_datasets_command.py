"""gpnn datasets list | info | get."""

import errno
import json

import numpy as np
import pandas as pd
import pytest

from gpnn import datasets
from gpnn.cli import main


@pytest.fixture
def protein(folders):
    frame = pd.DataFrame(np.arange(20.0).reshape(2, 10), columns=["RMSD", *(f"F{k}" for k in range(1, 10))])
    path = folders[0] / "protein_casp.parquet"
    frame.to_parquet(path)
    return path


def test_list(protein, capsys):
    assert main(["datasets", "list"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert set(lines) == {"name", *datasets.names()}
    assert str(protein) in lines["protein"]
    assert "515,345" in lines["song"]
    assert "to download" in lines["song"]


def test_list_as_json(protein, capsys):
    assert main(["datasets", "list", "--json"]) == 0
    found = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["protein"]["path"] == str(protein)
    assert found["song"]["path"] is None
    assert found["song"]["tried"] is False


def test_info(capsys):
    assert main(["datasets", "info", "kegg_directed"]) == 0
    out = capsys.readouterr().out
    assert "Left out by the paper" in out
    assert "CC BY 4.0" in out
    assert main(["datasets", "info", "song", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["d"] == 90


def test_get_prints_the_path_and_nothing_else(protein, capsys):
    assert main(["datasets", "get", "protein"]) == 0
    assert capsys.readouterr().out == f"{protein}\n"
    assert main(["datasets", "get", "protein", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"name": "protein", "path": str(protein)}


@pytest.mark.parametrize("ending", ["parquet", "csv", "npz"])
def test_get_exports_the_prepared_table(protein, tmp_path, ending, capsys):
    out = tmp_path / f"table.{ending}"
    out.write_text("an older file")
    assert main(["datasets", "get", "protein", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    X, y = datasets.load("protein")
    if ending == "npz":
        with np.load(out) as file:
            np.testing.assert_array_equal(file["X"], X)
            np.testing.assert_array_equal(file["y"], y)
            assert file["columns"].tolist()[0] == "F1"
    else:
        frame = pd.read_parquet(out) if ending == "parquet" else pd.read_csv(out)
        assert list(frame.columns) == [*(f"F{k}" for k in range(1, 10)), "RMSD"]
        np.testing.assert_array_equal(frame, np.column_stack([X, y]))
    assert not list(tmp_path.glob(".*"))


def test_a_full_disk_leaves_the_older_file(protein, tmp_path, monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    out = tmp_path / "table.csv"
    out.write_text("an older file")
    assert main(["datasets", "get", "protein", "--out", str(out)]) == 2
    assert "The disk is full" in capsys.readouterr().err
    assert out.read_text() == "an older file"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "portein"], "Near it are: protein"),
        (["get", "protein", "--out", "table.xlsx"], "must be one of .parquet, .csv, .npz"),
        (["get", "protein", "--out", "no/such/folder/table.csv"], "no folder"),
        (["get", "buzz", "--out", "table.csv"], "extremely large values"),
        (["get", "egm96_geoid"], "has no download"),
    ],
)
def test_mistakes_are_explained_on_stderr(arguments, message, capsys):
    assert main(["datasets", *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
