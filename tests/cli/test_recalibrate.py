"""A model whose variances are wrong for the rows that came, corrected by their outcomes: from a table or a log."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from gpnn import GPnnRegressor, Hyperparameters, TableModel
from gpnn.cli import main
from gpnn.cli.recalibrate import _MEANINGS

pytest.importorskip("pyarrow")

N = 500


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model file, and rows that are noisier than those it was fitted to."""
    folder = tmp_path_factory.mktemp("recalibrate")
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "depth": rng.uniform(-2, 2, 2 * N).round(3),
            "floor": rng.integers(0, 9, 2 * N),
            "lift": rng.random(2 * N) > 0.4,
            "city": rng.choice(["Aix", "Bern", "Cork"], 2 * N),
            "seen": pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 900, 2 * N), "D"),
        }
    )
    table["heat"] = np.sin(2 * table["depth"]) + 0.1 * rng.normal(size=2 * N)
    regressor = GPnnRegressor(params=Hyperparameters(0.7, 1.0, 0.02), n_neighbors=30, n_jobs=1, random_state=0)
    model = TableModel.fit(table[:N], "heat", regressor=regressor)
    model.save(folder / "model.gpnn")
    new = table[N:].assign(heat=table["heat"][N:] + model.predict(table[N:])["sd"].to_numpy() * rng.normal(0, 2, N))
    new.to_csv(folder / "new.csv", index=False)
    return folder


def recalibrated(*arguments, capsys) -> dict:
    assert main(["recalibrate", *map(str, arguments), "--jobs", "1", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_variances_are_corrected_and_nothing_else(folder, tmp_path, capsys):
    before, out = TableModel.load(folder / "model.gpnn"), tmp_path / "out.gpnn"
    said = recalibrated(folder / "model.gpnn", folder / "new.csv", "--out", out, capsys=capsys)
    assert said["out"] == str(out)
    assert set(said) == {"out", *_MEANINGS}
    assert (said["rows"], said["outside"], said["alarm"]) == (N, 0, True)
    assert said["z_squared"] == pytest.approx(before.evaluate(folder / "new.csv")["calibration"])
    low, high = said["interval"]
    assert 1 < low < said["z_squared"] < high

    after = TableModel.load(out)
    old, new = (model.predict(folder / "new.csv").to_pandas() for model in (before, after))
    np.testing.assert_array_equal(new["mean"], old["mean"])
    np.testing.assert_allclose((new["sd"] / old["sd"]) ** 2, said["factor"])
    assert after.schema() == before.schema()
    assert after.regressor.get_params() == before.regressor.get_params()
    assert 0.87 < after.evaluate(folder / "new.csv")["coverage_90"] < 0.93
    again = recalibrated(out, folder / "new.csv", "--out", out, capsys=capsys)  # a file may take its own place
    assert (again["alarm"], again["factor"]) == (False, pytest.approx(1, abs=0.1))


def test_what_changed_is_printed(folder, tmp_path, capsys):
    assert main(["recalibrate", str(folder / "model.gpnn"), str(folder / "new.csv"), "--out", str(tmp_path / "o")]) == 0
    printed = {line.split()[0]: line.split()[1] for line in capsys.readouterr().out.splitlines()}
    assert list(printed) == list(_MEANINGS)
    assert (printed["rows"], printed["alarm"]) == ("500", "yes")


def test_one_row_is_enough_and_its_report_is_json(folder, tmp_path, capsys):
    pd.read_csv(folder / "new.csv")[:1].to_csv(tmp_path / "one.csv", index=False)
    said = recalibrated(folder / "model.gpnn", tmp_path / "one.csv", "--out", tmp_path / "o.gpnn", capsys=capsys)
    assert (said["rows"], said["interval"][1]) == (1, None)
    assert math.isfinite(said["factor"])


# --- the log of gpnn serve --------------------------------------------------------------------------------------------


@pytest.fixture
def log(folder, tmp_path):
    """What the server keeps of the same rows, with outcomes of another model among them."""
    pytest.importorskip("starlette")
    from gpnn.serve.models import ServedModel
    from gpnn.serve.observations import Log

    model = ServedModel("model", folder / "model.gpnn", n_jobs=1)
    rows = pd.read_csv(folder / "new.csv").to_dict("records")
    y = np.array([row.pop("heat") for row in rows])
    answers = {name: np.ones(len(y)) for name in ("mean", "sd", "lower", "upper")}
    log = Log(tmp_path / "log.sqlite")
    log.append("other", "0123456789ab", answers, y + 100, rows)
    log.append("model", model.version, answers, y, rows)
    log.close()
    return tmp_path / "log.sqlite"


def test_the_log_says_what_the_table_says(folder, log, tmp_path, capsys):
    one, two = tmp_path / "one.gpnn", tmp_path / "two.gpnn"
    by_table = recalibrated(folder / "model.gpnn", folder / "new.csv", "--out", one, capsys=capsys)
    by_log = recalibrated(folder / "model.gpnn", "--log", log, "--out", two, capsys=capsys)
    assert by_log | {"out": ""} == by_table | {"out": ""}
    assert TableModel.load(two).predict(folder / "new.csv").equals(TableModel.load(one).predict(folder / "new.csv"))


def test_a_log_of_other_models_is_refused(folder, log, tmp_path, capsys):
    out = tmp_path / "out.gpnn"
    recalibrated(folder / "model.gpnn", "--log", log, "--out", out, capsys=capsys)
    assert main(["recalibrate", str(out), "--log", str(log), "--out", str(tmp_path / "more.gpnn")]) == 2
    err = capsys.readouterr().err
    assert "no outcome of out.gpnn as it is" in err
    assert "other 0123456789ab (500 rows)" in err
    assert not (tmp_path / "more.gpnn").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("{folder}/model.gpnn --out o.gpnn", "one of them"),
        ("{folder}/model.gpnn {folder}/new.csv --log x --out o.gpnn", "one of them"),
        ("{folder}/model.gpnn {folder}/new.csv --out nowhere/o.gpnn", "There is no folder nowhere"),
        ("{folder}/model.gpnn unlabelled.csv --out o.gpnn", "no column 'heat'"),
        ("{folder}/model.gpnn empty.csv --out o.gpnn", "No row is left to recalibrate on"),
        ("{folder}/model.gpnn --log nothing.sqlite --out o.gpnn", "There is no log nothing.sqlite"),
        ("{folder}/model.gpnn --log {folder}/new.csv --out o.gpnn", "cannot be read as a log"),
        ("{folder}/new.csv {folder}/new.csv --out o.gpnn", "new.csv"),
    ],
)
def test_failures_are_explained_and_leave_nothing(arguments, reason, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    new = pd.read_csv(folder / "new.csv")
    new.drop(columns="heat").to_csv("unlabelled.csv", index=False)
    new[:0].to_csv("empty.csv", index=False)
    assert main(["recalibrate", *arguments.format(folder=folder).split()]) == 2
    err = capsys.readouterr().err
    assert reason in err
    assert err.count("\n") == 1
    assert not (tmp_path / "o.gpnn").exists()
