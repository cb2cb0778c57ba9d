import numpy as np
import pytest

from gpnn import Hyperparameters, InvalidInputError, simulation
from gpnn.engines import reference
from gpnn.kernels import get_kernel, squared_distances

TRUE, ASSUMED = Hyperparameters(0.6, 0.9, 0.1), Hyperparameters(0.4, 0.5, 0.2)
METRICS = ("mse", "calibration", "nll")


def algorithm_1b(n, d, n_queries, m, rng):
    """The expensive scheme of the appendix: whole fields of n + 1 values, of which the prediction then uses m.

    With training rows anew for each query, so that queries are independent and the standard errors right.
    """
    kernel, assumed = get_kernel("matern32"), get_kernel("rbf")
    squared_errors, variances = np.empty((2, n_queries))
    for q, x in enumerate(rng.standard_normal((n_queries, d)) / np.sqrt(d)):
        X = rng.standard_normal((n, d)) / np.sqrt(d)
        points = np.vstack([X, x]) / TRUE.lengthscale
        K = TRUE.kernel_variance * kernel.correlation(squared_distances(points, points))
        y = np.linalg.cholesky(K + TRUE.noise_variance * np.eye(n + 1)) @ rng.standard_normal(n + 1)
        nearest = np.argsort(np.linalg.norm(X - x, axis=1))[:m]
        prediction = reference.solve(x[None], X[None, nearest], y[None, nearest], assumed, ASSUMED)
        squared_errors[q], variances[q] = (y[-1] - prediction.mean[0]) ** 2, prediction.variance[0]
    z = squared_errors / variances
    return {"mse": squared_errors, "calibration": z, "nll": 0.5 * (np.log(2 * np.pi * variances) + z)}


@pytest.mark.parametrize("sampler", ["direct", "sample", "stream"])
def test_lemma_1_agrees_with_algorithm_1b(sampler, rng):
    expensive = algorithm_1b(120, 3, 1500, 10, rng)
    draws = simulation.draw(120, 3, 1500, 10, "matern32", TRUE, sampler=sampler, random_state=0)
    cheap = simulation.evaluate(draws, "rbf", ASSUMED)
    for name in METRICS:
        error = np.hypot(cheap[f"{name}_se"], expensive[name].std() / np.sqrt(1500))
        assert abs(cheap[name] - expensive[name].mean()) < 3.5 * error


@pytest.mark.parametrize("kernel", ["rbf", "exponential"])
def test_one_phase_a_serves_every_phase_b_with_either_solver(kernel):
    draws = simulation.draw(10**6, 5, 60, 40, kernel, TRUE, random_state=1)
    before = draws.offsets.copy(), draws.y_neighbors.copy()
    for assumed in (TRUE, ASSUMED, Hyperparameters(np.linspace(0.2, 2, 5), 1.0, 0.01)):
        fast, slow = (simulation.evaluate(draws, "matern52", assumed, solver=s) for s in ("cpu", "reference"))
        for name in METRICS:
            assert fast[name] == pytest.approx(slow[name], rel=2e-3)
    np.testing.assert_array_equal(draws.offsets, before[0])
    np.testing.assert_array_equal(draws.y_neighbors, before[1])


@pytest.mark.parametrize(("noise", "kurtosis"), [("gaussian", 3.0), ("laplace", 6.0), ("student_t", 9.0)])
def test_noise_has_the_variance_asked_for_and_the_shape(noise, kurtosis):
    almost_only_noise = Hyperparameters(1.0, 1e-12, 0.3)
    y = simulation.draw(100, 1, 4000, 20, "rbf", almost_only_noise, noise, random_state=0).y_neighbors.ravel()
    assert y.var() == pytest.approx(0.3, rel=0.04)
    assert np.mean((y / y.std()) ** 4) == pytest.approx(kurtosis, rel=0.35)


def test_student_t_field_keeps_the_covariance_and_has_heavy_tails():
    draws = [
        simulation.draw(10**4, 2, 10_000, 2, "rbf", Hyperparameters(1.0, 0.9, 1e-9), random_state=0, field=field)
        for field in ("gaussian", "student_t")
    ]
    kurtosis = [np.mean(d.y_star**4) / np.mean(d.y_star**2) ** 2 for d in draws]
    assert kurtosis[0] == pytest.approx(3, rel=0.1)
    assert kurtosis[1] > 4.5
    for d in draws:
        assert np.mean(d.y_star**2) == pytest.approx(0.9, rel=0.06)
        assert np.corrcoef(d.y_star, d.y_neighbors[:, 0])[0, 1] > 0.999  # one scale per realisation, not per point


def test_lemma_3_calibration_of_parameters_changes_nothing_else():
    """With both variances scaled by α: (a) z² averages 1, (b) no other factor has a lower NLL, (c) MSE is the same."""
    draws = simulation.draw(10**5, 3, 300, 30, "rbf", TRUE, random_state=4)
    alpha = simulation.evaluate(draws, "exponential", ASSUMED, solver="reference")["calibration"]

    def after(factor):
        return simulation.evaluate(draws, "exponential", ASSUMED.scaled(factor), solver="reference")

    calibrated = after(alpha)
    assert calibrated["calibration"] == pytest.approx(1, rel=1e-9)
    assert calibrated["mse"] == pytest.approx(after(1.0)["mse"], rel=1e-9)
    assert all(after(factor * alpha)["nll"] > calibrated["nll"] for factor in (0.5, 0.98, 1.02, 2.0))


def test_same_seed_same_numbers_whatever_the_threads():
    one, two = (simulation.draw(1000, 3, 50, 9, "rbf", TRUE, random_state=7, n_jobs=jobs) for jobs in (1, 2))
    np.testing.assert_array_equal(one.y_neighbors, two.y_neighbors)
    assert simulation.evaluate(one, "rbf", ASSUMED, n_jobs=1) == simulation.evaluate(two, "rbf", ASSUMED, n_jobs=2)
    other = simulation.draw(1000, 3, 50, 9, "rbf", TRUE, random_state=8)
    assert not np.array_equal(one.y_star, other.y_star)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 5, "n_neighbors": 6}, "no such neighbours"),
        ({"d": 0}, "d = 0"),
        ({"n": 1.5}, "whole number"),
        ({"n_queries": 1}, "at least 2"),
        ({"n_neighbors": 0}, "n_neighbors"),
        ({"kernel": "cubic"}, "Unknown kernel"),
        ({"noise": "cauchy"}, "noise"),
        ({"sampler": "magic"}, "sampler"),
        ({"field": "levy"}, "field"),
        ({"params": Hyperparameters(np.ones(3), 1.0, 0.1)}, "lengthscales"),
    ],
)
def test_bad_input_is_explained(changes, message):
    setting = {"n": 100, "d": 2, "n_queries": 10, "n_neighbors": 5, "kernel": "rbf", "params": TRUE} | changes
    with pytest.raises(InvalidInputError, match=message):
        simulation.draw(**setting)


def test_negative_variances_are_refused():
    with pytest.raises(InvalidInputError, match="noise_variance"):
        Hyperparameters(1.0, 0.9, -0.1)
    with pytest.raises(InvalidInputError, match="Unknown kernel"):
        simulation.evaluate(simulation.draw(50, 2, 5, 4, "rbf", TRUE, random_state=0), "cubic", TRUE)
