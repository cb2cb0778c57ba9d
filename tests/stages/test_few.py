"""Below 2,000 rows, every row judges a metric that it took no part in learning."""

import numpy as np
import pytest

from gpnn import GPnnRegressor
from gpnn.stages import few


@pytest.fixture(scope="module")
def rough():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(3400, 4))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_t(4, size=len(X))
    return X, y


def test_every_row_judges(rough, few_steps):
    X, y = rough
    model = GPnnRegressor(whitening="diagonal", kernel="matern32", random_state=0, n_jobs=1).fit(X[:600], y[:600])
    np.testing.assert_array_equal(model.calibration_rows_, np.arange(600))
    assert model.fit_report_["calibration_size"] == 600
    low, high = model.alpha_interval_
    assert low < model.alpha_ < high


def test_folds_are_learned_from_the_others_alone(rough, few_steps, monkeypatch):
    """What the rows of a fold are does not change its metric."""
    X, y = rough[0][:400], rough[1][:400]
    found = []
    original = few.cross_fit

    def spy(*args):
        found.append(original(*args))
        return found[-1]

    monkeypatch.setattr("gpnn.regressor.cross_fit", spy)
    settings = {"whitening": "diagonal", "kernel": "matern32", "refine": True, "random_state": 0, "n_jobs": 1}
    GPnnRegressor(**settings).fit(X, y)
    folds = found[0]
    np.testing.assert_array_equal(np.sort(np.concatenate([fold.rows for fold in folds])), np.arange(400))
    first = folds[0]
    other = y.copy()
    other[first.rows] = other[first.rows][::-1]  # the same values, so that y is scaled alike
    GPnnRegressor(**settings, suspects="keep").fit(X, other)
    same = next(fold for fold in found[1] if np.array_equal(fold.rows, first.rows))
    np.testing.assert_allclose(same.whitener.x_map, first.whitener.x_map, rtol=1e-6)
    assert not np.allclose(found[1][1].whitener.x_map, folds[1].whitener.x_map, rtol=1e-6)


def test_intervals_of_few_rows_hold(rough):
    X, y = rough
    covered = []
    for begin in (0, 400, 800):
        rows = slice(begin, begin + 400)
        settings = {"whitening": "diagonal", "kernel": "matern32", "far": False, "random_state": 0, "n_jobs": 1}
        model = GPnnRegressor(**settings).fit(X[rows], y[rows])
        covered.append(model.evaluate(X[1400:], y[1400:])["coverage_90"])
    assert 0.86 < np.mean(covered) < 0.96


def test_many_rows_are_judged_by_some(rough, few_steps):
    X, y = rough
    model = GPnnRegressor(whitening="diagonal", kernel="matern32", random_state=0, n_jobs=1).fit(X[:2400], y[:2400])
    assert len(model.calibration_rows_) == 600
