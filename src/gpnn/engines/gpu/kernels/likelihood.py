"""l* of a query given its neighbours, with its gradient: `engines.compiled.likelihood` for a batch, in float64."""

import triton
import triton.language as tl

from gpnn.engines.gpu.kernels.covariance import correlation_slope, one_minus_correlation
from gpnn.engines.gpu.kernels.solve import inverse_factor


@triton.jit(do_not_specialize=["m"])
def predictive_likelihood(
    X_star, y_star, rows, y, neighbors, noise_star, noise, batch, gradients, outcomes, innovations, m, d,
    KERNEL: tl.constexpr, S: tl.constexpr, LEARNING: tl.constexpr, NOISY: tl.constexpr,
):  # fmt: skip
    """Of one of the chosen probes. If LEARNING: gradients (c, d + 4) in l_1 … l_d, σ_f², σ_ξ², then 1, and the mean
    innovation of all rows but the first; 0, 0 and 1 where K is not positive definite. Else outcomes (c, 2): y* − μ* and
    σ*², and innovations (c, m); NaN there.

    X_star (q, d), y_star (q,), rows (n, d), y (n,), neighbors (q, m); if NOISY, noise_star (q, 2) and noise (n, 2) have
    their shares of σ_ξ² and what is known beside it. batch (d + 4 + c,): parameters, share and typical
    (see the compiled twin), and the numbers of the chosen. S is a power of two above m.
    """
    at = tl.program_id(0).to(tl.int64)
    q = tl.load(batch + d + 4 + at).to(tl.int64)
    i = tl.arange(0, S)
    inside = i < m
    query = i == m
    number = tl.load(neighbors + q * m + i, mask=inside, other=0)
    address = tl.where(query, X_star + q * d, rows + number * d)
    r2 = tl.zeros((S, S), tl.float64)
    for k in range(0, d):
        value = tl.load(address + k, mask=i <= m, other=0.0).to(tl.float64) / tl.load(batch + k)
        difference = value[:, None] - value[None, :]
        r2 += difference * difference
    kernel_variance, noise_variance = tl.load(batch + d), tl.load(batch + d + 1)
    diagonal = i[:, None] == i[None, :]
    K = kernel_variance * (1.0 - one_minus_correlation(r2, KERNEL))
    share_of_noise = tl.full((S,), 1.0, tl.float64)
    known = tl.zeros((S,), tl.float64)
    if NOISY:
        of_noise = tl.where(query, noise_star + 2 * q, noise + 2 * number)
        share_of_noise = tl.load(of_noise, mask=i <= m, other=1.0)
        known = tl.load(of_noise + 1, mask=i <= m, other=0.0)
    K = tl.where(diagonal, K + (noise_variance * share_of_noise + known)[:, None], K)
    exists = (i <= m)[:, None] & (i <= m)[None, :]
    K = tl.where(exists, K, tl.where(diagonal, 1.0, 0.0))
    inverse = inverse_factor(K, m + 1, 0.0, batch, 0, False, S)

    target = tl.load(tl.where(query, y_star + q, y + number), mask=i <= m, other=0.0)
    whitened = tl.sum(inverse * target[None, :], axis=1)  # L⁻¹y
    last = tl.sum(tl.where(query[None, :], inverse, 0.0), axis=1)  # L⁻¹e
    a = tl.sum(inverse * whitened[:, None], axis=0)  # K⁻¹y
    p = tl.sum(inverse * last[:, None], axis=0)  # K⁻¹e
    precision = tl.sum(tl.where(query, p, 0.0), axis=0)
    error = tl.sum(tl.where(query, a, 0.0), axis=0) / precision
    if LEARNING:
        gradients += at * (d + 4)
        fine = precision == precision
        share, typical = tl.load(batch + d + 2), tl.load(batch + d + 3)
        local = tl.sum(tl.where(inside & (i > 0), whitened * whitened, 0.0), axis=0) / tl.maximum(m - 1, 1)
        shrink = tl.where(m > 1, 1.0 / tl.sqrt((1.0 - share) * local / typical + share), 1.0)
        a *= shrink
        error *= shrink
        # dloss/dK = ½(σ*² + (y* − μ*)²)ppᵀ − ½(y* − μ*)(paᵀ + apᵀ)
        by_p = 0.5 * (1.0 / precision + error * error) * p - 0.5 * error * a
        by_a = -0.5 * error * p
        G = by_p[:, None] * p[None, :] + by_a[:, None] * a[None, :]
        along_own = tl.where(i <= m, by_p * p + by_a * a, 0.0)
        by_noise = tl.sum(along_own * share_of_noise, axis=0)
        # ΣG_ij K_ij, without what is known and does not change with θ
        along = 0.5 * (1.0 - error * error * precision) - tl.sum(along_own * known, axis=0)
        weight = tl.where(exists, G * correlation_slope(r2, KERNEL), 0.0)
        for k in range(0, d):
            lengthscale = tl.load(batch + k)
            value = tl.load(address + k, mask=i <= m, other=0.0).to(tl.float64) / lengthscale
            difference = value[:, None] - value[None, :]
            total = tl.sum(tl.sum(weight * difference * difference, axis=1), axis=0)
            tl.store(gradients + k, tl.where(fine, -2.0 * kernel_variance * total / lengthscale, 0.0))
        # dK/dσ_f² = (K − σ_ξ²I)/σ_f²
        tl.store(gradients + d, tl.where(fine, (along - noise_variance * by_noise) / kernel_variance, 0.0))
        tl.store(gradients + d + 1, tl.where(fine, by_noise, 0.0))
        tl.store(gradients + d + 2, tl.where(fine, 1.0, 0.0).to(tl.float64))
        tl.store(gradients + d + 3, tl.where(fine, local, 1.0))
    else:
        tl.store(innovations + at * m + i, whitened * whitened, mask=inside)
        tl.store(outcomes + 2 * at, error)
        tl.store(outcomes + 2 * at + 1, 1.0 / precision)
