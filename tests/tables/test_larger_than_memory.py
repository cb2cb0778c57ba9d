"""Files larger than memory: several of them as one table, fitted in a stream, scored in parts."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

from gpnn import GPnnRegressor, TableModel
from gpnn.cli import main
from gpnn.common.types import Hyperparameters
from gpnn.errors import FileError, InvalidInputError
from gpnn.judging.diagnostics import diagnose, diagnose_parts
from gpnn.tables.reading import open_tables
from gpnn.tables.rows import larger_parts


def quick():
    return GPnnRegressor(params=Hyperparameters(1.0, 1.0, 0.1), n_neighbors=20, far=False, random_state=0, n_jobs=1)


@pytest.fixture
def folder(make_frame, tmp_path_factory):
    folder = tmp_path_factory.mktemp("big") / "parts"
    folder.mkdir()
    for k in range(3):
        make_frame(300, seed=k).to_parquet(folder / f"part{k}.parquet")
        make_frame(300, seed=k).to_csv(folder.parent / f"part{k}.csv", index=False)
    return folder


@pytest.fixture
def whole(make_frame):
    return pd.concat([make_frame(300, seed=k) for k in range(3)], ignore_index=True)


def known(found):
    return {name: value for name, value in found.items() if value is not None}


def scores(found):
    return pytest.approx(known(found), rel=1e-12)


def rows_of(table):
    return sum(batch.num_rows for batch in table.batches(["size"]))


def test_files_are_one_table_in_the_order_of_their_names(folder, whole):
    for said in (folder, str(folder), folder / "*.parquet", [folder / f"part{k}.parquet" for k in range(3)]):
        table = open_tables(said)
        sizes = np.concatenate([batch.column("size").to_numpy() for batch in table.batches(["size"])])
        np.testing.assert_array_equal(sizes, whole["size"])
        assert table.n_rows == len(whole)
    assert rows_of(open_tables([folder, folder.parent / "part0.csv"][:1])) == 900
    assert open_tables(folder.parent / "part?.csv").n_rows is None


def test_files_that_do_not_go_together_are_named(folder, tmp_path):
    pd.DataFrame({"size": ["small"]}).to_parquet(tmp_path / "a.parquet")
    pd.DataFrame({"size": [1.0]}).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(InvalidInputError, match="same types"):
        open_tables(tmp_path)
    pd.DataFrame({"other": [1.0]}).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(InvalidInputError, match="same columns"):
        open_tables(tmp_path)
    with pytest.raises(FileError, match="No file is called"):
        open_tables(tmp_path / "*.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match="no table in the folder"):
        open_tables(tmp_path / "empty")


@pytest.mark.parametrize("missing", ["error", "impute"])
def test_a_stream_is_learned_as_the_table_in_memory(missing, folder, whole, make_frame, tmp_path):
    columns = {"ignore": ["street"]} if "street" in whole else {}
    model = TableModel.fit(
        folder, "price", regressor=quick(), memory="1GiB", out=tmp_path / "model.gpnn", max_levels=100, missing=missing,
        **columns,
    )  # fmt: skip
    in_memory = TableModel.fit(whole, "price", regressor=quick(), max_levels=100, missing=missing, **columns)
    new = make_frame(60, seed=9)
    loaded = TableModel.load(tmp_path / "model.gpnn")
    assert loaded.target == "price"
    for one in (model, loaded):
        assert one.predict(new).equals(in_memory.predict(new))
    assert known(model.evaluate(new)) == scores(in_memory.evaluate(new))


def test_mean_targets_come_from_the_sample(folder, whole, make_frame, tmp_path):
    model = TableModel.fit(folder, "price", regressor=quick(), memory="1GiB", out=tmp_path / "model.gpnn")
    in_memory = TableModel.fit(whole, "price", regressor=quick())
    assert model.schema()["encoder"] == in_memory.schema()["encoder"]
    new = make_frame(60, seed=9)
    assert model.evaluate(new)["rmse"] < 1.3 * in_memory.evaluate(new)["rmse"]


def test_scores_in_parts_are_those_of_all_rows(folder, whole, make_frame, monkeypatch):
    model = TableModel.fit(whole, "price", regressor=quick())
    new = make_frame(500, seed=9)
    at_once = model.evaluate(new)
    X, y = model.read_rows(new)
    found = diagnose(model.regressor, X, y, target="price")
    monkeypatch.setattr("gpnn.tables.reading.BATCH_ROWS", 64)
    monkeypatch.setattr("gpnn.tables.model.larger_parts", lambda batches: larger_parts(batches, 100))
    in_parts = model.evaluate(new)
    assert known(in_parts) == scores(at_once)
    again = diagnose_parts(model.regressor, ((X, y) for X, y, _ in model.in_parts(new)), "price")
    leave = {"predict_seconds", "created"}
    one, other = ({k: v for k, v in d.as_dict().items() if k not in leave} for d in (found, again))
    assert one["scores"] == pytest.approx(other["scores"], rel=1e-12)
    assert [reason["row"] for reason in one["reasons"]] == [reason["row"] for reason in other["reasons"]]
    assert one["fit"]["columns"] == other["fit"]["columns"]


def test_groups_of_rows_to_come_in_a_stream(folder, whole, tmp_path, few_steps):
    """As in memory, as long as the sample is the whole table, and no column becomes a mean of the target, for which
    rows in memory do without their own."""
    settings = {"kernel": "exponential", "whitening": "diagonal", "refine": "columns", "random_state": 0, "n_jobs": 1}
    labelled = whole.assign(shop=np.arange(len(whole)) % 20)
    for k in range(3):
        labelled[300 * k : 300 * (k + 1)].to_parquet(folder / f"part{k}.parquet")
    said = {"group": "shop", "ignore": ["street"]}
    TableModel.fit(folder, "price", memory="1GiB", out=tmp_path / "m.gpnn", regressor=GPnnRegressor(**settings), **said)
    streamed = TableModel.load(tmp_path / "m.gpnn")
    in_memory = TableModel.fit(folder, "price", regressor=GPnnRegressor(**settings), **said)
    assert (streamed.group, "shop" in streamed.encoder.inputs) == ("shop", False)
    np.testing.assert_array_equal(streamed.predict(whole)["sd"], in_memory.predict(whole)["sd"])


def test_what_a_stream_cannot_do_is_said(folder, tmp_path):
    with pytest.raises(InvalidInputError, match="out="):
        TableModel.fit(folder, "price", memory="1GiB")
    with pytest.raises(InvalidInputError, match="weight: not for a stream"):
        TableModel.fit(folder, "price", memory="1GiB", out=tmp_path / "m", weight="size")
    with pytest.raises(InvalidInputError, match="memory"):
        TableModel.fit(folder, "price", memory="1MiB", out=tmp_path / "m")
    with pytest.raises(InvalidInputError, match="something else, and stays"):
        TableModel.fit(folder, "price", memory="1GiB", out=folder)
    assert len(list(folder.iterdir())) == 3
    assert not list(tmp_path.iterdir())


def test_commands(folder, make_frame, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("gpnn.cli.fit.GPnnRegressor", lambda **settings: quick())
    out, new = str(tmp_path / "model.gpnn"), str(tmp_path / "new.csv")
    make_frame(50, seed=9).to_csv(new, index=False)
    arguments = ["--target", "price", "--out", out, "--memory", "1GiB"]
    assert main(["fit", str(folder / "*.parquet"), *arguments]) == 0
    assert "Shards" in capsys.readouterr().out
    assert main(["fit", *(str(folder / f"part{k}.parquet") for k in range(3)), *arguments]) == 0  # in its place
    assert main(["predict", out, new, "--out", str(tmp_path / "p.parquet")]) == 0
    assert pyarrow.parquet.read_metadata(tmp_path / "p.parquet").num_rows == 50
    assert main(["evaluate", out, new]) == 0
    assert main(["report", out, new, "--out", str(tmp_path / "report.html")]) == 0
    assert main(["inspect", out, "--json"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.gpnn", "new.csv", "p.parquet", "report.html"]


def test_interrupted_it_leaves_nothing(folder, tmp_path):
    code = "import sys; sys.path[:] = %r; from gpnn.cli import main; sys.exit(main(sys.argv[1:]))" % sys.path  # noqa: UP031
    arguments = ["fit", str(folder), "--target", "price", "--out", str(tmp_path / "model.gpnn"), "--memory", "1GiB"]
    run = subprocess.Popen([sys.executable, "-c", code, *arguments], env=os.environ, stderr=subprocess.PIPE)
    until = time.monotonic() + 60
    while not list(tmp_path.iterdir()) and time.monotonic() < until:
        time.sleep(0.02)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=60)
    assert run.returncode != 0
    assert not list(tmp_path.iterdir())
