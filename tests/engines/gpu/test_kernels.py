"""Every Triton kernel, interpreted where there is no GPU, against the same in numpy."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from gpnn.engines.gpu.cells import Cells, without_own  # noqa: E402
from gpnn.engines.gpu.device import find_device, upload  # noqa: E402
from gpnn.engines.gpu.inverted import to_strips  # noqa: E402
from gpnn.engines.gpu.kernels import search  # noqa: E402
from gpnn.engines.gpu.kernels.covariance import (  # noqa: E402
    KERNEL_NUMBERS,
    correlation_slope,
    one_minus_correlation,
)
from gpnn.engines.gpu.kernels.solve import inverse_factor  # noqa: E402
from gpnn.kernels import KERNELS  # noqa: E402


@pytest.fixture(scope="module")
def device(gpu):
    return find_device(gpu.device)


@triton.jit
def both(x, g, slope, N: tl.constexpr, KERNEL: tl.constexpr):
    i = tl.arange(0, N)
    r2 = tl.load(x + i)
    tl.store(g + i, one_minus_correlation(r2, KERNEL))
    tl.store(slope + i, correlation_slope(r2, KERNEL))


def one_minus(name: str, r2: float) -> float:
    """1 − c to full accuracy: series in exact fractions of a double where 1 − c would cancel."""
    if name in ("rbf", "exponential"):
        return -math.expm1(-r2 / 2 if name == "rbf" else -math.sqrt(r2))
    rho = math.sqrt({"matern32": 3, "matern52": 5}[name] * r2)
    if rho > 0.5:
        return float(1 - KERNELS[name].correlation(np.array(r2)))
    signed = [(-rho) ** k / math.factorial(k) for k in range(30)]
    if name == "matern32":
        return math.fsum((k - 1) * term for k, term in enumerate(signed) if k >= 2)
    return math.fsum((k - 1) * (3 - k) / 3 * term for k, term in enumerate(signed) if k >= 2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", KERNELS)
def test_one_minus_the_correlation_keeps_its_digits(name, dtype, device):
    r2 = np.geomspace(1e-14, 1e4, 256).astype(dtype)
    g, slope = (torch.empty(256, dtype=getattr(torch, dtype), device=device) for _ in range(2))
    both[(1,)](upload(r2, device), g, slope, N=256, KERNEL=KERNEL_NUMBERS[name])
    true = np.array([one_minus(name, float(value)) for value in r2])
    np.testing.assert_allclose(g.cpu().double(), true, rtol=2e-6 if dtype == "float32" else 1e-14)
    expected = KERNELS[name].with_slope(r2.astype(float))[1]
    np.testing.assert_allclose(slope.cpu().double(), expected, rtol=2e-5 if dtype == "float32" else 1e-12, atol=1e-30)


@triton.jit
def factored(matrix, L, inverse, n_columns, lowest, B: tl.constexpr):
    i = tl.arange(0, B)
    S = tl.load(matrix + i[:, None] * B + i[None, :])
    tl.store(inverse + i[:, None] * B + i[None, :], inverse_factor(S, n_columns, lowest, L, B, True, B))


@pytest.mark.parametrize("n", [1, 5, 16])
def test_a_tile_is_factored_and_inverted(n, device, rng):
    root = rng.normal(size=(16, 16))
    matrix = root @ root.T + 0.1 * np.eye(16)
    L, inverse = (torch.zeros(16, 16, dtype=torch.float64, device=device) for _ in range(2))
    factored[(1,)](upload(matrix, device), L, inverse, n, 1e-13, B=16)
    true = np.linalg.cholesky(matrix)
    np.testing.assert_allclose(L.cpu()[:, :n], true[:, :n], rtol=1e-10, atol=1e-12)  # rows below are carried along
    np.testing.assert_allclose(inverse.cpu()[:n, :n], np.linalg.inv(true[:n, :n]), rtol=1e-8, atol=1e-12)


def test_a_tile_that_is_not_positive_definite_becomes_nan(device):
    matrix = np.diag([1.0] * 7 + [-1.0] + [1.0] * 8)
    L, inverse = (torch.zeros(16, 16, dtype=torch.float64, device=device) for _ in range(2))
    factored[(1,)](upload(matrix, device), L, inverse, 16, 1e-13, B=16)
    assert torch.isnan(inverse.cpu()[np.tril_indices(16)]).all()


def test_distances_from_boxes(device, rng):
    low = rng.normal(size=(5, 3)).astype(np.float32)
    high = low + rng.uniform(size=(5, 3)).astype(np.float32)
    X = rng.normal(size=(4, 3)).astype(np.float32)
    out = torch.empty(4, 5, dtype=torch.float32, device=device)
    sides = [upload(side.T, device) for side in (low, high)]
    search.box_distances[(1, 1)](upload(X, device), *sides, out, 4, 5, 3, QUERIES=16, CELLS=16)
    gap = np.maximum(np.maximum(low[None] - X[:, None], X[:, None] - high[None]), 0)
    np.testing.assert_allclose(out.cpu(), (gap**2).sum(axis=2), rtol=1e-6)


@pytest.mark.parametrize("order", ["far rows first", "near rows first", "all alike"])
def test_a_scan_keeps_the_nearest_whatever_their_order(order, device, rng):
    """More rows than there is room for: candidates are cut back to the nearest again and again."""
    X = np.sort(rng.uniform(1, 2, size=9000))[:, None].astype(np.float32)
    if order == "far rows first":
        X = X[::-1].copy()
    elif order == "all alike":
        X[:] = 1
    cells = Cells.plain(to_strips(upload(X, device)), 9000)
    found, squared = cells.nearest(torch.zeros(2, 1, device=device), 40)
    np.testing.assert_allclose(squared.cpu(), np.tile(np.sort(X[:, 0])[:40] ** 2, (2, 1)), rtol=1e-6)
    assert len(set(found[0].tolist())) == 40
    if order == "all alike":  # ties by row number: nothing depends on chance
        assert found[0].tolist() == list(range(40))


def test_columns_count_as_their_weights_say(device, rng):
    X = rng.normal(size=(300, 3)).astype(np.float32)
    weights = np.array([1.0, 0.0, 25.0], np.float32)
    found, squared = Cells.plain(to_strips(upload(X, device)), 300).nearest(
        upload(X[:3], device), 9, upload(weights, device)
    )
    true = (weights * (X[None] - X[:3, None]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(found.cpu(), np.argsort(true, axis=1)[:, :9])
    np.testing.assert_allclose(squared.cpu(), np.sort(true, axis=1)[:, :9], rtol=1e-5, atol=1e-6)


def test_a_query_that_is_not_a_number_has_no_neighbours(device, rng):
    from gpnn.errors import InvalidInputError

    cells = Cells.plain(to_strips(upload(rng.normal(size=(50, 2)).astype(np.float32), device)), 50)
    with pytest.raises(InvalidInputError, match="fewer than"):
        cells.nearest(torch.full((1, 2), float("nan"), device=device), 10)


def test_own_rows_are_left_out():
    found = torch.tensor([[4, 1, 2], [7, 8, 9]])
    assert without_own(found, found, torch.tensor([1, -1])).tolist() == [[4, 2], [7, 8]]
