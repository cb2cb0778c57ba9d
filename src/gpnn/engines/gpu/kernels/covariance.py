"""The kernels of `gpnn.kernels` on a device: r² → g = 1 − c, accurate as r → 0 (see `engines.compiled.covariance`)."""

import triton
import triton.language as tl

KERNEL_NUMBERS = {"rbf": 0, "exponential": 1, "matern32": 2, "matern52": 3}


@triton.jit
def one_minus_exp(x):
    """1 − e^(−x) for x ≥ 0: its power series below ½, x(1 − x/2(1 − x/3(…)))."""
    terms: tl.constexpr = 16 if x.dtype == tl.float64 else 9
    series = tl.full(x.shape, 1.0, x.dtype)
    for step in tl.static_range(terms - 1):
        series = 1.0 - series * x * (1.0 / (terms - step))
    return tl.where(x < 0.5, x * series, 1.0 - tl.exp(-x))


@triton.jit
def _one_minus_matern32(rho):
    """1 − (1 + ρ)e^(−ρ) = Σ_{k ≥ 2} (−1)^k (k − 1)/k! ρ^k: below 1 as nested ratios of its terms."""
    terms: tl.constexpr = 21 if rho.dtype == tl.float64 else 13
    series = tl.full(rho.shape, 1.0, rho.dtype)
    for step in tl.static_range(terms - 1):
        series = 1.0 - series * rho * ((terms - step) / ((terms - step - 1) * (terms - step + 1)))
    far = tl.minimum(rho, 80.0)  # beyond, the correlation is 0 for all purposes
    return tl.where(rho < 1.0, 0.5 * rho * rho * series, 1.0 - (1.0 + far) * tl.exp(-far))


@triton.jit
def _one_minus_matern52(rho):
    """1 − (1 + ρ + ρ²/3)e^(−ρ) = ρ²/6 + Σ_{k ≥ 4} (−1)^k (k − 1)(3 − k)/(3 k!) ρ^k"""
    terms: tl.constexpr = 22 if rho.dtype == tl.float64 else 14
    series = tl.full(rho.shape, 1.0, rho.dtype)
    for step in tl.static_range(terms - 3):
        series = 1.0 - series * rho * (
            (terms - step) * (terms - step - 2) / ((terms - step - 1) * (terms - step - 3) * (terms - step + 1))
        )
    squared = rho * rho
    far = tl.minimum(rho, 80.0)
    beyond = 1.0 - (1.0 + far + far * far * (1.0 / 3.0)) * tl.exp(-far)
    return tl.where(rho < 1.0, squared * (1.0 / 6.0) - squared * squared * (1.0 / 24.0) * series, beyond)


@triton.jit
def one_minus_correlation(r2, KERNEL: tl.constexpr):
    """g(r²)"""
    if KERNEL == 0:
        return one_minus_exp(0.5 * r2)
    elif KERNEL == 1:
        return one_minus_exp(tl.sqrt(r2))
    elif KERNEL == 2:
        return _one_minus_matern32(tl.sqrt(3.0 * r2))
    else:
        return _one_minus_matern52(tl.sqrt(5.0 * r2))


@triton.jit
def correlation_slope(r2, KERNEL: tl.constexpr):
    """dc/d(r²); for "exponential", infinite at 0, what is multiplied by r² = 0 there."""
    if KERNEL == 0:
        return -0.5 * tl.exp(-0.5 * r2)
    elif KERNEL == 1:
        r = tl.sqrt(r2)
        return -0.5 * tl.exp(-r) / tl.maximum(r, 1e-8)
    elif KERNEL == 2:
        return -1.5 * tl.exp(-tl.sqrt(3.0 * r2))
    else:
        rho = tl.sqrt(5.0 * r2)
        return -5.0 / 6.0 * (1.0 + rho) * tl.exp(-rho)
