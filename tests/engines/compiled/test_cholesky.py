import numpy as np
import pytest

from gpnn.engines.compiled import aligned
from gpnn.engines.compiled.cholesky import factor, minus_inverse, solve
from gpnn.engines.compiled.vectors import LANES


def strips_of(matrix, lanes):
    return np.concatenate([matrix[i : i + lanes].T.ravel() for i in range(0, len(matrix), lanes)])


def rows_of(strips, lanes, columns):
    return np.concatenate([s.reshape(columns, lanes).T for s in strips.reshape(-1, columns * lanes)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_strips", [1, 2, 3, 4, 7, 12, 15])
def test_factor_solve_and_inverse(dtype, n_strips, rng):
    lanes = LANES[np.dtype(dtype)]
    m = n_strips * lanes
    B = rng.normal(size=(m, m))
    K = B @ B.T / m + np.eye(m)
    right = rng.normal(size=(lanes, m))
    A = aligned((2 * m + lanes) * m, dtype)
    A[: m * m + lanes * m] = np.concatenate([strips_of(K, lanes), strips_of(right, lanes)])
    assert factor(A, n_strips, lanes, m * lanes, 0.0)

    L = np.linalg.cholesky(K)
    result = rows_of(A, lanes, m)
    computed = np.tril(result[:m], -1) + np.diag(1 / np.diag(result[:m]))
    tolerance = 50 * np.finfo(dtype).eps
    np.testing.assert_allclose(computed, L, atol=tolerance * 3)
    np.testing.assert_allclose(result[m : m + lanes], np.linalg.solve(L, right.T).T, atol=tolerance * 10)
    many = rng.normal(size=(4 * lanes, m))
    B = aligned(many.size, dtype)
    B[:] = strips_of(many, lanes)
    solve(A, n_strips, lanes, m * lanes, B, 4)
    np.testing.assert_allclose(rows_of(B, lanes, m), np.linalg.solve(L, many.T).T, atol=tolerance * 10)
    minus_inverse(A, n_strips, lanes, m * lanes)
    np.testing.assert_allclose(np.tril(rows_of(A, lanes, m)[:m]), -np.tril(np.linalg.inv(K)), atol=tolerance * 10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_says_when_there_is_no_factor(dtype):
    lanes = LANES[np.dtype(dtype)]
    m = 3 * lanes
    K = np.eye(m)
    K[-2, -2] = -1e-3
    A = aligned((m + lanes) * m, dtype)
    A[:] = 0
    A[: m * m] = strips_of(K, lanes)
    assert not factor(A, 3, lanes, m * lanes, 0.0)
