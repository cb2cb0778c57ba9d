"""What GPnnRegressor() does beyond the paper's recipe: a learned metric, choices by evidence, honest intervals."""

import copy
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold

from gpnn import Broad, GPnnRegressor, GPnnWarning, Hyperparameters, InvalidInputError, Prediction, metrics
from gpnn.calibration import fit_calibration, interval
from gpnn.engines.cpu.solver import solve, solve_path
from gpnn.kernels import KERNELS
from gpnn.stages.candidates import Candidate, hope, leaders_of, rivals_of, settled


def make(n, seed=0):
    """Two of eight columns matter; noise is three times as large where the first is positive."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 8)) * np.array([1, 100, 1, 1e-3, 1, 1, 1, 1])
    noise = np.where(X[:, 0] > 0, 0.3, 0.1)
    return X, 10 + 5 * (np.sin(6 * X[:, 0]) + X[:, 1] / 100 + noise * rng.standard_normal(n))


@pytest.fixture(scope="module")
def data():
    X, y = make(7000)
    return X[:4000], y[:4000], X[4000:], y[4000:]


@pytest.fixture(scope="module")
def fitted(data):
    return GPnnRegressor(random_state=0).fit(*data[:2])


def test_better_than_the_recipe_of_the_paper(fitted, data):
    ours, recipe = fitted.evaluate(*data[2:]), GPnnRegressor.paper(random_state=0).fit(*data[:2]).evaluate(*data[2:])
    assert ours["rmse"] < 0.75 * recipe["rmse"]
    assert ours["nll"] < recipe["nll"] - 0.3
    assert ours["calibration"] == pytest.approx(1, abs=0.1)
    assert ours["coverage_90"] == pytest.approx(0.9, abs=0.025)


def test_columns_without_influence_are_stretched_away(fitted):
    scales = np.abs(fitted.whitener_.x_map) * np.array([1, 100, 1, 1e-3, 1, 1, 1, 1])
    if scales.ndim == 1:
        assert scales[0] > 3 * scales[3:].max()


def test_candidates_sizes_and_stages_are_reported(fitted):
    report = fitted.fit_report_
    tried = report["candidates"]
    pairs = {(c["whitening"], c["kernel"]) for c in tried}
    assert pairs > {(whitening, "exponential") for whitening in ("diagonal", "full", "ranks")}
    assert pairs > {(fitted.fit_report_["whitening"], kernel) for kernel in KERNELS}
    scores = [c["nll"] + np.log(c["rmse"]) + 0.01 * c["mapped"] + 0.03 * ("+" in c["kernel"]) for c in tried]
    assert scores == sorted(scores)
    assert {c["refined"] for c in tried} == {True, False}
    assert fitted.kernel_ == tried[0]["kernel"]
    assert fitted.n_neighbors_ in [point["n_neighbors"] for point in report["m_curve"]]
    low, high = fitted.alpha_interval_
    assert low < fitted.alpha_ < high
    assert set(report["shapes"]) == {"gaussian", "student_t", "empirical"}


def test_a_function_of_sums_gets_a_map_that_goes_into_the_whitener(few_steps, tmp_path):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, size=(4000, 5)) * [1.0, 100.0, 1.0, 1.0, 1e-3]
    y = np.sin(3 * (X[:, 0] + X[:, 1] / 100 + X[:, 2] + X[:, 3])) + 0.05 * rng.normal(size=len(X))
    settings = {"kernel": "matern52", "whitening": "diagonal", "far": False, "random_state": 0}
    columns, mapped = (GPnnRegressor(refine=refine, **settings).fit(X[:3000], y[:3000]) for refine in ("columns", True))
    assert columns.whitener_.x_map.ndim == 1
    assert not any(c["mapped"] for c in columns.fit_report_["candidates"])
    assert mapped.whitener_.x_map.ndim == 2
    assert mapped.fit_report_["candidates"][0]["mapped"]
    errors = [model.evaluate(X[3000:], y[3000:])["rmse"] for model in (columns, mapped)]
    assert errors[1] < 0.9 * errors[0]
    explanation = mapped.explain(X[3000:3020])
    np.testing.assert_allclose(explanation.mean(), mapped.predict(X[3000:3020]), atol=1e-3)
    np.testing.assert_allclose(explanation.columns.sum(axis=1), 1)
    share = mapped.relevance().share
    assert share[:4].min() > 5 * abs(share[4])
    mapped.save(tmp_path / "mapped.gpnn")
    loaded = GPnnRegressor.load(tmp_path / "mapped.gpnn")
    np.testing.assert_array_equal(loaded.predict(X[3000:]), mapped.predict(X[3000:]))


@pytest.fixture(scope="module")
def added_up():
    """Squares of a chess board in two columns, and something smooth in two others."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, size=(3500, 4)) * [1.0, 100.0, 1.0, 1e-3]
    rough = np.sign(np.sin(9 * X[:, 0]) * np.sin(0.09 * X[:, 1]))
    y = rough + np.sin(3 * X[:, 2]) * X[:, 3] * 1e3 + 0.05 * rng.normal(size=len(X))
    return X[:3000], y[:3000], X[3000:], y[3000:]


def test_a_function_that_adds_up_gets_a_sum_of_kernels(added_up, tmp_path, few_steps):
    X, y, X_test, y_test = added_up
    settings = {"whitening": "diagonal", "trees": False, "random_state": 0, "n_jobs": 1}
    single, model = (GPnnRegressor(kernel=kernel, **settings).fit(X, y) for kernel in ("matern32", "auto"))
    assert "+" in model.kernel_
    assert model.params_.broad is not None
    np.testing.assert_allclose(model.params_.metric, 1)
    assert model.evaluate(X_test, y_test)["rmse"] < 0.95 * single.evaluate(X_test, y_test)["rmse"]
    assert 0.8 < model.evaluate(X_test, y_test)["coverage_90"] < 0.97
    explanation = model.explain(X_test[:20])
    np.testing.assert_allclose(explanation.mean(), model.predict(X_test[:20]), atol=2e-3)
    share = model.relevance().share
    assert share.sum() == pytest.approx(1)
    assert share[:2].min() > share[2:].max()
    law = model.predict_distribution(X_test[:20], joint=True)
    np.testing.assert_allclose(np.diag(law.covariance()), model.predict_distribution(X_test[:20]).variance, rtol=1e-2)
    model.save(tmp_path / "sum.gpnn")
    loaded = GPnnRegressor.load(tmp_path / "sum.gpnn")
    assert loaded.params_ == model.params_
    np.testing.assert_array_equal(loaded.predict(X_test), model.predict(X_test))


def test_a_sum_that_was_asked_for(added_up, few_steps):
    X, y, X_test, _ = added_up
    settings = {"kernel": "exponential+rbf", "random_state": 0, "n_jobs": 1, "far": False}
    assert GPnnRegressor(**settings).fit(X[:700], y[:700]).kernel_ == "exponential+rbf"
    params = Hyperparameters(0.3, 1.0, 0.01, Broad(0.5, np.array([1.0, 2.0, 3.0, 4.0])))
    given = GPnnRegressor(params=params, whitening="diagonal", **settings).fit(X, y)
    slow = GPnnRegressor(params=params, whitening="diagonal", engine="reference", **settings).fit(X, y)
    np.testing.assert_allclose(given.predict(X_test[:20]), slow.predict(X_test[:20]), atol=1e-3)
    for wrong in ({"refine": False}, {"params": Hyperparameters(1.0, 1.0, 0.1)}, {"params": params, "kernel": "rbf"}):
        with pytest.raises(InvalidInputError, match="sum"):
            GPnnRegressor(**(settings | wrong)).fit(X, y)
    short = Hyperparameters(0.3, 1.0, 0.01, Broad(0.5, np.ones(3)))
    with pytest.raises(InvalidInputError, match="3 lengthscales"):
        GPnnRegressor(**(settings | {"params": short})).fit(X, y)


def test_same_seed_same_numbers_whatever_the_threads(data, few_steps):
    X, y, X_new = data[0][:2000], data[1][:2000], data[2][:50]
    ours, theirs = (
        GPnnRegressor(random_state=0, n_jobs=n_jobs, batch_size=size).fit(X, y).predict(X_new)
        for n_jobs, size in ((1, 7), (3, None))
    )
    np.testing.assert_array_equal(ours, theirs)


def test_local_calibration_knows_where_noise_is_large(fitted, data):
    X_test = data[2]
    std = fitted.predict(X_test, return_std=True)[1]
    noisy = X_test[:, 0] > 0
    assert np.median(std[noisy]) > 1.5 * np.median(std[~noisy])
    plain = clone(fitted).set_params(calibration="global").fit(*data[:2])
    by_process = [copy.copy(model) for model in (plain, fitted)]
    for model in by_process:
        model._trees = None  # whose say depends on the widths
    np.testing.assert_allclose(*(model.predict(X_test[:20]) for model in by_process))  # the mean is untouched
    assert fitted.evaluate(*data[2:])["nll"] < plain.evaluate(*data[2:])["nll"] - 0.05


def test_intervals_quantiles_and_diagnosis(fitted, data):
    X_test, y_test = data[2:]
    for coverage in (0.5, 0.9, 0.99):
        lower, upper = fitted.predict_interval(X_test, coverage)
        assert np.mean((lower <= y_test) & (y_test <= upper)) == pytest.approx(coverage, abs=0.03)
    quantiles = fitted.predict_quantiles(X_test, [0.1, 0.5, 0.9])
    assert quantiles.shape == (3000, 3)
    assert (np.diff(quantiles, axis=1) > 0).all()
    diagnosis = fitted.diagnose(X_test, y_test)
    assert sum(diagnosis["pit"]) == pytest.approx(1)
    assert max(diagnosis["pit"]) < 0.1
    assert min(diagnosis["coverage_by_sd"]) > 0.8
    for bad in (0, 1, 1.5):
        with pytest.raises(InvalidInputError, match="between 0 and 1"):
            fitted.predict_interval(X_test, bad)
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        fitted.predict_quantiles(X_test, [0.5, 2])


@pytest.mark.parametrize("holdout", ["patches", KFold(10, shuffle=True, random_state=0)])
def test_held_out_rows_return_to_the_training_rows(holdout, data):
    X, y = data[0][:1500], data[1][:1500]
    model = GPnnRegressor(holdout=holdout, kernel="matern32", whitening="diagonal", random_state=0).fit(X, y)
    assert "return rows" in model.fit_report_["seconds"]
    assert np.isin(model.calibration_rows_, model.kneighbors(X).indices).all()
    aside = clone(model).set_params(return_rows=False).fit(X, y)
    assert not np.isin(aside.calibration_rows_, aside.kneighbors(X).indices).any()
    assert model.evaluate(*data[2:])["rmse"] < 0.5


def test_patches_keep_intervals_honest_in_gaps():
    """A smooth field with a hole: where queries lie in gaps, random hold-outs promise too much."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, size=(6000, 2))
    y = np.sin(2 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.02 * rng.standard_normal(6000)
    centres = rng.uniform(1, 9, size=(8, 2))
    in_gap = (np.linalg.norm(X[:, None] - centres, axis=2) < 0.45).any(axis=1)
    shares = {}
    for holdout in ("random", "patches"):
        model = GPnnRegressor(holdout=holdout, kernel="exponential", whitening="diagonal", random_state=0)
        lower, upper = model.fit(X[~in_gap], y[~in_gap]).predict_interval(X[in_gap])
        shares[holdout] = np.mean((lower <= y[in_gap]) & (y[in_gap] <= upper))
    assert 0.8 < shares["patches"] <= 1
    assert abs(shares["patches"] - 0.9) < abs(shares["random"] - 0.9) + 0.02


@pytest.mark.parametrize("mean", ["zero", "constant", "linear", LinearRegression()])
def test_mean_functions(mean, data):
    X, y = data[0][:1000], 1e3 + 50 * data[0][:1000, 4] + data[1][:1000]
    recipe = GPnnRegressor.paper(mean=mean, random_state=0, n_neighbors=50, calibration_size=100)
    model = recipe.fit(X, y)
    far = np.full((1, 8), 1e4)
    prediction = model.predict(far)[0]
    if mean == "zero":
        assert prediction == pytest.approx(0, abs=1)
    elif mean == "constant":
        assert prediction == pytest.approx(y.mean(), rel=0.01)
    else:  # the trend goes on where there are no data
        expected = LinearRegression().fit(X, y).predict(far)[0]
        assert prediction == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("setting", [{"mean": "cubic"}, {"mean": 3}, {"holdout": "sometimes"}, {"calibration": "none"},
                                     {"n_neighbors": "many"}, {"calibration_size": "all"}])  # fmt: skip
def test_bad_settings_are_explained(setting, data):
    with pytest.raises(InvalidInputError, match=next(iter(setting))):
        GPnnRegressor(**setting).fit(data[0][:300], data[1][:300])


@pytest.mark.parametrize("n", [2, 3, 7, 40, 199, 210, 260])
def test_few_rows(n, few_steps):
    X, y = make(n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPnnWarning)
        model = GPnnRegressor(random_state=0).fit(X, y)
        mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


def test_many_columns_of_which_few_matter():
    """120 columns and 1000 rows: the metric must not be fitted to chance."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 120))
    y = X[:, 0] + np.abs(X[:, 1]) + 0.3 * rng.standard_normal(2000)
    ours, recipe = (
        model.fit(X[:1000], y[:1000]).evaluate(X[1000:], y[1000:])
        for model in (
            GPnnRegressor(kernel="matern32", whitening="diagonal", far=False, random_state=0),
            GPnnRegressor.paper(random_state=0),
        )
    )
    assert ours["rmse"] < recipe["rmse"]
    assert ours["nll"] < recipe["nll"]


# --- the parts --------------------------------------------------------------------------------------------------------


def test_the_m_curve_is_what_fewer_neighbours_would_give(rng):
    from gpnn import Hyperparameters
    from gpnn.kernels import get_kernel

    X_star, N, y = rng.normal(size=(6, 3)), rng.normal(size=(6, 60, 3)), rng.normal(size=(6, 60))
    setting = get_kernel("matern32"), Hyperparameters(1.0, 1.2, 0.1)
    sizes = np.array([1, 7, 16, 33, 60])
    path = solve_path(X_star, N, y, *setting, sizes)
    for at, m in enumerate(sizes):
        alone = solve(X_star, N[:, :m], y[:, :m], *setting)
        np.testing.assert_allclose(path.mean[:, at], alone.mean, atol=2e-4)
        np.testing.assert_allclose(path.variance[:, at], alone.variance, rtol=2e-4)


def test_interval_of_alpha_is_wide_for_heavy_tails(rng):
    light, heavy = rng.standard_normal(4000) ** 2, rng.standard_t(3, 4000) ** 2 / 3
    widths = [np.diff(interval(z)) for z in (light, heavy)]
    assert widths[1] > 1.5 * widths[0]
    low, high = interval(light)
    assert low < 1 < high


def right_laws(rng, n=5000, m=20):
    """Laws that are right: variances, targets drawn from them, and innovations as θ̂ says."""
    variance = rng.uniform(0.5, 2.0, n)
    y = np.sqrt(variance) * rng.standard_normal(n)
    return y, Prediction(np.zeros(n), variance), rng.standard_normal((n, m)) ** 2


def test_right_laws_are_left_alone(rng):
    found = fit_calibration(*right_laws(rng))
    assert found.scale is None
    assert found.floor == 0
    assert found.alpha == pytest.approx(1, abs=0.06)


def test_a_floor_where_tiny_variances_are_wrong(rng):
    y, law, innovations = right_laws(rng)
    sure = rng.uniform(size=5000) < 0.1
    law = Prediction(law.mean, np.where(sure, 1e-4, law.variance))
    y = np.where(sure & (rng.uniform(size=5000) < 0.05), 1.0, np.where(sure, 0.01 * y, y))
    found = fit_calibration(y, law, innovations)
    assert found.floor > 1e-3
    assert metrics.calibration(y, found(law, innovations)) == pytest.approx(1)


def test_variances_follow_the_roughness_of_the_neighbourhood_and_are_bounded(rng):
    y, law, innovations = right_laws(rng)
    rough = np.where(rng.uniform(size=5000) > 0.5, 4.0, 0.25)
    y, innovations = np.sqrt(rough) * y, rough[:, None] * innovations
    found = fit_calibration(y, law, innovations)
    calibrated = found(law, innovations)
    assert metrics.calibration(y, calibrated) == pytest.approx(1)
    factors = calibrated.variance / law.variance
    assert factors[rough > 1].mean() / factors[rough < 1].mean() == pytest.approx(16, rel=0.3)
    smooth = found(Prediction(np.zeros(1), np.ones(1)), np.zeros((1, 20)))  # neighbours that lie on a plane
    assert smooth.variance[0] == pytest.approx(found.alpha * found.scale.share + found.floor)


def test_metrics_and_evaluate_agree(fitted, data):
    law = fitted.predict_distribution(data[2])
    assert fitted.evaluate(*data[2:], units="y")["rmse"] == pytest.approx(metrics.rmse(data[3], law))


def test_given_lengthscales_by_column_are_the_metric_of_the_search_too(data):
    X, y, X_test, _ = data
    X, X_test = X / X.std(axis=0), X_test / X.std(axis=0)
    lengthscale = np.array([0.1, 1.0, *[10.0] * 6])

    def fit(rows, scale):
        params = Hyperparameters(scale, 1.0, 0.05)
        return GPnnRegressor(kernel="matern32", whitening="none", params=params, random_state=0).fit(rows, y)

    given, stretched = fit(X, lengthscale), fit(X / lengthscale, 1.0)
    assert given.n_neighbors_ == stretched.n_neighbors_
    np.testing.assert_allclose(given.predict(X_test), stretched.predict(X_test / lengthscale), rtol=1e-4)


def test_hope_is_the_mean_of_the_gains_that_noise_leaves_room_for(rng):
    losses = rng.normal(size=(2, 900))
    leader, behind = (
        Candidate("full", "rbf", True, Hyperparameters(1.0, 1.0, 0.1), rmse=1.0, nll=nll, crps=1.0, losses=of)
        for nll, of in zip((0.0, 0.03), losses, strict=True)
    )
    error = np.std(losses[1] - losses[0]) / 30
    drawn = rng.normal(0.03, error, 1_000_000)  # by how much it is behind, for all we know
    assert hope(behind, leader) == pytest.approx(np.mean(np.maximum(-drawn, 0)), rel=0.02)
    assert hope(replace(behind, losses=None), leader) == np.inf


def test_no_whitening_takes_more_than_half_of_the_places():
    def candidate(whitening, kernel, nll, refined=True):
        return Candidate(whitening, kernel, refined, Hyperparameters(1.0, 1.0, 0.1), rmse=1.0, nll=nll, crps=1.0)

    ahead = [candidate("full", kernel, nll) for nll, kernel in enumerate(KERNELS)]
    behind = [candidate("diagonal", kernel, 10 + nll) for nll, kernel in enumerate(KERNELS)]
    again, unrefined = candidate("full", next(iter(KERNELS)), 0.5), candidate("ranks", "rbf", -1.0, refined=False)
    everyone = [*behind, again, *ahead, unrefined]
    assert leaders_of(everyone, 4) == ahead[:2] + behind[:2]
    assert leaders_of(everyone, 2) == ahead[:2]
    assert leaders_of(everyone, 1) == ahead[:1]


def test_of_those_that_are_as_good_the_better_mean_is_taken():
    def candidate(rmse, score):
        return Candidate("diagonal", "matern32", True, Hyperparameters(1.0, 1.0, 0.1), rmse, score - np.log(rmse))

    surer, sharper, behind = candidate(0.05, -5.72), candidate(0.04, -5.71), candidate(0.03, -5.6)
    assert settled([behind, sharper, surer]) == [sharper, surer, behind]
    assert settled([sharper, candidate(0.06, -5.8)])[0].rmse == 0.06  # clearly better


def test_rougher_and_smoother_go_on_beside_sums_that_lead():
    """Sums of the leading kernel must not take the place of another, which may be ahead among more rows."""
    params = Hyperparameters(1.0, 1.0, 0.1)
    kernels = ["exponential", "exponential+exponential", "matern32+exponential", "matern32", "rbf"]
    alike = [Candidate("diagonal", kernel, True, params, 1.0, 0.06 * i) for i, kernel in enumerate(kernels)]
    other = Candidate("ranks", "matern32", True, params, 1.0, 0.01)
    everyone = [*alike, other, Candidate("diagonal", "matern32", False, params, 1.0, 0.0)]
    assert rivals_of(everyone, alike[:2], np.inf) == [alike[3]]  # of the leader's whitening, and refined
    assert rivals_of(everyone, alike[1:3], np.inf) == [alike[0], alike[3]]
    assert rivals_of(everyone, alike[:2], behind=0.1) == []  # too far behind for the largest sample
    assert rivals_of(everyone, [alike[0], alike[3]], np.inf) == []
