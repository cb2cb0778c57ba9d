"""Factors on variances, from boosted trees that judges listen to."""

import numpy as np
import pytest

from gpnn.common import metrics
from gpnn.common.types import Prediction
from gpnn.stages.forest import Binned, Growth
from gpnn.stages.widths import learn_widths

HOW = Growth(75, 0.1, 8, least_rows=50, squares=True)


def noisy(n=6000, seed=0, corner=3.0):
    """Errors of size 1, but in a corner of the columns."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 3))
    std = np.where((X[:, 0] > 0.6) & (X[:, 1] < 0.5), corner, 1.0)
    return X, std * rng.normal(size=n), std


def laws(n, std):
    return Prediction(np.zeros(n), np.full(n, std**2))


def test_squares_are_followed_by_their_likelihood():
    """The logarithms of variances come out, near those that the data were drawn from."""
    X, y, std = noisy()
    said = Binned.of(X).grow(y**2, np.arange(len(X)), HOW, seed=0).forest(X)
    assert abs(np.mean(y**2 / np.exp(said)) - 1) < 0.02
    inner = np.abs(X - [0.6, 0.5, 0.5])[:, :2].min(axis=1) > 0.03
    assert np.sqrt(np.mean((said - 2 * np.log(std))[inner] ** 2)) < 0.25
    assert len(np.unique(said)) > 2


def test_wild_squares_do_not_run_away():
    X, y, _ = noisy()
    y[::500] *= 1000
    said = Binned.of(X).grow(y**2, np.arange(len(X)), HOW, seed=0).forest(X)
    assert np.isfinite(said).all()
    assert said.max() < np.log(np.max(y**2))


def test_kept_where_noise_differs_and_judges_see_it():
    X, y, std = noisy()
    told = {}
    found, residuals = learn_widths(X, y, laws(len(X), np.sqrt(np.mean(y**2))), 1, np.random.default_rng(0), told)
    assert told["kept"]
    assert told["gain"] > 10 * told["gain_standard_error"]
    assert np.mean(residuals**2) == pytest.approx(1, abs=0.05)
    X, y, std = noisy(seed=1)
    before = laws(len(X), np.sqrt(np.mean(y**2)))
    after = before.with_own(found(before, X) * before.own)
    assert metrics.nll(y, after) < metrics.nll(y, before) - 0.8 * told["gain"]
    assert metrics.nll(y, after) < np.mean(np.log(std)) + 0.5 * np.log(2 * np.pi * np.e) + 0.03  # the true law's
    for part in (std == 1, std > 1):
        assert 0.87 < metrics.coverage(y[part], after[part], 0.9) < 0.93


def test_left_out_where_there_is_nothing_to_say():
    X, y, _ = noisy(corner=1.0)
    told = {}
    assert learn_widths(X, y, laws(len(X), 1.0), 1, np.random.default_rng(0), told) is None
    assert not told["kept"]
    assert learn_widths(X, np.zeros(len(X)), laws(len(X), 1.0), 1, np.random.default_rng(0), told) is None  # all exact
    X, y, _ = noisy(n=400)
    assert learn_widths(X, y, laws(len(X), 1.0), 1, np.random.default_rng(0), told) is None  # too few judges


def test_the_same_whatever_the_threads():
    X, y, _ = noisy()
    one, two = (learn_widths(X, y, laws(len(X), 1.0), jobs, np.random.default_rng(0), {})[0] for jobs in (1, 2))
    np.testing.assert_array_equal(one.forest.value, two.forest.value)
    law = laws(len(X), 1.0)
    np.testing.assert_array_equal(one(law, X, n_jobs=2), one(law, X, n_jobs=1))
    by_row = [one(law[k : k + 1], X[k : k + 1])[0] for k in range(5)]
    np.testing.assert_array_equal(by_row, one(law, X)[:5])
