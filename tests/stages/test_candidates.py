"""Who goes on, and who does not."""

import numpy as np

from gpnn.common.types import Hyperparameters
from gpnn.stages.candidates import Candidate, in_vain

RNG = np.random.default_rng(0)
LOSSES = RNG.normal(size=1500)


def candidate(nll, losses=LOSSES, begun=None):
    params = Hyperparameters(1.0, 1.0, 0.1)
    return Candidate("diagonal", "rbf", True, params, rmse=1.0, nll=nll, losses=losses, begun=begun)


def test_in_vain_where_more_steps_did_clearly_worse():
    first = candidate(0.0)
    worse, little_worse, better = (
        candidate(by, LOSSES + by + 0.1 * RNG.normal(size=1500), first) for by in (0.1, 0.01, -0.1)
    )
    assert in_vain(first, [first, worse, better])
    assert not in_vain(first, [first, little_worse, better])
    assert not in_vain(worse, [first, worse, better])


def test_not_in_vain_where_judges_are_not_sure():
    """A few of them decide: 0.05 behind, with a standard error of 0.03."""
    first = candidate(0.0)
    losses = LOSSES.copy()
    losses[RNG.choice(1500, 3, replace=False)] += 25.0
    assert not in_vain(first, [first, candidate(0.05, losses, first)])
    assert not in_vain(first, [first, candidate(0.05, None, first)])


def test_the_report_says_nothing_of_ancestors():
    assert set(candidate(0.0, begun=candidate(1.0)).row()) == {
        "whitening", "kernel", "refined", "rmse", "nll", "crps", "mapped",
    }  # fmt: skip
