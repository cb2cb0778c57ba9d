import numpy as np
import pytest
from scipy.special import ndtri

from gpnn.stages.shapes import GAUSSIAN, Shape, fit_shape


def test_gaussian_and_student_t_quantiles():
    np.testing.assert_allclose(GAUSSIAN.quantile([0.05, 0.5]), ndtri([0.05, 0.5]))
    draws = Shape("student_t", 5.0).quantile(np.random.default_rng(0).uniform(size=200_000))
    assert draws.var() == pytest.approx(1, rel=0.05)


def test_empirical_quantiles_are_conformal_inside_and_go_on_beyond():
    residuals = np.sort(np.random.default_rng(0).exponential(size=999) - 1)
    shape = Shape("empirical", residuals=residuals)
    np.testing.assert_allclose(shape.quantile(np.array([0.1, 0.5, 0.9])), residuals[[99, 499, 899]])
    assert shape.quantile(0.99999) > residuals[-1]
    levels = np.linspace(1e-6, 1 - 1e-6, 5001)
    assert (np.diff(shape.quantile(levels)) >= 0).all()


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda rng: rng.standard_normal(6000), {"gaussian", "student_t"}),  # ν → ∞ is the same law
        (lambda rng: rng.standard_t(3, 6000) / np.sqrt(3), {"student_t", "empirical"}),
        (lambda rng: rng.exponential(size=6000) - 1, {"empirical"}),
    ],
)
def test_the_shape_that_fits_is_chosen_and_covers(draw, expected):
    residuals = draw(np.random.default_rng(1))
    shape, scores = fit_shape(residuals, np.random.default_rng(0))
    assert shape.name in expected
    assert set(scores) == {"gaussian", "student_t", "empirical"}
    fresh = draw(np.random.default_rng(2))
    low, high = shape.quantile(np.array([0.05, 0.95]))
    assert np.mean((low <= fresh) & (fresh <= high)) == pytest.approx(0.9, abs=0.015)


def test_few_residuals_stay_gaussian():
    assert fit_shape(np.ones(10), np.random.default_rng(0)) == (GAUSSIAN, {})
