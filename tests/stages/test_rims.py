"""Queries with rows on one side only are told from those in sparse country, and get what hidden balls say they need."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve
from sklearn.linear_model import LogisticRegression

from gpnn import GPnnRegressor, Hyperparameters, InvalidInputError
from gpnn.engines.cpu import CPU
from gpnn.kernels import KERNELS
from gpnn.stages import rims
from gpnn.stages.far import OUTSIDE
from gpnn.stages.near import Near, nested_sizes
from gpnn.stages.rims import Rim, first_shown, learn_rim
from gpnn.stages.whitening import Whitener

M = 20


def held(X, y, kernel, params):
    near = Near(Whitener(np.zeros(2), np.ones(2), 0.0, 1.0), KERNELS[kernel], params, M)
    engine = CPU(1)
    return near, engine.build(engine.whiten(near.whitener, X), y, "exact", M, np.arange(60), seed=0)


@pytest.fixture(scope="module")
def country():
    """Dense and sparse parts, on which a rough surface stands."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.uniform(0, 1, (6000, 2)), rng.uniform(1, 3, (3000, 2))])
    frequency, phase = 8 * rng.standard_cauchy((2, 300)), rng.uniform(0, 2 * np.pi, 300)
    return X, np.sqrt(2 / 300) * np.cos(X @ frequency + phase).sum(axis=1)


def test_nested_variances_are_those_of_the_exact_process_of_so_many_rows(country):
    X, y = country
    params = Hyperparameters(0.5, 1.0, 0.01)
    near, engine = held(X, y, "matern32", params)
    query = np.array([[0.5, 0.5], [2.0, 1.5], [4.0, 0.0]])
    found = near.law(engine, query).nested
    for row, x in enumerate(query):
        nearest = np.argsort(np.linalg.norm(X - x, axis=1))
        for column, size in enumerate(nested_sizes(M)):
            N = X[nearest[:size]]
            scaled = [np.sqrt(3) * np.linalg.norm(N[:, None] - to, axis=-1) / 0.5 for to in (N[None], x[None, None])]
            K, k = ((1 + r) * np.exp(-r) for r in scaled)
            solved = cho_solve(cho_factor(K + 0.01 * np.eye(size)), k[:, 0])
            np.testing.assert_allclose(found[row, column], 1.01 - k[:, 0] @ solved, rtol=2e-3)


def test_rims_of_a_hole_are_found_and_random_rows_left_alone(country):
    """The kernel is far too smooth for the surface: away from the rows, it errs more than it says."""
    X, y = country
    centres = np.stack(np.meshgrid([0.2, 0.5, 0.8], [0.2, 0.5, 0.8]), axis=-1).reshape(-1, 2)
    hole = (np.linalg.norm(X[:, None] - centres, axis=-1) < 0.06).any(axis=1)
    near, engine = held(X[~hole], y[~hole], "matern52", Hyperparameters(0.5, 1.0, 0.01))
    left_out = rims._left_out(near, engine, np.arange(len(engine.y)))
    edge = np.log(np.quantile(left_out[:, -1], 1 - OUTSIDE))
    rim = learn_rim(near, engine, edge, OUTSIDE, np.random.default_rng(2))
    assert rim.factor > 1.5
    assert 0.004 < np.mean(rim.widening(rim(left_out)) > 1) < 0.02
    inside = near.law(engine, X[hole])
    passing = np.log(inside.claimed) < edge  # for random rows, by the variance alone
    assert passing.mean() > 0.5
    assert np.mean(rim.widening(rim(inside.nested[passing])) > 1) > 0.3
    z_squared = (y[hole] - inside.law.mean) ** 2 / inside.law.variance
    found = passing & (rim(inside.nested) > rim.edges[1])
    assert np.mean(z_squared[found] < 2.7) < 0.8
    assert np.mean(z_squared[found] < 2.7 * rim.factor) > 0.8


def test_a_process_that_is_right_is_left_as_it_is():
    """Drawn from the model itself: rims err as much as it says."""
    rng = np.random.default_rng(3)
    X = rng.uniform(0, 3, (1500, 2))
    r = np.sqrt(3) * np.linalg.norm(X[:, None] - X, axis=-1) / 0.7
    y = np.linalg.cholesky((1 + r) * np.exp(-r) + 0.01 * np.eye(1500)) @ rng.normal(size=1500)
    near, engine = held(X, y, "matern32", Hyperparameters(0.7, 1.0, 0.01))
    rim = learn_rim(near, engine, np.inf, OUTSIDE, rng)
    assert rim is None or rim.factor < 1.25


def test_the_odds_are_those_of_a_logistic_regression(rng):
    random, inside = np.exp(rng.normal(size=(300, 3))), np.exp(rng.normal([0.0, 0.5, 1.0], size=(200, 3)))
    rim = rims._told_apart(random, inside, 0.1)
    products = rims._products(np.clip(rims._terms(np.concatenate([random, inside])), *rim.limits))
    standard = (products - products.mean(axis=0)) / products.std(axis=0)
    kinds, counts = np.repeat([0, 1], [300, 200]), np.repeat([250 / 300, 250 / 200], [300, 200])
    theirs = LogisticRegression(C=1.0, tol=1e-8, max_iter=10_000).fit(standard, kinds, sample_weight=counts)
    np.testing.assert_allclose(rim.weights, theirs.coef_[0], atol=0.02)
    odds = rim(random)
    np.testing.assert_allclose(odds, (standard @ rim.weights)[:300], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose([np.mean(odds > edge) for edge in rim.edges], [0.1, 0.05], atol=0.005)
    np.testing.assert_allclose(rim.support(odds), [np.mean(odds >= one) for one in odds], atol=0.01)


def test_the_first_that_are_shown(rng):
    found, shown = rng.permuted(np.tile(np.arange(30), (50, 1)), axis=1), rng.random((50, 30)) < 0.3
    whole, first = first_shown(found, shown, 8)
    np.testing.assert_array_equal(whole, shown.sum(axis=1) >= 8)
    for near, mask, ours in zip(found[whole], shown[whole], first, strict=True):
        np.testing.assert_array_equal(ours, near[mask][:8])


def test_a_model_file_keeps_it_and_single_rows_are_answered_as_in_company(wavy, few_steps, tmp_path):
    X, y = (part[:600] for part in wavy[:2])
    model = GPnnRegressor(n_neighbors=16, random_state=0).fit(X, y)
    k, rng = len(nested_sizes(16)), np.random.default_rng(0)
    p = k * (k + 3) // 2
    limits, moments = np.tile([[-50.0], [50.0]], k), np.tile([[0.0], [1.0]], p)
    rim = Rim(limits, moments, rng.normal(size=p), np.linspace(-9, 9, 401), np.array([-1.0, 1.0]), 4.0)
    before = model.predict_distribution(X)
    model._far = replace(model._far, rim=rim)
    law = model.predict_distribution(X)
    within = before.support >= OUTSIDE
    ratio = (law.variance / before.variance)[within]
    assert (ratio >= 1).all()
    assert (ratio < 4.001).all()
    assert (ratio > 3.999).any()
    np.testing.assert_array_equal(law.mean, before.mean)
    model.save(tmp_path / "m.gpnn")
    loaded = GPnnRegressor.load(tmp_path / "m.gpnn")
    alone = [loaded.predict_distribution(X[i : i + 1]) for i in range(20)]
    np.testing.assert_array_equal([of.variance[0] for of in alone], law.variance[:20])
    np.testing.assert_array_equal([of.support[0] for of in alone], law.support[:20])
    model._far = replace(model._far, rim=replace(rim, weights=rim.weights[1:]))
    with pytest.raises(InvalidInputError, match="rim"):
        model.save(tmp_path / "broken.gpnn")
