"""Which scale, which limits: chosen by evidence, and carried through all that a model is asked."""

import numpy as np
import pytest
from tests.conftest import shorten

from gpnn import GPnnRegressor, InvalidInputError
from gpnn.common.scales import TargetScale
from gpnn.stages.scales import FEWEST, limits_of, make_scale, scales_to_try

FIXED: dict = {
    "kernel": "matern32", "whitening": "diagonal", "n_neighbors": 32, "far": False, "suspects": "keep",
    "random_state": 0, "n_jobs": 1,
}  # fmt: skip


def table(n=2400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1], rng


@pytest.fixture(scope="module")
def lognormal():
    X, f, rng = table()
    y = np.exp(f + 0.5 * rng.normal(size=len(f)))
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        return X, y, GPnnRegressor(**FIXED).fit(X[:1600], y[:1600])


@pytest.fixture(autouse=True)
def quick(few_steps):
    """Of the fits themselves; trials of scales are what they are."""


@pytest.mark.parametrize(
    ("values", "limits"),
    [
        (lambda rng: rng.normal(size=500), (-np.inf, np.inf)),
        (lambda rng: rng.exponential(size=500), (0, np.inf)),
        (lambda rng: -rng.exponential(size=500), (-np.inf, 0)),
        (lambda rng: rng.beta(2, 2, size=500), (0, 1)),
        (lambda rng: 100 * rng.beta(3, 2, size=500), (0, 100)),
        (lambda rng: 0.5 * rng.random(500), (0, np.inf)),
        (lambda rng: rng.poisson(2.0, size=500).astype(float), (0, np.inf)),
        (lambda rng: rng.integers(1, 6, size=500).astype(float), (1, 5)),
        (lambda rng: np.minimum(rng.normal(size=500), 1.5), (-np.inf, 1.5)),
        (lambda rng: np.repeat(rng.normal(size=50), 10), (-np.inf, np.inf)),
    ],
)
def test_limits_by_evidence(values, limits, rng):
    assert limits_of(values(rng)) == limits


def test_ordinary_targets_are_learned_as_they_are(rng):
    for y in (rng.normal(size=1000), rng.random(1000), 50 + 7 * rng.normal(size=1000), rng.standard_t(3, size=1000)):
        assert scales_to_try(y, limits_of(y)) == []


def test_skewed_ones_on_others(rng):
    y = rng.lognormal(size=1000)
    assert [scale.kind for scale in scales_to_try(y, (0, np.inf))] == ["sqrt", "log"]
    assert [scale.kind for scale in scales_to_try(-y, (-np.inf, 0))] == ["yeo-johnson"]
    assert [scale.kind for scale in scales_to_try(y - 1, (-np.inf, np.inf))] == ["yeo-johnson"]
    assert scales_to_try(y[: FEWEST - 1], (0, np.inf)) == []


def test_counts_keep_a_step_from_the_logarithm_of_zero(rng):
    y = rng.poisson(1.0, size=500).astype(float)
    assert make_scale("log", y, (0, np.inf)).back(0.0) == 0.0
    np.testing.assert_allclose(make_scale("log", y, (0, np.inf))(y), np.log(y + 1))
    np.testing.assert_allclose(make_scale("sqrt", y, (0, np.inf))(y), np.sqrt(y + 3 / 8))


def test_a_lognormal_target(lognormal):
    X, y, model = lognormal
    assert model.target_scale_.kind == "log"
    assert [row["scale"] for row in model.fit_report_["target_scales"]] == ["identity", "sqrt", "sqrt", "log"]
    new, outcomes = X[1600:], y[1600:]
    scores = model.evaluate(new, outcomes)
    plain = GPnnRegressor(target_scale="identity", **FIXED).fit(X[:1600], y[:1600]).evaluate(new, outcomes)
    assert scores["nll"] < plain["nll"] - 0.3
    assert scores["rmse"] < 1.03 * plain["rmse"]
    assert scores["crps"] < plain["crps"]
    assert scores["coverage_90"] == pytest.approx(0.9, abs=0.03)
    # The mean is that of the law: within chance of what comes out.
    mean, std = model.predict(new, return_std=True)
    assert abs(np.mean((outcomes - mean) / std)) < 3 / np.sqrt(len(new))
    units = model.evaluate(new, outcomes, units="y")
    assert units["nll"] - scores["nll"] == pytest.approx(np.log(model._y_scale[1]))
    assert units["coverage_90"] == scores["coverage_90"]


def test_intervals_and_quantiles_are_mapped(lognormal):
    X, y, model = lognormal
    inner = GPnnRegressor(target_scale="identity", target_limits=None, **FIXED).fit(X[:1600], np.log(y[:1600]))
    new = X[1600:1700]
    levels = [0.01, 0.3, 0.5, 0.99]
    expected = np.exp(inner.predict_quantiles(new, levels))
    np.testing.assert_allclose(model.predict_quantiles(new, levels), expected, rtol=1e-9)
    lower, upper = model.predict_interval(new, 0.9)
    assert (lower > 0).all()
    np.testing.assert_allclose(np.log([lower, upper]), inner.predict_interval(new, 0.9), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.predictor()(new), model.predict(new, return_std=True))
    coverage = model.diagnose(X[1600:], y[1600:])["coverage_by_level"]
    np.testing.assert_allclose(coverage, inner.diagnose(X[1600:], np.log(y[1600:]))["coverage_by_level"])


def test_draws_thresholds_and_what_cannot_be_said(lognormal):
    X, _, model = lognormal
    new = X[1600:1650]
    draws = model.sample_y(new, 4000)
    assert (draws > 0).all()
    np.testing.assert_allclose(np.quantile(draws, 0.9, axis=1), model.predict_quantiles(new, [0.9])[:, 0], rtol=0.15)
    above = model.predict_exceedance(new, 1.0)
    np.testing.assert_allclose(above, (draws > 1).mean(axis=1), atol=0.03)
    np.testing.assert_array_equal(model.predict_exceedance(new, -1.0), 1.0)
    assert model.excursion_region(new, 1.0).inside.dtype == bool
    assert len(model.suggest(new, 3, "ei", best=2.0)) == 3
    for ask in (lambda: model.predict_sum(new), lambda: model.predict(new, return_cov=True)):
        with pytest.raises(InvalidInputError, match=r"sample_y.*target_scale='identity'"):
            ask()


def test_reasons_are_given_on_the_scale_that_was_learned(lognormal):
    X, y, model = lognormal
    found = model.explain(X[1600:1610])
    assert found.scale == "log"
    np.testing.assert_allclose(found.y, np.log(y[found.indices]), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.mean(), model.predict_distribution(X[1600:1610]).inner.mean, atol=1e-3)
    curve = model.partial_dependence(X[:100], 0)
    assert (curve.lower < curve.mean).all()
    assert (curve.lower > 0).all()


def test_model_files(lognormal, tmp_path):
    X, _, model = lognormal
    model.save(tmp_path / "model.gpnn")
    loaded = GPnnRegressor.load(tmp_path / "model.gpnn")
    assert loaded.target_scale_ == model.target_scale_
    np.testing.assert_array_equal(loaded.predict_quantiles(X[:20], [0.1]), model.predict_quantiles(X[:20], [0.1]))


def test_rows_that_come_later(lognormal):
    X, y, fitted = lognormal
    model = GPnnRegressor(**FIXED).fit(X[:1600], y[:1600])
    model.partial_fit(X[1600:2000], y[1600:2000])
    new, outcomes = X[2000:], y[2000:]
    assert model.evaluate(new, outcomes)["nll"] < fitted.evaluate(new, outcomes)["nll"] + 0.05
    model.recalibrate(new, outcomes)
    assert 0.8 < model.recalibration_["factor"] < 1.25
    with pytest.raises(InvalidInputError, match="fit again"):
        model.partial_fit(X[:1], [-3.0])


def test_several_targets_each_on_its_own():
    X, f, rng = table(1600)
    Y = np.stack([np.exp(f + 0.5 * rng.normal(size=1600)), f + 0.2 * rng.normal(size=1600)], axis=1)
    model = GPnnRegressor(**FIXED).fit(X[:1500], Y[:1500])
    assert [one.target_scale_.kind for one in model.targets_] == ["log", "identity"]
    law = model.predict_distribution(X[1500:])
    lower, upper = model.predict_interval(X[1500:])
    for j, one in enumerate(model.targets_):
        np.testing.assert_allclose(law.mean[:, j], one.predict(X[1500:]), rtol=1e-6)
        np.testing.assert_allclose((lower[:, j], upper[:, j]), one.predict_interval(X[1500:]), rtol=1e-6)
    scores = model.evaluate(X[1500:], Y[1500:])
    assert scores["nll"][0] == pytest.approx(model.targets_[0].evaluate(X[1500:], Y[1500:, 0])["nll"])


def test_limits_without_a_scale():
    X, f, rng = table(1200)
    y = np.clip(0.5 + 0.4 * f + 0.1 * rng.normal(size=1200), 0, 1)
    model = GPnnRegressor(**FIXED).fit(X[:1000], y[:1000])
    assert model.target_scale_ == TargetScale(low=0.0, high=1.0, spread=float(np.std(y[:1000])))
    free = GPnnRegressor(target_limits=None, **FIXED).fit(X[:1000], y[:1000])
    np.testing.assert_array_equal(model.predict(X[1000:]), free.predict(X[1000:]))
    lower, upper = model.predict_interval(X[1000:])
    np.testing.assert_array_equal((lower, upper), np.clip(free.predict_interval(X[1000:]), 0, 1))
    draws = model.sample_y(X[1000:1020], 50)
    assert draws.min() >= 0
    assert draws.max() <= 1
    np.testing.assert_array_equal(model.predict_exceedance(X[1000:1010], 1.0), 0.0)
    assert model.evaluate(X[1000:], y[1000:])["coverage_90"] == free.evaluate(X[1000:], y[1000:])["coverage_90"]


def test_wrong_values_keep_the_target_as_it_is():
    X, f, rng = table(1000)
    y = np.exp(f + 0.3 * rng.normal(size=1000))
    y[rng.choice(1000, 20, replace=False)] = -9999.0
    with pytest.warns(UserWarning, match="-9999"):
        model = GPnnRegressor(**(FIXED | {"suspects": "leave out"})).fit(X, y)
    assert model.target_scale_.kind == "identity"


def test_refusals():
    X, f, _ = table(300)
    with pytest.raises(InvalidInputError, match=r"never negative.*yeo-johnson"):
        GPnnRegressor(target_scale="log", **FIXED).fit(X, f)
    with pytest.raises(InvalidInputError, match="target_scale='identity'"):
        GPnnRegressor(target_scale="log", **FIXED).fit(X, np.exp(f), noise_variance=np.ones(300))
    with pytest.raises(InvalidInputError, match="target_limits"):
        GPnnRegressor(target_limits=(1, 0)).fit(X, f)
    with pytest.raises(InvalidInputError, match="do not hold"):
        GPnnRegressor(target_limits=(0, None), **FIXED).fit(X, f)
    with pytest.raises(InvalidInputError, match="target_scale = 'cube'"):
        GPnnRegressor(target_scale="cube").fit(X, f)
