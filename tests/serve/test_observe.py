"""Outcomes are logged beside predictions, and an alarm says when these do not hold any more."""

import sqlite3

import numpy as np
import pytest
from asking import Client, fitted, flats, rows_of

from gpnn import TableModel
from gpnn.serve.app import Settings
from gpnn.serve.observations import spread_of_z2


@pytest.fixture
def served(tmp_path, models):
    client = Client(Settings((models / "flats.gpnn", models / "gaps.gpnn"), log=tmp_path / "log.sqlite", n_jobs=1))
    yield client
    client.close()


def logged(path) -> list[tuple]:
    with sqlite3.connect(path) as connection:
        rows = connection.execute(
            "SELECT model, mean, lower, upper, y, inputs FROM observations ORDER BY id"
        ).fetchall()
    connection.close()
    return rows


def test_prediction_and_outcome_are_kept(served, models, new_flats, tmp_path):
    some = new_flats[:30]
    answer = served.post("/observe", {"rows": rows_of(some), "y": some["price"].tolist()})
    assert (answer.status, answer.json["logged"]) == (200, 30)
    found = logged(tmp_path / "log.sqlite")
    expected = TableModel.load(models / "flats.gpnn").predict(some)
    for place, name in enumerate(("mean", "lower", "upper"), 1):
        assert [row[place] for row in found] == expected[name].to_pylist()
    assert [row[4] for row in found] == some["price"].tolist()
    assert '"city": ' in found[0][5]
    gap = rows_of(some)
    gap[3]["area"] = None
    assert served.post("/models/gaps/observe", {"rows": gap, "y": some["price"].tolist()}).json["logged"] == 29


@pytest.mark.parametrize("y", [None, [1.0], "no", [True], [float("1e300")] * 2, [1, None], [10**400, 1]])
def test_outcomes_that_are_none(served, new_flats, y, tmp_path):
    answer = served.post("/observe", {"rows": rows_of(new_flats[:2])} | ({} if y is None else {"y": y}))
    assert answer.status == 422
    assert logged(tmp_path / "log.sqlite") == [] if (tmp_path / "log.sqlite").exists() else True


def test_an_alarm_when_predictions_do_not_hold(served, models, new_flats):
    model = TableModel.load(models / "flats.gpnn")
    law = model.predict(new_flats)
    rng = np.random.default_rng(0)
    mean, sd = law["mean"].to_numpy(), law["sd"].to_numpy()
    rows = rows_of(new_flats)
    as_predicted = mean + sd * rng.normal(size=len(mean))
    served.post("/observe", {"rows": rows, "y": as_predicted.tolist()})
    health = served.get("/observations").json
    low, high = health["mean_z2_interval"]
    assert (health["n"], health["alarm"], low < health["mean_z2"] < high) == (1000, False, True)
    assert (low + high) / 2 == pytest.approx(1)
    assert sum(point["n"] for point in health["history"]) == 1200
    too_sure = mean + 1.6 * sd * rng.normal(size=len(mean))
    served.post("/observe", {"rows": rows, "y": too_sure.tolist()})
    health = served.get("/observations").json
    assert (health["alarm"], health["coverage"] < health["coverage_interval"][0]) == (True, True)
    metrics = served.get("/metrics").body.decode()
    assert 'gpnn_observed_alarm{model="flats"} 1' in metrics
    assert 'gpnn_observed_alarm{model="gaps"} 0' in metrics
    assert "gpnn_observations_total 2400" in metrics
    assert served.get("/models/gaps/observations").json["n"] == 0


def test_the_interval_is_that_of_chance():
    """Of 400 sets of 200 Gaussian z, about one in a thousand leaves it; here, none or very few."""
    from scipy.special import ndtri

    rng = np.random.default_rng(0)
    room = 3.29 * spread_of_z2(ndtri) / np.sqrt(200)
    means = np.mean(rng.normal(size=(4000, 200)) ** 2, axis=1)
    assert 0 < np.mean(np.abs(means - 1) > room) < 0.006


def test_a_log_that_cannot_be_written_fails_its_own_requests_alone(served, new_flats, tmp_path):
    question = {"rows": rows_of(new_flats[:2]), "y": [1.0, 2.0]}
    assert served.post("/observe", question).status == 200
    other = sqlite3.connect(tmp_path / "log.sqlite")
    other.execute("BEGIN EXCLUSIVE")
    refused = served.post("/observe", question)
    assert (refused.status, refused.headers["retry-after"]) == (503, "10")
    assert "locked" in refused.json["error"]["cause"]
    assert served.post("/predict", {"rows": question["rows"]}).status == 200
    assert served.get("/metrics").status == 200
    other.rollback()
    other.close()
    # A disk that is full, as far as SQLite is concerned: no page more.
    log = served.service.log
    log.thread.submit(lambda: log._opened().execute("PRAGMA max_page_count = 5").fetchall()).result(10)
    many = {"rows": rows_of(new_flats[:400]), "y": [1.0] * 400}
    refused = served.post("/observe", many)
    assert (refused.status, "full" in refused.json["error"]["cause"]) == (503, True)
    assert served.post("/predict", {"rows": question["rows"]}).status == 200
    log.thread.submit(lambda: log._opened().execute("PRAGMA max_page_count = 100000").fetchall()).result(10)
    assert served.post("/observe", many).status == 200
    assert len(logged(tmp_path / "log.sqlite")) == 402  # nothing of those that were refused


def test_without_a_log(models):
    client = Client(Settings((models / "flats.gpnn",), n_jobs=1))
    try:
        assert client.post("/observe", {}).status == client.get("/observations").status == 404
        assert client.get("/models").json["observes"] is False
    finally:
        client.close()


def test_a_replaced_model_begins_anew(tmp_path):
    """Outcomes of the model before say nothing of this one."""
    path, log = tmp_path / "flats.gpnn", tmp_path / "log.sqlite"
    rows, y = rows_of(flats(40, 3)), flats(40, 3)["price"].tolist()
    for seed, n in ((0, 40), (1, 0)):
        fitted(flats(300, seed)).save(path)
        client = Client(Settings((path,), log=log, n_jobs=1))
        if seed == 0:
            client.post("/observe", {"rows": rows, "y": y})
        assert client.get("/observations").json["n"] == n
        client.close()
