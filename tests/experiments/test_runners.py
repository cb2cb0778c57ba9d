"""Runs continue where they were stopped; what cannot be run is said, and does not stop the rest."""

import re
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import methods
import run
from gpnn import Hyperparameters
from gpnn.errors import InvalidInputError
from gpnn.simulation import sweep
from protocol import PROTOCOL
from runners import oakley, prediction, real, simulation
from store import Store


class Mean(BaseEstimator):
    """Stands for any method: knows only the mean, and counts its fits."""

    fits = 0

    def __init__(self, params=None):
        self.params = params

    def fit(self, X, y):
        type(self).fits += 1
        self.mean_ = np.mean(y)
        self.params_ = self.params or Hyperparameters(float(type(self).fits), 1.0, 1.0)
        return self

    def predict(self, X):
        return np.full(len(X), self.mean_)

    def evaluate(self, X, y):
        error = float(np.mean((y - self.mean_) ** 2))
        return {"rmse": error**0.5, "nll": error, "calibration": 1.0, "n": len(X)}


@pytest.fixture
def table(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2))
    monkeypatch.setattr(real, "_load", lambda name: (X, X[:, 0] + rng.normal(size=90)))
    return X


@pytest.fixture
def stand_in(monkeypatch, table):
    """Every method is there, and is `Mean`; nothing is compiled beforehand."""
    Mean.fits = 0
    monkeypatch.setattr(methods, "missing", lambda name: None)
    monkeypatch.setattr(methods, "build", lambda *names, n_jobs, verbose, **others: Mean(**others))
    monkeypatch.setattr(real, "_warm_up", lambda *arguments: None)


def start(folder, *options):
    return run.main(["real", "--datasets", "poletele", "--results", str(folder), *options])


def records(folder, kind="real"):
    return Store(folder / f"{kind}.jsonl").records()


def test_a_run_that_was_stopped_continues(stand_in, tmp_path, monkeypatch, capsys):
    evaluate = Mean.evaluate

    def stopped(self, X, y):
        if Mean.fits == 2:
            raise KeyboardInterrupt
        return evaluate(self, X, y)

    monkeypatch.setattr(Mean, "evaluate", stopped)
    options = ("--methods", "gpnn", "--kernels", "rbf", "--seeds", "0", "1", "2")
    assert start(tmp_path, *options) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert [one["job"]["seed"] for one in records(tmp_path)] == [0]

    with open(tmp_path / "real.jsonl", "ab") as file:
        file.write(b'{"job": {"dataset"')  # and killed while it wrote
    monkeypatch.setattr(Mean, "evaluate", evaluate)
    Mean.fits = 0
    assert start(tmp_path, *options) == 0
    assert Mean.fits == 2  # the first is not done again
    assert [one["job"]["seed"] for one in records(tmp_path)] == [0, 1, 2]

    assert start(tmp_path, *options) == 0
    assert Mean.fits == 2
    assert len(records(tmp_path)) == 3
    made = records(tmp_path)[0]["made"]
    assert "cores of" in made["machine"]
    assert {"gpnn", "python", "numpy"} <= set(made["versions"])


def test_a_method_that_fails_does_not_stop_the_others(stand_in, tmp_path, monkeypatch, capsys):
    build = methods.build

    def one_fails(name, *names, **others):
        if name == "svgp":
            raise InvalidInputError("no torch")
        return build(name, *names, **others)

    monkeypatch.setattr(methods, "build", one_fails)
    assert start(tmp_path, "--methods", "svgp", "gpnn", "--kernels", "rbf", "--seeds", "0") == 1
    assert "svgp rbf 0: not done. no torch" in capsys.readouterr().err
    assert [one["job"]["method"] for one in records(tmp_path)] == ["gpnn"]


def test_the_five_distributed_methods_are_trained_once(stand_in, tmp_path):
    assert start(tmp_path, "--methods", "poe", "grbcm", "gpnn", "--kernels", "rbf", "--seeds", "0", "1") == 0
    by_job = {(one["job"]["method"], one["job"]["seed"]): one["result"] for one in records(tmp_path)}
    for seed in (0, 1):
        assert by_job["grbcm", seed]["params"] == by_job["poe", seed]["params"]
        assert by_job["grbcm", seed]["fit_seconds"] == by_job["poe", seed]["fit_seconds"]
        assert by_job["gpnn", seed]["params"] != by_job["poe", seed]["params"]
    assert by_job["poe", 0]["params"] != by_job["poe", 1]["params"]


def test_splits_are_the_papers(table):
    X, y = table, np.arange(90)
    X_train, y_train, _, y_test = real.split(X, y, seed=4)
    assert len(X_train) == 70
    assert sorted([*y_train, *y_test]) == list(range(90))
    assert np.array_equal(X_train, X[y_train])
    assert not np.array_equal(real.split(X, y, seed=5)[1], y_train)


def test_a_capped_test_set_is_another_job_unless_it_is_whole(stand_in, tmp_path):
    assert real.job("poletele", "gpnn", "rbf", 0, 1305)["max_test"] == 1305
    assert real.job("poletele", "gpnn", "rbf", 0, 1306)["max_test"] is None
    options = ("--methods", "gpnn", "--kernels", "rbf", "--seeds", "0")
    start(tmp_path, *options)
    start(tmp_path, *options, "--max-test", "5")
    assert [one["result"]["n_test"] for one in records(tmp_path)] == [20, 5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["real", "--datasets", "poletle"], "no data set 'poletle'. Near it are: poletele"),
        (["real", "--datasets", "poletele", "--methods", "rcbm"], "no method 'rcbm'. Near it are: .*rbcm"),
        (["real", "--datasets", "poletele", "--kernels", "gauss"], "'gauss'"),
        (["oakley", "--kernel", "matern"], "'matern'"),
        (["prediction", "--methods", "gpnm"], "no method 'gpnm'. Near it are: gpnn"),
    ],
)
def test_unknown_names_are_refused_before_any_work(options, message, tmp_path, capsys):
    assert run.main([*options, "--results", str(tmp_path)]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not list(tmp_path.glob("*.jsonl"))


def test_without_data_and_rivals_a_run_says_what_it_leaves_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(methods, "missing", lambda name: None if name == "gpnn" else "nobody wrote it")
    assert run.main(["real", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "left out, not on this machine: poletele, bike, protein, ctslice" in said
    assert "svgp is not available here: nobody wrote it" in said


def test_quick_runs_rivals_on_small_sets_only(monkeypatch, stand_in):
    monkeypatch.setattr(real, "find", lambda dataset: dataset.name)
    quick = real.jobs(run._parse(["real", "--quick"]))
    of_rivals = {one["dataset"] for one in quick if one["method"] != "gpnn"}
    assert of_rivals == {"poletele", "bike", "protein"}
    house = [one for one in quick if one["dataset"] == "houseelectric"]
    assert {one["max_test"] for one in house} == {PROTOCOL["quick"]["real"]["max_test"]}
    assert len(house) == 3  # kernels


@pytest.fixture
def small(monkeypatch):
    """GPnn of few rows, so that the runners themselves can be run."""
    few = {"n_neighbors": 20, "n_blocks": 2, "block_size": 40, "calibration_size": 50}
    monkeypatch.setitem(PROTOCOL, "gpnn", PROTOCOL["gpnn"] | few)


def test_oakley_measures_beside_the_limit(small, monkeypatch):
    monkeypatch.setitem(PROTOCOL["oakley"], "test_rows", 100)
    (job,) = oakley.jobs(run._parse(["oakley", "--kernel", "exponential", "--sizes", "6e3"]))
    result = oakley.measure(job, n_jobs=1)
    assert result["limits"]["rmse"] == pytest.approx(0.3, abs=0.03)  # noise is 9 % of the variance
    assert result["limits"]["rmse"] < result["metrics"]["rmse"] < 1
    assert result["peak_gib"] >= result["peak_before_fit_gib"] > result["table_gib"] > 0
    assert "peak" in oakley.line(job, result)


def test_oakley_runs_each_size_in_a_process_and_says_if_it_was_killed(monkeypatch, tmp_path, capsys):
    asked = []

    def killed(command, **options):
        asked.append(command)
        return SimpleNamespace(returncode=-9, stdout="")

    monkeypatch.setattr(subprocess, "run", killed)
    assert run.main(["oakley", "--kernel", "rbf", "--sizes", "1e4", "5e7", "--results", str(tmp_path)]) == 1
    assert len(asked) == 2
    assert "n = 50,000,000 ended with -9: it was killed, most likely for want of memory" in capsys.readouterr().err


def test_simulation_gives_back_the_rows_of_the_sweep(monkeypatch, tmp_path):
    few = {"d": 3, "n_neighbors": 10, "n_queries": 8, "points": 2}
    monkeypatch.setitem(PROTOCOL, "simulation", PROTOCOL["simulation"] | few)
    assert run.main(["simulation", "--sizes", "1e4", "--jobs", "1", "--results", str(tmp_path)]) == 0
    rows = simulation.rows_of(records(tmp_path, "simulation"))
    direct = sweep(
        [10_000], {"lengthscale": [0.1, 5.0]}, "rbf", Hyperparameters(1.0, 0.9, 0.1), "rbf",
        Hyperparameters(1.0, 0.8, 0.2), d=3, n_queries=8, n_neighbors=10, n_jobs=1,
    )  # fmt: skip
    assert len(rows) == 3 * 2 + 2
    ours = [row for row in rows if row["lengthscale"] == 1.0]
    for one, other in zip(ours, direct, strict=True):
        assert one.keys() == other.keys()
        assert one["mse"] == pytest.approx(other["mse"])


def test_prediction_times_one_query_and_many(small, monkeypatch, tmp_path):
    data = [{"name": "normal10", "n": 500, "d": 4}]
    monkeypatch.setitem(PROTOCOL, "prediction", PROTOCOL["prediction"] | {"data": data, "single_calls": 3, "batch": 50})
    assert run.main(["prediction", "--methods", "gpnn", "--jobs", "1", "--results", str(tmp_path)]) == 0
    (result,) = (one["result"] for one in records(tmp_path, prediction.NAME))
    assert result["rows"] == "standard normal"
    assert 0 < result["batch_seconds"] / result["batch"] < result["single_seconds"]
