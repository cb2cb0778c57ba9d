import numpy as np
import pytest
from sklearn.model_selection import GroupKFold, KFold

from gpnn import InvalidInputError
from gpnn.engines.cpu import CPU
from gpnn.stages.holdout import from_splitter, leave_one_out, patches, set_aside
from gpnn.stages.whitening import Whitener


def test_judges_take_no_part_in_learning(rng):
    for plan in (leave_one_out(1000, rng, 300), set_aside(1000, rng, 100)):
        assert not np.isin(plan.judge, plan.learn).any()
        assert len(plan.judge) + len(plan.learn) == 1000
    assert len(leave_one_out(1000, rng, 300).judge) == 250  # never more than a quarter
    assert len(leave_one_out(1000, rng, 300).hidden) == 0
    plan = set_aside(1000, rng, 100)
    np.testing.assert_array_equal(np.sort(plan.judge), plan.hidden)


def test_patches_are_compact_and_hide_their_rows(rng):
    X = rng.uniform(size=(4000, 2)).astype(np.float32)
    plan = patches(X, Whitener(np.zeros(2), np.ones(2), 0.0, 1.0), CPU(1), rng)
    assert 200 < len(plan.hidden) <= 400
    np.testing.assert_array_equal(np.sort(np.concatenate([plan.learn, plan.judge])), plan.hidden)
    kept = np.setdiff1d(np.arange(4000), plan.hidden)
    to_kept = [np.linalg.norm(X[kept] - X[row], axis=1).min() for row in plan.judge]
    to_any = [np.sort(np.linalg.norm(X - X[row], axis=1))[1] for row in plan.judge]
    assert np.median(to_kept) > 2 * np.median(to_any)  # inside a patch, the data are farther away


def test_any_splitter(rng):
    X, y = rng.normal(size=(100, 2)), rng.normal(size=100)
    plan = from_splitter(KFold(5), X, y, rng)
    np.testing.assert_array_equal(plan.hidden, np.arange(20))
    assert len(plan.learn) == len(plan.judge) == 10
    with pytest.raises(InvalidInputError, match="holdout"):
        from_splitter("often", X, y, rng)
    with pytest.raises((InvalidInputError, ValueError), match=r"group|holdout"):
        from_splitter(GroupKFold(3), X, y, rng)
