"""Wrong targets are left out and named; honest ones, however skewed, are not touched."""

import warnings

import numpy as np
import pytest

from gpnn import GPnnRegressor, GPnnWarning
from gpnn.engines.cpu import CPU
from gpnn.stages.holdout import Holdout
from gpnn.stages.suspects import Suspects, first_look, standing_out, tail_index, uneven
from gpnn.stages.whitening import Whitener

N = 3000
SETTINGS = {"kernel": "matern52", "whitening": "diagonal", "random_state": 0, "n_jobs": 1}


@pytest.fixture(scope="module")
def smooth():
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, size=(N + 500, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 0] * X[:, 1] + 0.02 * rng.normal(size=len(X))


def spoilt(y, kind: str):
    rng, y = np.random.default_rng(4), y.copy()
    some = rng.choice(len(y), len(y) // 20, replace=False)
    match kind:
        case "one":
            y[17] = 1e6
        case "sentinel":
            y[some[:5]] = -9999.0
        case "cauchy":
            y[some] += rng.standard_cauchy(len(some))
        case "swapped":
            y[some] = y[np.roll(some, 1)]
    return y


def look(X, y):
    return first_look(X, y, lambda: Whitener.fit(X, y, "diagonal"), CPU(1), None)


@pytest.mark.parametrize("kind", ["one", "sentinel", "cauchy", "swapped"])
@pytest.mark.filterwarnings("ignore::gpnn.GPnnWarning")
def test_wrong_targets_neither_move_means_nor_widen_intervals(smooth, kind, few_steps):
    X, y = smooth
    wrong = spoilt(y[:N], kind)
    model = GPnnRegressor(**SETTINGS).fit(X[:N], wrong)
    errors = np.abs(model.predict(X[N:]) - y[N:])
    low, high = model.predict_interval(X[N:])
    assert np.median(errors) < 2 * 0.6745 * 0.02
    assert 0.85 < np.mean((low <= y[N:]) & (y[N:] <= high)) < 0.97
    # Rows keep their numbers: those left out are never neighbours nor judges, each other row is its own nearest.
    left_out = model._set_aside
    assert set(np.flatnonzero(np.abs(wrong - y[:N]) > 0.5)) <= set(left_out)
    assert not np.isin(left_out, model.calibration_rows_).any()
    kept = np.delete(np.arange(N), left_out)
    np.testing.assert_array_equal(model.kneighbors(X[kept]).indices[:, 0], kept)
    assert {one["row"] for one in model.fit_report_["suspicious"]} <= set(left_out)


def test_a_warning_names_the_rows_and_the_value(smooth, few_steps):
    X, y = smooth
    with pytest.warns(
        GPnnWarning, match=r"5 of 3000 targets look wrong .* value -9999 \(5 times\) .*suspects=\"keep\""
    ):
        model = GPnnRegressor(**SETTINGS).fit(X[:N], spoilt(y[:N], "sentinel"))
    worst = model.fit_report_["suspicious"][0]
    assert worst["y"] == -9999.0
    assert abs(worst["expected"] - y[worst["row"]]) < 0.2
    assert worst["sd"] < -100
    assert model.fit_report_["sentinels"] == [-9999.0]
    assert model.fit_report_["left_out"] == 5


def test_they_can_be_kept(smooth, few_steps):
    X, y = smooth
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = GPnnRegressor(suspects="keep", **SETTINGS).fit(X[:N], spoilt(y[:N], "sentinel"))
    assert len(model._set_aside) == 0
    assert "suspicious" not in model.fit_report_
    assert GPnnRegressor.paper().suspects == "keep"


def test_a_fit_to_right_targets_is_the_same_either_way(smooth, few_steps):
    X, y = smooth
    kept, looked_at = (GPnnRegressor(suspects=s, **SETTINGS).fit(X[:N], y[:N]) for s in ("keep", "leave out"))
    np.testing.assert_array_equal(kept.predict(X[N:]), looked_at.predict(X[N:]))
    assert looked_at.fit_report_["left_out"] == 0


@pytest.mark.parametrize("law", ["lognormal", "counts", "student", "two levels", "exponential"])
def test_honest_tails_are_not_touched(law, rng):
    X = rng.normal(size=(5000, 3))
    y = {
        "lognormal": np.exp(2 * rng.normal(size=5000)),
        "counts": rng.poisson(np.exp(2 * X[:, 0] - 2)).astype(float),
        "student": rng.standard_t(3, size=5000),
        "two levels": (X[:, 0] > 2.3).astype(float),
        "exponential": rng.exponential(size=5000),
    }[law]
    assert len(look(X, y)) == 0
    assert not standing_out((y - y.mean()) / y.std())


def test_a_rare_regime_that_neighbours_share_is_none(rng):
    X = rng.normal(size=(5000, 2))
    y = 1000 + rng.normal(size=5000)
    off = X[:, 0] > 2
    y[off] = 0.0  # a machine that is switched off, where a column says so
    assert len(look(X, y)) == 0
    y[off] = 1000.0
    y[rng.choice(5000, off.sum(), replace=False)] = 0.0  # and anywhere
    found = look(X, y)
    np.testing.assert_array_equal(found.rows, np.flatnonzero(y == 0))
    assert found.sentinels == {0.0: off.sum()}


def test_one_gross_error_among_honest_peaks_is_found(rng):
    X = rng.uniform(size=(5000, 2))
    y = 10 * np.exp(-np.sum((X - 0.9) ** 2, axis=1) / 0.005) + 0.1 * rng.normal(size=5000)  # a peak, far above the bulk
    assert len(look(X, y)) == 0
    top = int(np.argmax(y))
    y[top] = 1e6
    np.testing.assert_array_equal(look(X, y).rows, [top])


def test_tails_are_measured(rng):
    u = rng.pareto(2.0, size=100_000) + 1
    assert tail_index(u, 8.0) == pytest.approx(2.0, rel=0.03)
    assert not standing_out(rng.normal(size=3000))
    assert not uneven(rng.normal(size=3000))
    assert standing_out(np.append(rng.normal(size=3000), 1e4))
    assert uneven(np.append(rng.normal(size=3000), np.full(100, 20.0)))
    for nothing in (np.zeros(0), np.zeros(10)):
        assert not standing_out(nothing)
        assert not uneven(nothing)


def test_a_hold_out_is_numbered_among_those_kept():
    X, y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
    plan = Holdout(learn=np.array([5, 0, 1]), judge=np.array([4, 3]), hidden=np.array([1, 3]))
    X_kept, y_kept, among, kept = Suspects(np.array([1, 4])).left_out_of(X, y, plan)
    np.testing.assert_array_equal(kept, [0, 2, 3, 5])
    np.testing.assert_array_equal(y_kept, y[kept])
    np.testing.assert_array_equal(X_kept, X[kept])
    for part, expected in ((among.learn, [3, 0]), (among.judge, [2]), (among.hidden, [2])):
        np.testing.assert_array_equal(part, expected)
