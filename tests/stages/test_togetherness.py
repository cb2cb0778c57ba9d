"""Sums over blocks of rows that were hidden say whether errors go together as much as the kernel claims."""

import numpy as np
import pytest

from gpnn import Hyperparameters
from gpnn.engines.cpu import CPU
from gpnn.kernels import KERNELS
from gpnn.stages.near import Near
from gpnn.stages.togetherness import Togetherness, learn_togetherness
from gpnn.stages.whitening import Whitener


def rows(lengthscale):
    """A field that is drawn from the process itself, along a line."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.random((4000, 1)), axis=0)
    rho = np.exp(-np.diff(X[:, 0]) / lengthscale)
    f = np.empty(4000)
    f[0] = rng.standard_normal()
    for i, step in enumerate(rho):
        f[i + 1] = step * f[i] + np.sqrt(1 - step**2) * rng.standard_normal()
    return X, f + 0.1 * rng.standard_normal(4000)


def learned(X, y, params):
    engine = CPU(1)
    whitener = Whitener(np.zeros(1), np.ones(1), 0.0, 1.0)
    near = Near(whitener, KERNELS["exponential"], params, 20)
    engine = engine.build(engine.whiten(whitener, X), y, "exact", 20, np.arange(60), seed=0)
    return learn_togetherness(near, engine, lambda: CPU(1), 1.0)


def test_a_model_that_is_right_is_left_as_it_is():
    found = learned(*rows(0.02), Hyperparameters(0.02, 1.0, 0.01))
    assert (np.abs(np.log(found.factors)) < 0.5).all()
    assert (np.diff(found.knots) > 0).all()


def test_errors_that_go_together_more_than_claimed_are_noticed():
    """Covariances in gaps that are far too small: the kernel decays too soon, and claims the rest to be noise."""
    found = learned(*rows(0.02), Hyperparameters(0.02, 0.2, 0.8))
    assert found.factors[-1] > 1.5


def test_between_the_knots_factors_follow():
    found = Togetherness(np.array([-1.0, 1.0]), np.array([1.0, 3.0]))
    assert found(np.exp([-5.0, 0.0, 7.0])).tolist() == pytest.approx([1.0, 2.0, 3.0])
