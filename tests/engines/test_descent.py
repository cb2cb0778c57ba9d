"""Steps of learning, one at a time in float64 and compiled in one call."""

from dataclasses import replace

import numpy as np
import pytest

from gpnn import Broad, Hyperparameters
from gpnn.engines import Probes
from gpnn.engines.cpu.learner import CPULearner
from gpnn.engines.descent import LOWEST, SHARE, Adam, descend, theta_of
from gpnn.engines.local import Noise
from gpnn.kernels import get_kernel_or_sum

SUM = "matern32+exponential"
BROAD = Broad(0.3, np.array([4.0, 2.0, 0.7]))


def neighborhoods(rng, known=False, n=200, q=40):
    X = rng.normal(size=(n, 3)).astype(np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=n)
    noise = Noise(rng.uniform(0.2, 2, n), rng.uniform(0, 1, n)) if known else None
    probes = Probes(X[:q], y[:q], np.arange(q), noise[:q] if known else None)
    return CPULearner(X, y, 0, 1, noise).neighborhoods(probes, 1.0, 18)


def begun(kernel, noise_variance=0.2):
    """u and Adam's memory, for twelve steps."""
    params = Hyperparameters(np.array([0.5, 1.0, 2.0]), 1.3, noise_variance, BROAD if kernel.broad else None)
    u = np.log(params.as_vector(3))
    if kernel.broad:
        u[-1] -= np.log1p(-np.exp(u[-1]))
    return u, Adam(0.1, len(u), 12)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("kernel", ["rbf", "matern52", "matern32", "exponential", SUM])
def test_steps_follow_the_slope_of_the_likelihood(kernel, known, rng):
    near, kernel = neighborhoods(rng, known), get_kernel_or_sum(kernel)
    u, adam = begun(kernel)
    y = near.probes.y[:5]

    _, innovations = near.predict(kernel, Hyperparameters.from_vector(theta_of(u, 3), 3))
    own = SHARE + (1 - SHARE) * innovations[:5, 1:].mean(axis=1)  # where steps begin: no part of the slope

    def loss(u):
        law, _ = near.predict(kernel, Hyperparameters.from_vector(theta_of(u, 3), 3))
        return np.mean(0.5 * (np.log(law.variance[:5]) + (y - law.mean[:5]) ** 2 / law.variance[:5] / own))

    numerical = [(loss(u + h) - loss(u - h)) / 2e-6 for h in 1e-6 * np.eye(len(u))]
    path, _ = descend(near, kernel, np.arange(5)[None], u, adam, 1.0)
    np.testing.assert_allclose(adam.first / 0.1, numerical, atol=1e-6)  # Adam remembers a tenth of the first slope
    np.testing.assert_array_equal(path[-1], u)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("kernel", ["rbf", "matern52", "matern32", "exponential", SUM])
@pytest.mark.parametrize(("noise_variance", "off"), [(0.2, 1e-3), (1.5e-4, 1e-2), (1e-5, 1e-9)])
def test_compiled_steps_are_those_of_float64(kernel, noise_variance, off, known, rng):
    """Where there is noise, slopes are float32's; where there is hardly any, or no longer, they are not."""
    near, kernel = neighborhoods(rng, known), get_kernel_or_sum(kernel)
    batches = np.array([rng.choice(40, 16, replace=False) for _ in range(12)])
    found = []
    for steps in (descend, type(near).descend):
        (u, adam), typical = begun(kernel, noise_variance), 1.0
        paths = []
        for some in (batches[:5], batches[5:]):  # Adam goes on where it was
            path, typical = steps(near, kernel, some, u, adam, typical)
            paths.append(path)
        assert adam.left == 0
        np.testing.assert_array_equal(paths[-1][-1], u)
        found.append((np.concatenate(paths), typical))
    (theirs, typical), (ours, our_typical) = found
    np.testing.assert_allclose(ours, theirs, atol=off)
    assert our_typical == pytest.approx(typical, rel=off)


def test_more_noise_helps_where_no_matrix_is_positive_definite():
    X, y = np.zeros((20, 2), np.float32), np.arange(20.0)
    near = CPULearner(X, y, 0, 1).neighborhoods(Probes(X[:4], y[:4], np.arange(4)), 1.0, 5)
    kernel = get_kernel_or_sum("rbf")
    for steps in (descend, type(near).descend):
        u, adam = np.array([0.0, 0.0, 0.0, -60.0]), Adam(0.1, 4, 10)
        path, _ = steps(near, kernel, np.tile(np.arange(4), (2, 1)), u, adam, 1.5)
        assert path[0][3] == LOWEST
        np.testing.assert_array_equal(path[0][:3], 0)
        assert np.isfinite(path).all()


def test_rows_far_from_zero_are_told_apart_as_well(rng):
    """They are taken to lie about their probe, since float32 has few digits for a thousandth beside a hundred."""
    near, kernel = neighborhoods(rng), get_kernel_or_sum("matern32")
    away = np.float32(1024.0)
    rows, probes = near.rows * np.float32(2**-7), near.probes
    paths = []
    for shift in (np.float32(0), away):
        moved = (rows + away) - away + shift  # the same rows but for the shift, to the last bit
        there = replace(near, rows=moved, probes=replace(probes, X=moved[:40].astype(float)))
        u, adam = begun(kernel)
        u[:3] += np.log(2**-7)
        paths.append(there.descend(kernel, np.tile(np.arange(16), (12, 1)), u, adam, 1.0)[0])
    np.testing.assert_allclose(paths[1], paths[0], atol=1e-6)
