import json

import pandas as pd
import pytest

from gpnn import GPnnRegressor, Hyperparameters
from gpnn.cli import main
from gpnn.tables import TableModel


@pytest.fixture(scope="module")
def files(tmp_path_factory, wavy):
    """A model file and a table of test rows."""
    folder = tmp_path_factory.mktemp("cli")
    table = pd.DataFrame(wavy[0], columns=["a", "b", "<c>"]).assign(depth=wavy[1])
    regressor = GPnnRegressor(params=Hyperparameters(0.7, 1.0, 0.01), n_neighbors=50, n_jobs=1, random_state=0)
    TableModel.fit(table[:2000], "depth", regressor=regressor).save(folder / "model.gpnn")
    table[2000:].to_csv(folder / "test.csv", index=False)
    return folder / "model.gpnn", folder / "test.csv"


def test_writes_the_page_and_says_the_verdict(files, tmp_path, capsys):
    model, table = files
    out = tmp_path / "page.html"
    assert main(["report", str(model), str(table), "--out", str(out), "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert "90 % intervals hold" in said
    assert str(out) in said
    page = out.read_text()
    assert said.splitlines()[0] in page
    assert "observed depth" in page
    assert "&lt;c&gt;" in page


def test_json_is_all_that_was_measured(files, tmp_path, capsys):
    model, table = files
    assert main(["report", str(model), str(table), "--out", str(tmp_path / "r.html"), "--json", "--jobs", "1"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["n_rows"] == 1000
    assert {column["name"] for column in read["fit"]["columns"]} == {"a", "b", "<c>"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table, folder: (table, folder / "nowhere" / "r.html"), "no folder"),
        (lambda table, folder: (folder / "absent.csv", folder / "r.html"), "absent.csv"),
    ],
)
def test_failures_are_explained_and_leave_no_page(files, tmp_path, capsys, change, words):
    table, out = change(files[1], tmp_path)
    assert main(["report", str(files[0]), str(table), "--out", str(out)]) == 2
    assert words in capsys.readouterr().err
    assert not out.exists()


def test_rows_without_target_cannot_be_tested_on(files, tmp_path, capsys):
    table = tmp_path / "unlabelled.csv"
    pd.read_csv(files[1]).drop(columns="depth").to_csv(table, index=False)
    assert main(["report", str(files[0]), str(table), "--out", str(tmp_path / "r.html")]) == 2
    assert "depth" in capsys.readouterr().err
