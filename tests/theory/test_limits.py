"""Theorem 1 and the algebra behind it."""

import numpy as np
import pytest

from gpnn import GPnnRegressor, Hyperparameters, InvalidInputError, simulation
from gpnn.datasets import oakley_ohagan
from gpnn.theory import Performance, exact_limits, expected, limits

TRUE, ASSUMED = Hyperparameters(0.5, 0.9, 0.1), Hyperparameters(2.0, 0.3, 0.2)


def test_theorem_1():
    limit = limits(0.1, 0.2, 400)
    assert limit.mse == pytest.approx(0.1 * (1 + 1 / 400))
    assert limit.rmse == pytest.approx(np.sqrt(0.1 * (1 + 1 / 400)))
    assert limit.calibration == pytest.approx(0.5)
    assert limit.nll == pytest.approx(0.5 * (np.log(0.2 * (1 + 1 / 400)) + 0.5 + np.log(2 * np.pi)))


@pytest.mark.parametrize("m", [1, 7, 50])
def test_exact_limits_are_the_dense_algebra_of_coinciding_neighbours(m):
    """K∞ = σ_ξ²I + σ_f²11ᵀ, inverted by numpy instead of by hand."""
    K, K_hat = (p.noise_variance * np.eye(m) + p.kernel_variance * np.ones((m, m)) for p in (TRUE, ASSUMED))
    weights = np.linalg.solve(K_hat, np.full(m, ASSUMED.kernel_variance))
    mse = TRUE.kernel_variance * (1 - 2 * weights.sum()) + TRUE.noise_variance + weights @ K @ weights
    variance = ASSUMED.kernel_variance * (1 - weights.sum()) + ASSUMED.noise_variance
    limit = exact_limits(TRUE, ASSUMED, m)
    assert limit.mse == pytest.approx(mse, rel=1e-10)
    assert limit.calibration == pytest.approx(mse / variance, rel=1e-10)
    assert limit.nll == pytest.approx(0.5 * (np.log(2 * np.pi * variance) + mse / variance), rel=1e-10)


@pytest.mark.parametrize("metric", ["mse", "calibration", "nll"])
def test_theorem_1_leaves_out_terms_of_order_m_to_the_minus_2(metric):
    gaps = [getattr(exact_limits(TRUE, ASSUMED, m), metric) - getattr(limits(0.1, 0.2, m), metric) for m in (400, 800)]
    assert abs(gaps[0]) > 0
    assert gaps[0] / gaps[1] == pytest.approx(4, rel=0.05)  # twice the neighbours, a quarter of the difference


def test_matched_limits_are_calibrated_exactly():
    limit = exact_limits(TRUE, TRUE, 30)
    assert limit.calibration == pytest.approx(1, rel=1e-14)
    assert limit.mse < limits(0.1, 0.1, 30).mse  # the paper's −O(m⁻²)
    assert limit.mse > TRUE.noise_variance


def test_given_neighbours_the_matched_case_is_calibrated_exactly(rng):
    N = rng.normal(size=(5, 40, 3))
    given = expected(np.zeros((5, 3)), N, "matern32", TRUE, "matern32", TRUE)
    np.testing.assert_allclose(given.calibration, 1, rtol=1e-9)


def test_given_coinciding_neighbours_expectations_are_the_limits():
    given = expected(np.zeros((1, 2)), np.zeros((1, 60, 2)), "rbf", TRUE, "exponential", ASSUMED)
    limit = exact_limits(TRUE, ASSUMED, 60)
    for name in ("mse", "calibration", "nll"):
        assert getattr(given, name)[0] == pytest.approx(getattr(limit, name), rel=1e-8)


@pytest.mark.parametrize(
    ("noise", "field"), [("gaussian", "gaussian"), ("laplace", "student_t"), ("student_t", "gaussian")]
)
def test_expectations_given_neighbours_are_what_sampling_gives(noise, field):
    draws = simulation.draw(3000, 3, 4000, 12, "exponential", TRUE, noise, "direct", 1, field=field)
    sampled, exact = (how(draws, "rbf", ASSUMED) for how in (simulation.evaluate, simulation.expect))
    for name in ("mse", "calibration", "nll"):
        assert abs(sampled[name] - exact[name]) < 4 * sampled[f"{name}_se"]
        assert exact[f"{name}_se"] < 0.5 * sampled[f"{name}_se"]


def test_full_misspecification_reaches_the_limits():
    """Wrong kernel, lengthscale and variances, Laplace noise on a non-Gaussian field: only the noise matters."""
    draws = simulation.draw(10**14, 2, 3000, 60, "exponential", TRUE, "laplace", "direct", 2, field="student_t")
    limit = exact_limits(TRUE, ASSUMED, 60)
    exact = simulation.expect(draws, "matern52", ASSUMED)
    sampled = simulation.evaluate(draws, "matern52", ASSUMED)
    for name in ("mse", "calibration", "nll"):
        assert exact[name] == pytest.approx(getattr(limit, name), rel=1e-3)
        assert abs(sampled[name] - getattr(limit, name)) < 4 * sampled[f"{name}_se"]


def test_mse_cares_less_for_the_lengthscale_as_n_grows():
    def spread(n):
        draws = simulation.draw(n, 4, 150, 30, "rbf", Hyperparameters(1.0, 0.9, 0.1), random_state=3)
        values = [
            simulation.expect(draws, "rbf", Hyperparameters(lengthscale, 0.8, 0.2))["mse"]
            for lengthscale in (0.4, 0.7, 1.0, 2.0, 4.0)
        ]
        return max(values) - min(values)

    spreads = [spread(n) for n in (10**3, 10**5, 10**8, 10**12)]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[-1] < 0.02 * spreads[0]


def test_constant_signal_is_at_the_limit_whatever_the_parameters():
    """As n → ∞ neighbours coincide; the same happens for any n when the function hardly varies between them."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(4000, 2))
    noise = rng.laplace(scale=np.sqrt(0.5), size=4000)
    model = GPnnRegressor.paper(
        kernel="rbf", params=Hyperparameters(50.0, 3.0, 0.4), n_neighbors=100, calibration_size=0, random_state=0
    ).fit(X[:2000], noise[:2000])
    scores = model.evaluate(X[2000:], noise[2000:])
    limit = limits(1.0, 0.4, 100)
    assert scores["rmse"] ** 2 == pytest.approx(limit.mse, rel=0.1)
    assert scores["calibration"] == pytest.approx(limit.calibration, rel=0.1)


def test_performance_of_numbers_is_numbers_and_of_arrays_is_arrays():
    assert isinstance(Performance.of(0.1, 0.2).nll, float)
    assert Performance.of(np.full(3, 0.1), np.full(3, 0.2)).nll.shape == (3,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((-0.1, 0.2, 400), "noise_variance"), ((0.1, 0.0, 400), "positive"), ((0.1, np.nan, 400), "assumed noise"),
     ((0.1, 0.2, 0), "n_neighbors")],
)  # fmt: skip
def test_bad_input(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        limits(*arguments)


def test_oakley_ohagan_comes_in_blocks_that_do_not_depend_on_n():
    X, y = oakley_ohagan(70_000, 6.0, random_state=3)
    X2, y2 = oakley_ohagan(500, 6.0, random_state=3)
    np.testing.assert_array_equal(X[:500], X2)
    np.testing.assert_array_equal(y[:500], y2)
    assert X.dtype == np.float32
    assert y.var() == pytest.approx(66, rel=0.05)
