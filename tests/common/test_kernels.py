import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern

from gpnn import Broad, Hyperparameters
from gpnn.engines.compiled import jit
from gpnn.engines.compiled.covariance import KERNEL_TAGS, covariance
from gpnn.engines.compiled.vectors import LANES, load, store
from gpnn.errors import InvalidInputError
from gpnn.kernels import KERNELS, get_kernel, get_kernel_or_sum, squared_distances

SKLEARN = {"rbf": RBF(), "exponential": Matern(nu=0.5), "matern32": Matern(nu=1.5), "matern52": Matern(nu=2.5)}


@pytest.mark.parametrize("name", KERNELS)
def test_correlation_is_scikit_learns(name, rng):
    X = rng.normal(size=(30, 4))
    np.testing.assert_allclose(KERNELS[name].correlation(squared_distances(X, X)), SKLEARN[name](X), atol=1e-14)


def test_a_sum_is_scikit_learns(rng):
    A, B = rng.normal(size=(30, 4)), rng.normal(size=(20, 4))
    near, far = np.array([0.5, 1.0, 2.0, 3.0]), np.array([4.0, 1.0, 0.5, 9.0])
    params = Hyperparameters(near, 2.0, 0.1, Broad(0.3, far))
    expected = 0.7 * Matern(near, nu=1.5)(A, B) + 0.3 * Matern(far, nu=0.5)(A, B)
    found = get_kernel_or_sum("matern32+exponential").correlations(A, B, params)
    np.testing.assert_allclose(found, expected, atol=1e-14)
    stretched = params.in_metric()
    again = get_kernel_or_sum("matern32+exponential").correlations(A / params.metric, B / params.metric, stretched)
    np.testing.assert_allclose(again, expected, atol=1e-14)
    np.testing.assert_allclose(stretched.metric, 1)


@pytest.mark.parametrize("name", ["matern32+", "rbf+rbf+rbf", "sinc", "matern32 + rbf"])
def test_unknown_sums_are_explained(name):
    with pytest.raises(InvalidInputError, match="or a sum of two"):
        get_kernel_or_sum(name)


@pytest.mark.parametrize("name", KERNELS)
def test_slope_is_the_derivative(name):
    r2 = np.geomspace(1e-3, 30, 50)
    h = 1e-6 * r2
    c = KERNELS[name].correlation
    numerical = (c(r2 + h) - c(r2 - h)) / (2 * h)
    np.testing.assert_allclose(KERNELS[name].with_slope(r2)[1], numerical, rtol=1e-6)


def exact_one_minus_c(name, r):
    """1 − c(r) from its series where r is small, in float64."""
    if name == "rbf":
        return -np.expm1(-0.5 * r**2)
    if name == "exponential":
        return -np.expm1(-r)
    rho = np.sqrt(3 if name == "matern32" else 5) * r
    plain = 1 - KERNELS[name].correlation(r**2)
    series = rho**2 / 2 - rho**3 / 3 + rho**4 / 8 if name == "matern32" else rho**2 / 6 - rho**4 / 24 + rho**5 / 45
    return np.where(rho < 1e-3, series, plain)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", KERNELS)
def test_compiled_kernels_keep_their_accuracy_between_near_rows(name, dtype):
    @jit
    def apply(tag, r2, g, slope, lanes):
        for i in range(0, len(r2), lanes):
            values = covariance(tag, load(r2, i))
            store(g, i, values[0])
            store(slope, i, values[1])

    lanes = LANES[np.dtype(dtype)]
    r2 = (np.geomspace(1e-9, 40, 64 * lanes) ** 2).astype(dtype)
    g, slope = np.empty_like(r2), np.empty_like(r2)
    apply(KERNEL_TAGS[name], r2, g, slope, lanes)
    epsilon = np.finfo(dtype).eps
    r = np.sqrt(r2.astype(float))
    tolerance = 20 * epsilon if dtype == np.float32 else 3e-9  # the float64 standard cancels itself near ρ = 1e-3
    np.testing.assert_allclose(g, exact_one_minus_c(name, r), rtol=tolerance, atol=1e-38)
    np.testing.assert_allclose(slope, KERNELS[name].with_slope(r2.astype(float))[1], rtol=100 * epsilon, atol=1e-16)


def test_unknown_kernel_names_the_known_ones():
    with pytest.raises(InvalidInputError, match="exponential"):
        get_kernel("gauss")
