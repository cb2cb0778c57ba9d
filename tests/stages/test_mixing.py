"""Two laws beyond the support, weighed by what judges measured."""

import numpy as np
import pytest

from gpnn.common import metrics
from gpnn.common.types import Prediction
from gpnn.stages import mixing
from gpnn.stages.mixing import Claims, Judges, fit_mixture

N, PARTS, EDGE = 4000, 80, -6.0


def judged(rng, near_error=1.0, error=1.0, correlation=0.0, factor=0.0):
    """Judges with errors of a known size, as multiples of the standard deviations that are claimed for them."""
    claimed, variance = (np.exp(rng.uniform(-5, 0, N)) for _ in range(2))
    mixed = np.linalg.cholesky([[1, correlation], [correlation, 1]]) @ rng.normal(size=(2, N))
    y = rng.normal(size=N)
    scale = np.exp(factor * rng.normal(size=N))
    near = Prediction(y - near_error * np.sqrt(claimed) * mixed[0], claimed * scale)
    members = Prediction(y - error * np.sqrt(variance) * mixed[1], variance)
    return y, Claims(near, claimed, members, np.zeros(N)), rng.integers(PARTS, size=N)


def random_rows(claimed, near_error, error, n=10):
    """For each of which so much variance is claimed, and with errors of just that size."""
    signs, even = np.resize([1.0, -1.0], n), np.full(n, claimed)
    near, members = (Prediction(one * np.resize(by, n), even) for one, by in ((near_error, signs), (error, [1.0])))
    return Judges(np.zeros(n), Claims(near, even, members, np.zeros(n)))


def fitted(y, claims, part, random=None, edge=EDGE):
    random = random_rows(np.exp(edge), np.exp(edge / 2), np.exp(edge / 2)) if random is None else random
    return fit_mixture(edge, Judges(y, claims), part, random)


@pytest.mark.parametrize("correlation", [0.0, 0.6])
@pytest.mark.parametrize("ratio", [0.3, 1.0, 3.0])
def test_the_best_weight_is_that_of_least_error(ratio, correlation):
    grid = np.linspace(0, 1, 10_001)
    squared = (1 - grid) ** 2 * ratio + grid**2 + 2 * correlation * grid * (1 - grid) * np.sqrt(ratio)
    found = mixing._best_weight(np.log([ratio]), correlation)
    np.testing.assert_allclose(found, grid[np.argmin(squared)], atol=2e-4)


@pytest.mark.parametrize(("near_error", "error"), [(3.0, 1.0), (1.0, 3.0), (2.0, 2.0)])
def test_claims_are_corrected_by_what_judges_say(rng, near_error, error):
    mixture = fitted(*judged(rng, near_error, error))
    np.testing.assert_allclose(np.exp(mixture.near[0]), near_error**2, rtol=0.15)
    np.testing.assert_allclose(np.exp(mixture.members[0]), error**2, rtol=0.15)
    np.testing.assert_allclose([mixture.near[1], mixture.members[1]], 1, atol=0.06)
    y, claims, _ = judged(np.random.default_rng(7), near_error, error)
    law = mixture(claims)
    assert 0.86 < metrics.coverage(y, law, 0.9) < 0.98
    both = min(metrics.rmse(y, claims.near), metrics.rmse(y, claims.members))
    assert metrics.rmse(y, law) < 0.9 * both


def test_scale_that_calibration_knew_is_used_as_far_as_it_helps(rng):
    without = fitted(*judged(rng, factor=1.5))
    assert without.near[2] < 0.35  # errors do not depend on it here
    y, claims, part = judged(rng, factor=1.5)
    scale = np.sqrt(claims.near.variance / claims.claimed)
    near = Prediction(y + (claims.near.mean - y) * scale, claims.near.variance)
    assert fitted(y, Claims(near, claims.claimed, claims.members, claims.spread), part).near[2] > 0.65


def test_random_rows_just_beyond_the_edge_stay_with_the_local_process(rng):
    """Judges have shown it to be bad, but they lie much farther off, and random rows have shown it to be good."""
    y, claims, part = judged(rng, near_error=10.0)
    claims = Claims(claims.near, claims.claimed * np.e**3, claims.members, claims.spread)
    mixture = fitted(y, claims, part, random_rows(np.exp(EDGE + 0.5), np.exp(-6.0), 1.0))
    near, members = Prediction(np.zeros(3), np.full(3, 1e-3)), Prediction(np.ones(3), np.full(3, 1.0))
    law = mixture(Claims(near, np.exp([EDGE - 1, EDGE + 0.5, 3.0]), members, np.zeros(3)))
    assert law.mean[0] == 0
    assert law.variance[0] == near.variance[0]
    assert law.mean[1] < 0.01
    assert law.mean[2] > 0.7


@pytest.mark.parametrize("n", [10, 50, 200])
def test_random_rows_have_a_say_in_how_far_to_lean(n, rng):
    """Judges in gaps find both answers as good; random rows beyond the edge find the members worse by far."""
    y, claims, part = judged(rng)
    among_like = fitted(y, claims, part, random_rows(1.0, 1.0, 1.0, n)).lean
    leans = [fitted(y, claims, part, random_rows(1.0, 0.1, error, n)).lean for error in (0.5, 3.0)]
    assert among_like > leans[0] > leans[1]
    assert leans[1] < (-1 if n >= 50 else -0.3)
    said = fitted(y, claims, part, random_rows(1.0, 0.1, 3.0, n), edge=-np.inf).lean  # queries will not be like these
    assert said == fitted(y, claims, part, random_rows(1.0, 0.1, 0.5, n), edge=-np.inf).lean


def test_no_law_is_narrower_than_judges_have_seen(rng):
    mixture = fitted(*judged(rng))
    claimed, tiny = np.exp([EDGE + 0.5, EDGE + 3]), Prediction(np.zeros(2), np.full(2, 1e-9))
    law = mixture(Claims(Prediction(np.zeros(2), claimed), claimed, tiny, np.zeros(2)))
    assert (law.variance > np.exp(-5)).all()


def test_parts_that_differ_make_it_wider(rng):
    y, claims, part = judged(rng)
    same = fitted(y, claims, part).widening
    gain = np.where(part % 10 == 0, 5.0, 0.4)
    near, members = (Prediction(y + (law.mean - y) * gain, law.variance) for law in (claims.near, claims.members))
    worse = fitted(y, Claims(near, claims.claimed, members, claims.spread), part).widening
    assert worse > 1.1 * same


def test_judges_like_the_queries_are_covered_as_asked(rng):
    y, claims, part = judged(rng, error=2.0, near_error=0.5)
    law = fitted(y, claims, part, random_rows(1.0, 1.0, 1.0), edge=-np.inf)(claims)
    assert abs(metrics.coverage(y, law, 0.9) - 0.9) < 0.002


def test_few_judges_beyond_the_edge_are_not_alone_believed(rng):
    y, claims, part = judged(rng)
    mixture = fitted(y, claims, part, random_rows(np.exp(10.0), 1.0, 1.0), edge=10.0)
    assert all(np.isfinite(part).all() for part in (mixture.near, mixture.members, mixture.lowest))
