"""Factors on variances, from boosted trees that judges listen to."""

import numpy as np
import pytest

from gpnn.common import metrics
from gpnn.common.types import Prediction
from gpnn.stages.forest import Binned, Growth
from gpnn.stages.trees import Trees
from gpnn.stages.weighing import Weighing
from gpnn.stages.widths import Beside, Widths, learn_widths

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
    after = found(before, X)
    np.testing.assert_array_equal(after.mean, before.mean)
    assert metrics.nll(y, after) < metrics.nll(y, before) - 0.8 * told["gain"]
    assert metrics.nll(y, after) < np.mean(np.log(std)) + 0.5 * np.log(2 * np.pi * np.e) + 0.03  # the true law's
    for part in (std == 1, std > 1):
        assert 0.87 < metrics.coverage(y[part], after[part], 0.9) < 0.93


def test_left_out_where_there_is_nothing_to_say():
    X, y, _ = noisy(corner=1.0)
    told = {}
    assert learn_widths(X, y, laws(len(X), 1.0), 1, np.random.default_rng(0), told) is None
    assert not told["kept"]
    X, y, _ = noisy(n=400)
    assert learn_widths(X, y, laws(len(X), 1.0), 1, np.random.default_rng(0), told) is None  # too few judges


def test_the_same_whatever_the_threads():
    X, y, _ = noisy()
    one, two = (learn_widths(X, y, laws(len(X), 1.0), jobs, np.random.default_rng(0), {})[0] for jobs in (1, 2))
    np.testing.assert_array_equal(one.forest.value, two.forest.value)
    law = laws(len(X), 1.0)
    np.testing.assert_array_equal(one(law, X, n_jobs=2).variance, one(law, X, n_jobs=1).variance)
    by_row = [one(law[k : k + 1], X[k : k + 1]).variance[0] for k in range(5)]
    np.testing.assert_array_equal(by_row, one(law, X).variance[:5])


def test_less_of_it_where_the_process_is_to_be_alone():
    X, y, _ = noisy()
    widths = Widths(Binned.of(np.c_[np.zeros((len(X), 2)), X]).grow(y**2, np.arange(len(X)), HOW, seed=0).forest)
    law = laws(4, 2.0)
    full = widths(law, X[:4])
    some = widths(law, X[:4], np.array([0.0, 1.0, 0.5, 0.0]))
    np.testing.assert_allclose(some.variance[:2], [full.variance[0], law.variance[1]])
    assert some.variance[2] == pytest.approx(np.sqrt(full.variance[2] * law.variance[2]))


def test_known_noise_is_not_theirs():
    X, y, _ = noisy()
    widths = Widths(Binned.of(np.c_[np.zeros((len(X), 2)), X]).grow(y**2, np.arange(len(X)), HOW, seed=0).forest)
    law = laws(3, 1.0).with_noise(np.array([0.0, 1.0, 2.0]))
    found = widths(law, X[:3])
    np.testing.assert_allclose(found.variance - found.own, [0.0, 1.0, 2.0])


def test_after_trees_have_had_their_say_in_means():
    X, y, _ = noisy()
    forest = Binned.of(X).grow(y, np.arange(len(X)), Growth(10, 0.1, 8), seed=0).forest
    trees = Trees(forest, Weighing(np.array([0.5, 0.5])))
    widths = Widths(Binned.of(np.c_[np.zeros((len(X), 2)), X]).grow(y**2, np.arange(len(X)), HOW, seed=0).forest)
    law, X = laws(5, 1.0), X[:5]
    both = Beside(trees, widths).law(law, X)
    np.testing.assert_array_equal(both.mean, trees.beside(law, X).mean)
    np.testing.assert_array_equal(both.variance, widths(trees.beside(law, X), X).variance)
    assert Beside().law(law, X) is law
