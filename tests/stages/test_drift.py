"""Rows that stand close to each other in the table may have more in common than their columns show."""

from types import SimpleNamespace

import numpy as np
import pytest

from gpnn import Hyperparameters, Prediction
from gpnn.engines.cpu import CPU
from gpnn.kernels import KERNELS
from gpnn.stages.drift import drift, factors_to_come
from gpnn.stages.near import Near
from gpnn.stages.recalibration import UNCHANGED
from gpnn.stages.whitening import Whitener

DAYS, HOURS = 400, 10
NOISE = 0.04


def days(offset, rng):
    """Each day is known by a mark, which says nothing of its offset."""
    mark, height = rng.uniform(0, 1, DAYS), offset * rng.normal(size=DAYS)
    X = np.c_[np.repeat(mark, HOURS), rng.uniform(0, 0.01, DAYS * HOURS)]
    return X, np.repeat(height, HOURS) + np.sqrt(NOISE) * rng.normal(size=DAYS * HOURS)


def found(X, y, support=1.0):
    whitener = Whitener(np.zeros(2), np.ones(2), 0.0, 1.0)
    near, engine = Near(whitener, KERNELS["exponential"], Hyperparameters(1.0, 1.0, NOISE), 8), CPU(1)
    engine = engine.build(engine.whiten(whitener, X), y, "exact", 64, np.arange(60), seed=0)
    far = SimpleNamespace(support=lambda answer: np.full(len(answer.claimed), support))
    return drift(near, far, engine, np.random.default_rng(0))


def test_what_rows_close_by_had_in_common_is_noticed(rng):
    X, y = days(0.3, rng)
    assert 1.1 < found(X, y) <= 1.3


@pytest.mark.parametrize("seed", range(3))
def test_not_if_the_rows_come_in_random_order(seed):
    rng = np.random.default_rng(seed)
    X, y = days(0.3, rng)
    order = rng.permutation(len(y))
    assert found(X[order], y[order]) == 1.0


def test_not_if_days_have_nothing_of_their_own(rng):
    assert found(*days(0.0, rng)) == 1.0


def test_not_if_most_rows_have_their_like_nowhere_else(rng):
    """Then they lie outside the support, and others answer."""
    assert found(*days(0.3, rng), support=0.001) == 1.0


def test_what_is_known_of_queries_decides():
    said = SimpleNamespace(mixture=SimpleNamespace(edge=-np.inf))
    rng = np.random.default_rng(0)
    law = Prediction(np.zeros(9999), np.ones(9999))
    for far in (None, said):
        assert factors_to_come(None, far, None, np.zeros(0), law[:0], None, rng) == UNCHANGED
    assert factors_to_come(None, None, None, np.zeros(0), law[:0], 20, rng) == UNCHANGED
    inside, outside = factors_to_come(None, None, None, rng.normal(size=9999), law, 20, rng)
    assert inside == outside > 1
