import numpy as np
import pytest

from gpnn import InvalidInputError, Prediction
from gpnn.common.reliability import Reliability, sampling_error
from gpnn.stages.shapes import GAUSSIAN


def reliability(rng, n=20_000, factor=1.0):
    """Of laws whose standard deviations vary, and are `factor` times what they should be."""
    sd = rng.uniform(0.5, 4, n)
    return Reliability.of(rng.normal(3, sd), Prediction(np.full(n, 3.0), (factor * sd) ** 2), GAUSSIAN.quantile)


def test_right_laws_lie_on_every_line(rng):
    found = reliability(rng)
    np.testing.assert_allclose(found.coverage, found.levels, atol=0.015)
    np.testing.assert_allclose(found.pit, 0.05, atol=0.008)
    for tenth in found.tenths:
        assert tenth.error == pytest.approx(tenth.sd, rel=0.06)
        assert tenth.coverage == pytest.approx(0.9, abs=0.025)
    assert [tenth.sd for tenth in found.tenths] == sorted(tenth.sd for tenth in found.tenths)


def test_narrow_laws_hold_too_little_and_their_pit_has_high_ends(rng):
    found = reliability(rng, factor=0.5)
    assert max(np.subtract(found.coverage, found.levels)[1:-1]) < -0.05
    assert found.pit[0] > 0.1 < found.pit[-1]
    assert found.tenths[4].error == pytest.approx(2 * found.tenths[4].sd, rel=0.1)


def test_shares_add_up(rng):
    found = reliability(rng, n=1003)
    assert sum(found.pit) == pytest.approx(1)
    assert sum(tenth.n_rows for tenth in found.tenths) == found.n_rows == 1003
    assert np.mean([t.coverage for t in found.tenths for _ in range(t.n_rows)]) == pytest.approx(found.coverage_90)


def test_fewer_rows_than_tenths(rng):
    assert len(reliability(rng, n=3).tenths) == 3


def test_outcomes_must_be_known():
    with pytest.raises(InvalidInputError, match="NaN"):
        Reliability.of(np.array([np.nan]), Prediction(np.zeros(1), np.ones(1)), GAUSSIAN.quantile)


def test_sampling_error_is_that_of_shares(rng):
    shares = rng.binomial(500, 0.9, 4000) / 500
    assert np.mean(np.abs(shares - 0.9) <= sampling_error(0.9, 500)) == pytest.approx(0.95, abs=0.02)
