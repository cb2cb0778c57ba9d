"""Several targets from one factor are each what they would be alone."""

import numpy as np
import pytest

from gpnn import Hyperparameters
from gpnn.engines import Noise
from gpnn.engines.cpu import CPU
from gpnn.kernels import KERNELS


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("m", "k"), [(5, 2), (33, 19)])
@pytest.mark.parametrize(
    "params", [Hyperparameters(0.7, 2.0, 0.01), Hyperparameters(11.0, 95.0, 1e-6)], ids=["", "hard"]
)
@pytest.mark.parametrize("kernel", ["exponential", "matern52"])
def test_as_if_each_were_alone(kernel, params, m, k, known, rng):
    X = rng.normal(size=(300, 3)).astype(np.float32)
    Y = np.sin(X @ rng.normal(size=(3, k))) + 0.1 * rng.normal(size=(300, k)) + rng.normal(size=k)
    noise = Noise(np.ones(300), rng.uniform(0, 1, 300)) if known else None
    engine = CPU(1).build(X.copy(), Y[:, 0], "kdtree", m, np.arange(10), 0, noise=noise)
    ordered = Y[engine.index.order]
    queries = rng.normal(size=(20, 3)).astype(np.float32)
    sizes = np.array([2, m])
    found = engine.targets(queries, sizes, KERNELS[kernel], params, ordered, 4)
    for t in range(k):
        alone = engine.hold(engine.index, ordered[:, t], engine.noise).path(queries, sizes, KERNELS[kernel], params)
        sd = np.sqrt(alone.variance[:, 1])
        np.testing.assert_allclose(found.mean[:, t] / sd, alone.mean[:, 1] / sd, atol=2e-3)
        np.testing.assert_allclose(found.variance, alone.variance, rtol=2e-3)
        np.testing.assert_allclose(found.innovations[:, t], alone.innovations[:, :4], rtol=0.02, atol=0.02)
