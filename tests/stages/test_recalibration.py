import numpy as np
import pytest

from gpnn import AdaptiveIntervals, GPnnRegressor
from gpnn.common.errors import InvalidInputError


def rows(n, noise, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    return X, np.sin(3 * X[:, 0]) + noise * rng.normal(size=n)


@pytest.fixture
def model(few_steps):
    return GPnnRegressor(random_state=0).fit(*rows(600, 0.1, 0))


def coverage(intervals, X, y):
    lower, upper = intervals.predict_interval(X)
    return float(np.mean((lower <= y) & (y <= upper)))


def test_noise_that_grew_is_learned_from_few_labels(model):
    X_new, y_new = rows(2000, 0.3, 1)
    before = model.predict(X_new)
    assert coverage(model, X_new, y_new) < 0.6
    model.recalibrate(*rows(150, 0.3, 2))
    assert 0.85 < coverage(model, X_new, y_new) < 0.95
    np.testing.assert_array_equal(model.predict(X_new), before)
    assert model.recalibration_["alarm"]
    assert 6 < model.recalibration_["factor"] < 12
    assert model.recalibration_["rows"] == 150


def test_a_second_time_there_is_nothing_to_do(model):
    labels = rows(400, 0.3, 2)
    model.recalibrate(*labels).recalibrate(*labels)
    assert model.recalibration_["factor"] == pytest.approx(1, abs=0.05)
    assert not model.recalibration_["alarm"]


def test_a_model_file_keeps_what_was_learned(model, tmp_path):
    X, y = rows(200, 0.3, 3)
    model.recalibrate(X, y).save(tmp_path / "m.gpnn")
    loaded = GPnnRegressor.load(tmp_path / "m.gpnn")
    np.testing.assert_array_equal(loaded.predict_distribution(X).variance, model.predict_distribution(X).variance)
    assert loaded.recalibration_["rows"] == 200


def test_three_lucky_rows_change_little(model):
    X, _ = rows(3, 0.1, 4)
    model.recalibrate(X, model.predict(X))
    assert model.recalibration_["factor"] > 0.7


def test_another_fit_forgets_it(model):
    model.recalibrate(*rows(100, 0.3, 2)).fit(*rows(600, 0.1, 0))
    assert not hasattr(model, "recalibration_")
    assert model._factors == (1.0, 1.0)


def test_without_rows_there_is_nothing_to_learn(model):
    with pytest.raises(InvalidInputError, match="at least one row"):
        model.recalibrate(np.zeros((0, 2)), np.zeros(0))


def test_a_stream_keeps_its_coverage_while_noise_grows(model):
    rng = np.random.default_rng(9)
    X = rng.uniform(-1, 1, size=(3000, 2))
    y = np.sin(3 * X[:, 0]) + np.linspace(0.1, 0.6, 3000) * rng.normal(size=3000)
    stream = AdaptiveIntervals(model)
    inside = np.concatenate([stream.observe(X[k : k + 10], y[k : k + 10]) for k in range(0, 3000, 10)])
    assert 0.88 < inside.mean() < 0.92
    assert 0.85 < inside[-1000:].mean() < 0.95
    assert stream.alarm
    assert stream.width > 2
    assert coverage(model, X[-1000:], y[-1000:]) < 0.6
    assert (stream.n_observed, stream.n_inside) == (3000, inside.sum())


def test_a_quiet_stream_raises_no_alarm(model):
    stream = AdaptiveIntervals(model.recalibrate(*rows(1000, 0.1, 7)))
    stream.observe(*rows(150, 0.1, 8))
    assert not stream.alarm


@pytest.mark.parametrize("wrong", [{"coverage": 1.0}, {"rate": 0.0}])
def test_wrong_settings_are_named(model, wrong):
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        AdaptiveIntervals(model, **wrong)
