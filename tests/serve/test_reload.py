"""A replaced file is picked up; a broken one is not, and says so; nobody is dropped."""

import json
import shutil
import time

import numpy as np
import pytest
from asking import Client, fitted, flats, rows_of

from gpnn import GPnnRegressor, Hyperparameters, TableModel
from gpnn.serve.app import Settings
from gpnn.serve.models import Registry


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    fitted(flats(600)).save(folder / "first")
    fitted(flats(400, seed=5)).save(folder / "second")
    return folder


@pytest.fixture
def served(two, tmp_path, monkeypatch):
    monkeypatch.setattr("gpnn.serve.app._LOOK_EVERY", 0.02)
    path = tmp_path / "flats.gpnn"
    replace(two / "first", path)
    client = Client(Settings((path,), n_jobs=1))
    yield client, path
    client.close()


def replace(source, path):
    shutil.copy(source, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def until(condition):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def test_replaced_under_load(served, two, new_flats):
    """Every answer is one model's or the other's, whole, and says whose it is."""
    client, path = served
    rows = rows_of(new_flats[:4])
    expected = {}
    for name in ("first", "second"):
        answer = TableModel.load(two / name).predict(new_flats[:4])
        expected[(two / name).read_bytes()[24:56].hex()[:12]] = answer["mean"].to_pylist()
    body, kind = json.dumps({"rows": rows}).encode(), {"content-type": "application/json"}
    seen = set()
    for turn in range(20):
        replace(two / ("second", "first")[turn % 2], path)
        answers = [client.begin("POST", "/predict", body, kind) for _ in range(20)]
        for answer in answers:
            found = answer.result(60)
            assert found.status == 200
            assert found.json["mean"] == expected[found.json["version"]]
            assert found.headers["x-model"] == f"flats@{found.json['version']}"
            seen.add(found.json["version"])
        time.sleep(0.05)
    assert seen == set(expected)


def test_a_broken_file_leaves_what_there_was(served, two, new_flats):
    client, path = served
    question = {"rows": rows_of(new_flats[:1])}
    before = client.post("/predict", question).body
    path.with_suffix(".new").write_bytes((two / "second").read_bytes()[:5000])
    path.with_suffix(".new").replace(path)
    until(lambda: client.get("/ready").json["status"] == "stale")
    error = client.get("/ready").json["errors"]["flats"]
    assert "flats.gpnn" in error
    assert str(path) not in error
    metrics = client.get("/metrics").body.decode()
    assert 'gpnn_model_stale{model="flats"} 1' in metrics
    assert 'gpnn_model_reload_failures_total{model="flats"} 1' in metrics
    assert client.post("/predict", question).body == before
    path.unlink()
    until(lambda: "is gone" in client.get("/ready").json["errors"]["flats"])
    assert client.post("/predict", question).body == before
    replace(two / "second", path)
    until(lambda: client.get("/ready").json["status"] == "ready")
    assert client.post("/predict", question).body != before
    assert 'gpnn_model_reloads_total{model="flats"} 1' in client.get("/metrics").body.decode()


def test_a_model_in_shards_is_served_too(tmp_path):
    """A folder; replaced as a file is."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    settings = {"params": Hyperparameters(1.0, 0.9, 0.1), "n_neighbors": 10, "far": False, "random_state": 0}
    path = tmp_path / "large.gpnn"

    def fit(y):
        GPnnRegressor(**settings).fit_stream(lambda: [(X, y)], path, n_shards=3)

    fit(X[:, 0])
    registry = Registry.of([path], n_jobs=1)
    served = registry.models["large"]
    inputs, targets = served.training.rows(np.array([7, 3]))
    np.testing.assert_allclose(inputs, X[[7, 3]], atol=1e-5)
    np.testing.assert_allclose(targets, X[[7, 3], 0], atol=1e-5)
    assert registry.stale() == []
    fit(X[:, 1])
    assert registry.stale() == ["large"]
    registry.refresh("large")
    assert registry.models["large"].version != served.version
