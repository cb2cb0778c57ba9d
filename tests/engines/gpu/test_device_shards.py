"""Shards on a device, which is emulated where there is none: answers of this machine's cores, whatever has room."""

import gc

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from gpnn import GPnnRegressor, Hyperparameters
from gpnn.common.kernels import get_kernel
from gpnn.engines.cpu import CPU
from gpnn.engines.gpu import engine as engines
from gpnn.engines.gpu import shards as on_device

GIVEN = {"params": Hyperparameters(0.5, 0.9, 0.05), "n_neighbors": 6, "calibration_size": 0, "random_state": 0}
PATH = np.array([3, 6]), get_kernel("matern32"), GIVEN["params"]


@pytest.fixture(scope="module", params=[0, 0.6], ids=["no halo", "halo"])
def fitted(request, tmp_path_factory):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=400)
    out = tmp_path_factory.mktemp("model") / "model.gpnn"
    model = GPnnRegressor(**GIVEN, n_jobs=1, far=False).fit_stream(
        lambda: [(X, y)], out, n_shards=4, halo=request.param
    )
    return model, X


def as_on_cpu(gpu, model, queries, own=None):
    cpu, device = (engine.hold(model.index_, model._y) for engine in (CPU(1), gpu))
    found, expected = (engine.path(queries, *PATH, own) for engine in (device, cpu))
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-3)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-3)
    order = model.index_.order
    neighbors = [order[engine.neighbors(queries, 6).indices] for engine in (device, cpu)]
    np.testing.assert_array_equal(*neighbors)
    return device._held


def test_answers_are_those_of_the_cpu(gpu, fitted):
    model, X = fitted
    rows = model.whitener_.transform(X[:8]).astype(np.float32)
    held = as_on_cpu(gpu, model, rows + np.float32(0.01))
    assert len(held._here) == 4
    as_on_cpu(gpu, model, rows, np.arange(8))  # each without itself
    np.testing.assert_allclose(
        GPnnRegressor.load(model.index_.folder).set_params(engine=gpu).predict(X[:4]), model.predict(X[:4]), atol=1e-3
    )


def test_where_there_is_room_for_one_the_others_leave(gpu, fitted, monkeypatch):
    model, X = fitted
    largest = max(on_device._bytes(part) for part in model.index_.parts)
    before = gpu.hold(model.index_, model._y)._held
    kept = {}
    monkeypatch.setitem(engines._on_device, model.index_, kept)

    def free_bytes(device):
        return 2 * largest - sum(one._held for one in kept.values())

    monkeypatch.setattr(on_device, "free_bytes", free_bytes)
    held = as_on_cpu(gpu, model, model.whitener_.transform(X[:6] + 0.01).astype(np.float32))
    assert 1 <= len(held._here) < 4
    assert held is not before


def test_shards_leave_the_device_with_their_model(gpu, fitted):
    model = GPnnRegressor.load(fitted[0].index_.folder)
    before = len(engines._on_device)
    gpu.hold(model.index_, model._y)
    assert len(engines._on_device) == before + 1
    del model
    gc.collect()
    assert len(engines._on_device) == before


def test_a_fit_in_a_stream_may_learn_and_judge_there(gpu, tmp_path, rng):
    X = rng.normal(size=(300, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=300)
    settings = GIVEN | {"calibration_size": 20, "far": False}
    model, other = (
        GPnnRegressor(**settings, engine=engine).fit_stream(lambda: [(X, y)], tmp_path / "m.gpnn", n_shards=2)
        for engine in (gpu, "cpu")
    )
    np.testing.assert_allclose(model.predict(X[:5]), other.predict(X[:5]), atol=1e-3)
