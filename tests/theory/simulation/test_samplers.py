"""Three ways to draw neighbours: two see the same rows, the third must have the same law."""

import numpy as np
import pytest
from scipy.stats import ks_2samp, kstest

from gpnn import InvalidInputError
from gpnn.simulation import samplers


def queries(q, d, seed=0):
    return (np.random.default_rng(seed).standard_normal((q, d)) / np.sqrt(d)).astype(np.float32)


def distances(offsets):
    return np.linalg.norm(offsets.astype(float), axis=-1)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(samplers, "_BLOCK", 1000)


@pytest.mark.parametrize("d", [1, 3, 20])
def test_stream_finds_what_the_sample_in_memory_has(d, small_blocks):
    X_star = queries(40, d)
    in_memory, streamed = (find(7300, X_star, 30, 5, 2, None) for find in (samplers.from_sample, samplers.from_stream))
    np.testing.assert_array_equal(streamed, in_memory)
    assert (np.diff(distances(in_memory)) >= -1e-6).all()


def test_sample_is_the_nearest_by_brute_force(small_blocks):
    X_star = queries(5, 3)
    rows = np.concatenate([_block(b, 3) for b in range(3)])[:2500]
    found = samplers.from_sample(2500, X_star, 20, 9, 1, None)
    for x, offsets in zip(X_star, found, strict=True):
        np.testing.assert_allclose(distances(offsets), np.sort(np.linalg.norm(rows - x, axis=1))[:20], rtol=1e-5)


def _block(number, d):
    rows = np.empty((1000, d), np.float32)
    samplers._fill(rows, 9, number)
    return rows


def test_a_stream_may_end_in_a_block_of_fewer_rows_than_neighbours(small_blocks):
    X_star = queries(4, 2)
    np.testing.assert_array_equal(
        samplers.from_stream(1003, X_star, 50, 1, 1, None), samplers.from_sample(1003, X_star, 50, 1, 1, None)
    )


@pytest.mark.parametrize("d", [1, 2, 5, 20])
def test_direct_has_the_law_of_a_sample(d):
    """One query, many samples: distances of the first, middle and last neighbour, and where the neighbours lie."""
    n, m, samples = 500, 25, 1500
    x = queries(1, d, seed=d)
    rng = np.random.default_rng(1)
    real = np.empty((samples, m, d))
    for s in range(samples):
        offsets = rng.standard_normal((n, d)) / np.sqrt(d) - x
        real[s] = offsets[np.argsort(np.linalg.norm(offsets, axis=1))[:m]]
    direct = samplers.directly(n, np.repeat(x, samples, axis=0), m, 3, 2, None).astype(float)
    for k in (0, m // 2, m - 1):
        assert ks_2samp(distances(real)[:, k], distances(direct)[:, k]).pvalue > 1e-3
    towards_origin = -x[0] / np.linalg.norm(x[0])
    cosine_real, cosine_direct = (o @ towards_origin / distances(o) for o in (real, direct))
    if d == 1:
        assert abs((cosine_real > 0).mean() - (cosine_direct > 0).mean()) < 0.01
    else:
        assert ks_2samp(cosine_real[:, m - 1], cosine_direct[:, m - 1]).pvalue > 1e-3
        assert ks_2samp(cosine_real.ravel(), cosine_direct.ravel()).pvalue > 1e-3
    # pairs of neighbours are apart as they should be, not only each from x*
    pair_real, pair_direct = (np.linalg.norm(o[:, m - 1] - o[:, m - 2], axis=1) for o in (real, direct))
    assert ks_2samp(pair_real, pair_direct).pvalue > 1e-3


def test_direct_distances_at_a_trillion_rows():
    """Around x* = 0 in the plane, n·(1 − exp(−r²)) of the nearest row is exponential to twelve digits."""
    n = 10**12
    offsets = samplers.directly(n, np.zeros((4000, 2), np.float32), 1, 0, 2, None)
    assert kstest(-n * np.expm1(-(distances(offsets)[:, 0] ** 2)), "expon").pvalue > 1e-3


@pytest.mark.parametrize("d", [2, 3, 20, 300])
@pytest.mark.parametrize("kappa", [1e-9, 0.3, 8.0, 500.0])
def test_von_mises_fisher_has_its_mean_length_and_is_isotropic_across(d, kappa):
    centre = np.zeros((1, d))
    centre[0, 0] = 1.0
    draws = samplers.von_mises_fisher(np.random.default_rng(0), centre, np.full((1, 20_000), kappa))[0]
    np.testing.assert_allclose(np.linalg.norm(draws, axis=1), 1)
    mean_length = 0.0  # I_{d/2}(κ)/I_{d/2−1}(κ), as a continued fraction
    for k in range(2000, -1, -2):
        mean_length = kappa / (d + k + kappa * mean_length)
    assert draws[:, 0].mean() == pytest.approx(mean_length, abs=4.5 * draws[:, 0].std() / np.sqrt(20_000))
    np.testing.assert_allclose(draws[:, 1:].mean(axis=0), 0, atol=5 * draws[:, 1].std() / np.sqrt(20_000))


def test_threads_do_not_change_the_numbers():
    X_star = queries(70, 4)
    np.testing.assert_array_equal(
        samplers.directly(10**6, X_star, 10, 3, 1, None), samplers.directly(10**6, X_star, 10, 3, 2, None)
    )


def test_a_sample_beyond_memory_is_refused():
    with pytest.raises(InvalidInputError, match="'stream'"):
        samplers.from_sample(10**12, queries(2, 3), 5, 0, 1, None)
