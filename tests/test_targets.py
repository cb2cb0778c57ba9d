"""Several targets: each is answered as by a model of its own, from one search and one factor."""

import numpy as np
import pandas as pd
import pytest
from sklearn.multioutput import MultiOutputRegressor

from gpnn import GPnnRegressor, Hyperparameters, InvalidInputError

GIVEN = {
    "kernel": "matern32", "params": Hyperparameters(0.7, 1.0, 0.05), "n_neighbors": 40, "whitening": "diagonal",
    "random_state": 0, "n_jobs": 1, "suspects": "keep",
}  # fmt: skip


def table(n, k=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    signals = np.stack([np.sin((1 + j / 4) * X[:, 0]) + X[:, 1] for j in range(k)], axis=1)
    return X, (signals + 0.2 * rng.normal(size=(n, k))) * 10.0 ** np.arange(k) + np.arange(k)


@pytest.mark.parametrize("engine", ["cpu", "reference"])
@pytest.mark.parametrize("calibration_size", [0, 300])
def test_each_is_answered_as_if_it_were_alone(engine, calibration_size, tmp_path):
    X, Y = table(1500, 4)
    settings = GIVEN | {"calibration_size": calibration_size, "engine": engine}
    model = GPnnRegressor(**settings).fit(X[:1400], Y[:1400])
    assert model.target_groups_ == [[0, 1, 2, 3]]
    assert all(one.index_ is model.targets_[0].index_ for one in model.targets_)
    alone = MultiOutputRegressor(GPnnRegressor(**settings)).fit(X[:1400], Y[:1400])
    new = X[1400:]
    mean, std = model.predict(new, return_std=True)
    lower, upper = model.predict_interval(new)
    quantiles = model.predict_quantiles(new, [0.1, 0.9])
    scores = model.evaluate(new, Y[1400:])
    assert quantiles.shape == (100, 4, 2)
    for j, one in enumerate(alone.estimators_):
        own_mean, own_std = one.predict(new, return_std=True)
        np.testing.assert_allclose(mean[:, j], own_mean, atol=2e-3 * own_std.min())
        np.testing.assert_allclose(std[:, j], own_std, rtol=2e-3)
        for ours, own in zip((lower, upper), one.predict_interval(new), strict=True):
            np.testing.assert_allclose(ours[:, j], own, atol=5e-3 * own_std.min())
        np.testing.assert_allclose(quantiles[:, j], one.predict_quantiles(new, [0.1, 0.9]), atol=5e-3 * own_std.min())
        own = one.evaluate(new, Y[1400:, j])
        assert {name: values[j] for name, values in scores.items()} == pytest.approx(own, rel=1e-2)
    assert model.score(new, Y[1400:]) > 0.9
    model.save(tmp_path / "model.gpnn")
    loaded = GPnnRegressor.load(tmp_path / "model.gpnn").set_params(engine=engine)
    np.testing.assert_array_equal(loaded.predict(new), mean)
    assert all(one.index_ is loaded.targets_[0].index_ for one in loaded.targets_)


def test_missing_entries_cost_their_target_alone():
    X, Y = table(900)
    Y[::3, 1] = np.nan
    model = GPnnRegressor(shared_metric=False, **GIVEN | {"calibration_size": 0}).fit(X, Y)
    whole, known = GPnnRegressor(**GIVEN | {"calibration_size": 0}), ~np.isnan(Y[:, 1])
    np.testing.assert_allclose(model.predict(X[:50])[:, 0], whole.fit(X, Y[:, 0]).predict(X[:50]), rtol=1e-3)
    np.testing.assert_allclose(model.predict(X[:50])[:, 1], whole.fit(X[known], Y[known, 1]).predict(X[:50]), rtol=1e-3)
    rows = model.targets_[1].kneighbors(X[:50]).indices
    assert known[rows].all()  # numbers are those of the whole table
    found = model.targets_[1].explain(X[:50])
    np.testing.assert_allclose(found.mean(np.nan_to_num(Y[:, 1])), model.predict(X[:50])[:, 1], rtol=1e-3)
    scores = model.evaluate(X, Y)
    assert np.isfinite(scores["rmse"]).all()


def test_metrics_are_shared_where_nothing_is_lost(few_steps, monkeypatch):
    monkeypatch.setattr("gpnn.stages.few._ROUNDS", (10, 10))
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(400, 2)), columns=["a", "b"])
    noise = 0.1 * rng.normal(size=(400, 3))
    Y = np.stack([np.sin(3 * X.a), np.cos(3 * X.a), np.sin(3 * X.b)], axis=1) + noise  # the last is of another column
    settings = {"kernel": "matern52", "whitening": "diagonal", "far": False, "random_state": 0, "n_jobs": 1}
    model = GPnnRegressor(**settings).fit(X, Y)
    assert model.target_groups_ == [[0, 1], [2]]
    assert GPnnRegressor(shared_metric=False, **settings).fit(X, Y).target_groups_ == [[0], [1], [2]]
    together = GPnnRegressor(shared_metric=True, **settings).fit(X, Y)
    assert together.target_groups_ == [[0, 1, 2]]
    assert together.evaluate(X, Y)["coverage_90"] == pytest.approx([0.9] * 3, abs=0.07)
    assert list(model.feature_names_in_) == ["a", "b"]
    one = model.fit(X, Y[:, 0])  # and back to one
    assert one.predict(X[:3]).shape == (3,)


def test_known_noise_of_each(tmp_path):
    X, Y = table(600, 2)
    noise = np.stack([np.full(600, 0.1), np.linspace(1, 50, 600)], axis=1)
    model = GPnnRegressor(**GIVEN | {"calibration_size": 0}).fit(X, Y, noise_variance=noise)
    own = GPnnRegressor(**GIVEN | {"calibration_size": 0}).fit(X, Y[:, 1], noise_variance=noise[:, 1])
    expected = own.predict(X[:9], return_std=True, noise_variance=3.0)
    found = model.predict(X[:9], return_std=True, noise_variance=3.0)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours[:, 1], theirs, rtol=1e-3)


def test_what_is_a_question_to_one_target():
    X, Y = table(300)
    model = GPnnRegressor(**GIVEN | {"calibration_size": 0}).fit(X, Y)
    for ask in (model.explain, model.kneighbors, lambda X: model.influence([0], X), lambda X: model.recalibrate(X, Y)):
        with pytest.raises(InvalidInputError, match=r"ask model.targets_\[0\]"):
            ask(X)
    model.partial_fit(X[:5] + 0.01, Y[:5])
    assert all(one.kneighbors(X[:1] + 0.01).indices[0, 0] == 300 for one in model.targets_)
    model.forget([300])
    assert all(300 not in one.kneighbors(X[:1] + 0.01).indices for one in model.targets_)
    with pytest.raises(InvalidInputError, match="no value at all in column 1"):
        model.fit(X, np.where(np.arange(3) == 1, np.nan, Y))
    with pytest.raises(InvalidInputError, match="inf"):
        model.fit(X, Y * np.inf)
    with pytest.raises(InvalidInputError, match="shared_metric"):
        GPnnRegressor(shared_metric="yes").fit(X, Y)
