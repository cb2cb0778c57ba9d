"""l* of a query given its neighbours, with its gradient: `engines.compiled.likelihood` for a batch, in float64."""

import triton
import triton.language as tl

from gpnn.engines.gpu.kernels.covariance import correlation_slope, one_minus_correlation
from gpnn.engines.gpu.kernels.solve import factor_tile


@triton.jit(do_not_specialize=["m"])
def predictive_likelihood(
    chosen, X_star, y_star, rows, y, neighbors, theta, gradient, outcomes, innovations, m, d,
    KERNEL: tl.constexpr, S: tl.constexpr, WITH_GRADIENT: tl.constexpr,
):  # fmt: skip
    """Of one of the chosen (c,): gradient (c, d + 2) in l_1 … l_d, σ_f², σ_ξ²; outcomes (c, 2): y* − μ* and σ*²;
    innovations (c, m). NaN where K is not positive definite.

    X_star (q, d), y_star (q,), rows (n, d), y (n,), neighbors (q, m); theta (d + 4,): parameters, share and typical (see
    the compiled twin). S is a power of two above m.
    """
    at = tl.program_id(0).to(tl.int64)
    q = tl.load(chosen + at)
    i = tl.arange(0, S)
    inside = i < m
    query = i == m
    number = tl.load(neighbors + q * m + i, mask=inside, other=0)
    address = tl.where(query, X_star + q * d, rows + number * d)
    r2 = tl.zeros((S, S), tl.float64)
    for k in range(0, d):
        value = tl.load(address + k, mask=i <= m, other=0.0).to(tl.float64) / tl.load(theta + k)
        difference = value[:, None] - value[None, :]
        r2 += difference * difference
    kernel_variance, noise_variance = tl.load(theta + d), tl.load(theta + d + 1)
    diagonal = i[:, None] == i[None, :]
    K = kernel_variance * (1.0 - one_minus_correlation(r2, KERNEL))
    K = tl.where(diagonal, K + noise_variance, K)
    exists = (i <= m)[:, None] & (i <= m)[None, :]
    K = tl.where(exists, K, tl.where(diagonal, 1.0, 0.0))
    _, inverse = factor_tile(K, m + 1, 0.0, S)

    target = tl.load(tl.where(query, y_star + q, y + number), mask=i <= m, other=0.0)
    whitened = tl.sum(inverse * target[None, :], axis=1)  # L⁻¹y
    tl.store(innovations + at * m + i, whitened * whitened, mask=inside)
    last = tl.sum(tl.where(query[None, :], inverse, 0.0), axis=1)  # L⁻¹e
    a = tl.sum(inverse * whitened[:, None], axis=0)  # K⁻¹y
    p = tl.sum(inverse * last[:, None], axis=0)  # K⁻¹e
    precision = tl.sum(tl.where(query, p, 0.0), axis=0)
    error = tl.sum(tl.where(query, a, 0.0), axis=0) / precision
    tl.store(outcomes + 2 * at, error)
    tl.store(outcomes + 2 * at + 1, 1.0 / precision)

    if WITH_GRADIENT:
        share, typical = tl.load(theta + d + 2), tl.load(theta + d + 3)
        local = tl.sum(tl.where(inside & (i > 0), whitened * whitened, 0.0), axis=0) / tl.maximum(m - 1, 1)
        shrink = tl.where(m > 1, 1.0 / tl.sqrt((1.0 - share) * local / typical + share), 1.0)
        a *= shrink
        error *= shrink
        # dloss/dK = ½(σ*² + (y* − μ*)²)ppᵀ − ½(y* − μ*)(paᵀ + apᵀ)
        by_p = 0.5 * (1.0 / precision + error * error) * p - 0.5 * error * a
        by_a = -0.5 * error * p
        G = by_p[:, None] * p[None, :] + by_a[:, None] * a[None, :]
        by_noise = tl.sum(tl.where(i <= m, by_p * p + by_a * a, 0.0), axis=0)
        along = 0.5 * (1.0 - error * error * precision)  # ΣG_ij K_ij
        weight = tl.where(exists, G * correlation_slope(r2, KERNEL), 0.0)
        for k in range(0, d):
            lengthscale = tl.load(theta + k)
            value = tl.load(address + k, mask=i <= m, other=0.0).to(tl.float64) / lengthscale
            difference = value[:, None] - value[None, :]
            total = tl.sum(tl.sum(weight * difference * difference, axis=1), axis=0)
            tl.store(gradient + at * (d + 2) + k, -2.0 * kernel_variance * total / lengthscale)
        # dK/dσ_f² = (K − σ_ξ²I)/σ_f²
        tl.store(gradient + at * (d + 2) + d, (along - noise_variance * by_noise) / kernel_variance)
        tl.store(gradient + at * (d + 2) + d + 1, by_noise)
