import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

import gpnn
from gpnn import GPnnRegressor, TableModel
from gpnn.cli import main
from gpnn.errors import MissingExtraError
from gpnn.tables import writing


@pytest.fixture
def new(make_frame, tmp_path):
    frame = make_frame(50, seed=1)
    frame.to_csv(tmp_path / "new.csv", index=False)
    return frame


@pytest.fixture
def table(new, tmp_path):
    return str(tmp_path / "new.csv")


@pytest.fixture
def quick_fit(monkeypatch, quick_regressor):
    """Commands that fit with settings that take no time; what was asked for is noted."""
    asked = {}

    def make(**settings):
        asked.update(settings)
        return quick_regressor

    make.paper = lambda **settings: make(recipe="paper", **settings)
    monkeypatch.setattr("gpnn.cli.fit.GPnnRegressor", make)
    return asked


def test_fit_predict_evaluate_inspect(quick_fit, frame, model, table, new, tmp_path, capsys):
    train, file, out = (str(tmp_path / name) for name in ("train.parquet", "model.gpnn", "p.parquet"))
    frame.to_parquet(train)
    assert main(["fit", train, "--target", "price", "--out", file]) == 0
    assert "target mean, 40 levels" in capsys.readouterr().out

    assert main(["predict", file, table, "--out", out, "--keep", "city", "size", "--coverage", "0.5"]) == 0
    written = capsys.readouterr()
    assert (written.out, written.err) == ("", "gpnn: predicted 50 rows\n")
    found = pd.read_parquet(out)
    assert list(found) == ["city", "size", "mean", "sd", "lower", "upper", "support"]
    assert found["city"].tolist() == new["city"].tolist()
    expected = model.predict(new, coverage=0.5).to_pandas()
    np.testing.assert_array_equal(found["upper"], expected["upper"])

    assert main(["evaluate", file, table, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == pytest.approx(model.evaluate(new))
    assert main(["evaluate", file, table]) == 0
    assert "coverage_90" in capsys.readouterr().out

    assert main(["inspect", file, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["target"] == "price"
    assert facts["rows"] == 400
    assert facts["columns"]["sold"] == "date: days, day, week, year"
    assert main(["inspect", file]) == 0
    assert "one-hot, 3 levels" in capsys.readouterr().out


def test_options_of_fit_reach_the_regressor(quick_fit, frame, tmp_path, capsys):
    train, file = tmp_path / "train.csv", tmp_path / "model.gpnn"
    frame.to_csv(train)
    command = ["fit", str(train), "--target", "price", "--out", str(file), "--features", "size", "new", "--json"]
    more = ["--paper", "--kernel", "rbf", "--neighbors", "1e2", "--holdout", "patches", "--seed", "7", "--jobs", "1"]
    assert main(command + more) == 0
    assert quick_fit == {
        "recipe": "paper", "kernel": "rbf", "n_neighbors": 100, "holdout": "patches", "random_state": 7, "n_jobs": 1,
        "engine": "cpu",
        "verbose": 1,
    }  # fmt: skip
    assert list(json.loads(capsys.readouterr().out)["columns"]) == ["size", "new"]


def test_settings_not_asked_for_are_those_of_the_regressor(quick_fit, frame, tmp_path):
    frame.to_csv(tmp_path / "train.csv")
    file = tmp_path / "model.gpnn"
    assert main(["fit", str(tmp_path / "train.csv"), "--target", "price", "--out", str(file), "--ignore", "city"]) == 0
    assert set(quick_fit) == {"engine", "random_state", "n_jobs", "verbose"}
    assert "city" not in TableModel.load(file).encoder.inputs
    assert set(quick_fit) <= set(GPnnRegressor().get_params())


def test_predictions_go_to_standard_output_as_csv(model_file, model, table, new, capsysbinary):
    assert main(["predict", str(model_file), table, "--keep", "city"]) == 0
    written = capsysbinary.readouterr()
    lines = written.out.decode().splitlines()
    assert lines[0] == "city,mean,sd,lower,upper,support"
    assert len(lines) == 51
    assert float(lines[1].split(",")[1]) == model.predict(new)["mean"][0].as_py()


def test_missing_values_by_request(model_file, new, tmp_path, capsys):
    new.loc[3, "size"] = np.nan
    table, out = str(tmp_path / "holes.csv"), tmp_path / "p.csv"
    new.to_csv(table)
    command = ["predict", str(model_file), table, "--out", str(out)]
    assert main(command) == 2
    assert "size (1)" in capsys.readouterr().err
    assert not out.exists()
    assert main([*command, "--drop-missing"]) == 0
    assert "warning: 1 of 50 rows have no prediction" in capsys.readouterr().err
    assert pd.read_csv(out)["mean"].isna().tolist() == [row == 3 for row in range(50)]
    assert main([*command, "--impute", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"out": str(out), "rows": 50, "coverage": 0.9}
    assert pd.read_csv(out)["mean"].notna().all()
    assert main(["evaluate", str(model_file), table, "--json", "--drop-missing"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 49


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("predict {model} {table} --out p.xlsx", "ending must be one of .csv, .parquet"),
        ("predict {model} {table} --out nowhere/p.csv", "There is no folder nowhere"),
        ("predict {model} {table} --coverage 1", "coverage = 1.0"),
        ("predict {model} {table} --keep ghost", "no column 'ghost'"),
        ("predict {model} nothing.csv", "There is no file nothing.csv"),
        ("predict {table} {table}", "new.csv"),
        ("predict {model} {model}", "ending"),
        ("fit {table} --target nothing --out m.gpnn", "no column 'nothing'"),
        ("fit {table} --target price --out nowhere/m.gpnn", "There is no folder nowhere"),
        ("evaluate {model} {empty}", "has no column|cannot be read"),
        ("inspect {table}", "new.csv"),
    ],
)
def test_failures_are_one_line_and_leave_nothing(command, reason, model_file, table, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.csv").write_text("")
    before = sorted(tmp_path.iterdir())
    assert main(command.format(model=model_file, table=table, empty="empty.csv").split()) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.count("\n") == 1
    assert pytest.approx(1) == len([part for part in reason.split("|") if part in written.err])
    assert sorted(tmp_path.iterdir()) == before


def test_what_a_file_says_cannot_move_the_cursor(model_file, tmp_path, capsys):
    (tmp_path / "x.csv").write_text("\x1b[2Jsize,b\n1,2\n")
    assert main(["predict", str(model_file), str(tmp_path / "x.csv")]) == 2
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert err.count("\n") == 1


# --- disks that fill, processes that are killed -----------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_full_disk_leaves_the_older_file(ending, model_file, table, tmp_path, monkeypatch, capsys):
    class Full:
        def __init__(self, *_, **__):
            raise OSError(errno.ENOSPC, "No space left on device")

    out = tmp_path / f"p.{ending}"
    out.write_text("older")
    monkeypatch.setattr(writing.pa.csv, "CSVWriter", Full)
    monkeypatch.setattr(writing.pa.parquet, "ParquetWriter", Full)
    assert main(["predict", str(model_file), table, "--out", str(out)]) == 2
    assert "The disk is full" in capsys.readouterr().err
    assert out.read_text() == "older"
    assert not list(tmp_path.glob(".*"))


def program(*arguments, **options) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "gpnn.cli", *map(str, arguments)], **options)


@pytest.fixture(scope="module")
def long_table(model, model_file, tmp_path_factory):
    """Rows enough for a run of some seconds; what it takes is compiled."""
    TableModel.load(model_file).predict(model_frame(model)[:10])
    folder = tmp_path_factory.mktemp("long")
    frame = pd.concat([model_frame(model)] * 300, ignore_index=True)
    frame.to_parquet(folder / "long.parquet")
    return folder / "long.parquet"


def model_frame(model) -> pd.DataFrame:
    """One row for each street: what the model was made for."""
    street = next(column for column in model.encoder.columns_ if column.name == "street")
    n = 500
    return pd.DataFrame(
        {
            "size": np.linspace(-2, 2, n),
            "rooms": np.arange(n) % 7,
            "new": np.arange(n) % 2 == 0,
            "sold": pd.date_range("2020-01-01", periods=n),
            "city": "Bern",
            "street": [street.levels[k % len(street.levels)] for k in range(n)],
        }
    )


def test_a_file_that_may_not_grow_is_not_left_half(model_file, long_table, table, tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    out = tmp_path / "p.csv"
    run = program("predict", model_file, table, "--out", out, stderr=subprocess.PIPE, text=True, preexec_fn=limit)
    assert "Cannot write into" in run.communicate()[1]
    assert run.returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
def test_a_run_that_is_stopped_leaves_no_file(number, code, model_file, long_table, tmp_path):
    out = tmp_path / "p.csv"
    run = program("predict", model_file, long_table, "--out", out, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not any(part.stat().st_size for part in tmp_path.glob(".p.*.part.csv")):  # it has begun to write
        assert run.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(run.pid, number)
    run.communicate()
    assert run.returncode == code
    assert not out.exists()
    if number == signal.SIGINT:
        assert not list(tmp_path.iterdir())


def test_a_reader_that_has_seen_enough_is_no_error(model_file, long_table):
    with program("predict", model_file, long_table, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout.readline() == b"mean,sd,lower,upper,support\n"
        run.stdout.close()
        assert run.stderr.read() == b""
    assert run.returncode == 141


def test_a_full_standard_output_is_an_error(model_file, table):
    with open("/dev/full", "wb") as full:
        run = program("predict", model_file, table, stdout=full, stderr=subprocess.PIPE, text=True)
        err = run.communicate()[1]
    assert run.returncode == 2
    assert err.count("\n") == 1
    assert "No space left" in err


def test_without_pyarrow_the_cure_is_named(model_file, table, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith("gpnn.tables")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(gpnn, "tables")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert main(["predict", str(model_file), table]) == 2
    assert "pip install 'gpnn[data]'" in capsys.readouterr().err
    with pytest.raises(MissingExtraError):
        gpnn.TableModel  # noqa: B018
    assert main(["inspect", str(model_file)]) == 0


def test_explain(model, model_file, new, table, capsys):
    assert main(["explain", str(model_file), table, "--rows", "2", "--top", "3"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("these rows decided:") == 2
    assert main(["explain", str(model_file), table, "--rows", "2", "--json"]) == 0
    first, _ = json.loads(capsys.readouterr().out)
    found = model.explain(new)
    rows, weights = found.decisive(5)
    assert [one["row"] for one in first["decisive"]] == rows[0].tolist()
    assert [one["weight"] for one in first["decisive"]] == pytest.approx(weights[0].tolist())
    assert first["predicted"] == pytest.approx(found.mean()[0], rel=1e-4)
    assert sum(first["columns"].values()) <= 1 + 1e-9


def test_nothing_to_explain(model_file, new, tmp_path, capsys):
    new[:0].to_csv(tmp_path / "empty.csv", index=False)
    assert main(["explain", str(model_file), str(tmp_path / "empty.csv")]) == 2
    assert "gpnn:" in capsys.readouterr().err
    new.loc[3, "size"] = np.nan
    new.to_csv(tmp_path / "gaps.csv", index=False)
    assert main(["explain", str(model_file), str(tmp_path / "gaps.csv")]) == 2
    assert "size" in capsys.readouterr().err
    assert main(["explain", str(model_file), str(tmp_path / "gaps.csv"), "--drop-missing"]) == 0
    assert "1 of 50 rows were left out" in capsys.readouterr().err


def test_update(model, model_file, make_frame, table, tmp_path, capsys):
    out = tmp_path / "updated.gpnn"
    assert main(["update", str(model_file), table, "--out", str(out), "--json", "--window", "420"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["new"], found["rows"]) == (50, 420)
    later = TableModel.load(out)
    assert later.regressor.kneighbors(later.read_inputs(table)).indices.min() >= 30  # the oldest are forgotten
    assert main(["update", str(out), table, "--out", str(out)]) == 0
    assert "50 rows learned, 470 in all" in capsys.readouterr().out
