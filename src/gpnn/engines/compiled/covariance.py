"""The kernels of `gpnn.kernels` for SIMD vectors: r² → (g, dc/d(r²)), where g = 1 − c keeps its accuracy as r → 0.

With float32 and near rows, 1 − c computed from c would lose every digit. For the Matérn kernels, g is therefore its
own power series while √(2ν)·r is below 1, and 1 − c beyond.
"""

from math import factorial

import numpy as np
from numba.core import types
from numba.extending import overload

from gpnn.common.kernels import Kernel
from gpnn.common.types import Hyperparameters
from gpnn.engines.compiled import jit
from gpnn.engines.compiled.vectors import (
    exp_minus,
    fma,
    like,
    make_polynomial,
    maximum,
    one_minus_exp,
    sqrt,
    where_less,
)

_ORDERS = range(2, 22)

_matern32_series = make_polynomial([(-1) ** k * (k - 1) / factorial(k) for k in _ORDERS], single_terms=11)
"""g/ρ² for c = (1 + ρ)e^(−ρ)"""

_matern52_series = make_polynomial(
    [(-1) ** k * (1 / factorial(k - 1) - 1 / factorial(k) - 1 / (3 * factorial(k - 2))) for k in _ORDERS],
    single_terms=11,
)
"""g/ρ² for c = (1 + ρ + ρ²/3)e^(−ρ)"""


@jit
def _at_most_80(rho):
    """Beyond, the correlation is 0 for all purposes, but a polynomial in ρ would still grow."""
    return where_less(rho, like(rho, 80.0), rho, like(rho, 80.0))


@jit
def rbf(r2):
    g, c = one_minus_exp(r2 * like(r2, 0.5))
    return g, like(r2, -0.5) * c


@jit
def exponential(r2):
    r = sqrt(r2)
    g, c = one_minus_exp(r)
    return g, like(r2, -0.5) * c / maximum(r, like(r2, 1e-8))


@jit
def matern32(r2):
    rho2 = r2 * like(r2, 3.0)
    rho = _at_most_80(sqrt(rho2))
    _, decay = one_minus_exp(rho)
    far = like(r2, 1.0) - (like(r2, 1.0) + rho) * decay
    return where_less(rho, like(r2, 1.0), rho2 * _matern32_series(rho), far), like(r2, -1.5) * decay


@jit
def matern52(r2):
    rho2 = r2 * like(r2, 5.0)
    rho = _at_most_80(sqrt(rho2))
    _, decay = one_minus_exp(rho)
    linear = like(r2, 1.0) + rho
    far = like(r2, 1.0) - (linear + rho * rho * like(r2, 1 / 3)) * decay
    return where_less(rho, like(r2, 1.0), rho2 * _matern52_series(rho), far), like(r2, -5 / 6) * linear * decay


_COVARIANCES = {"rbf": rbf, "exponential": exponential, "matern32": matern32, "matern52": matern52}

KERNEL_TAGS = {name: (0,) * number for number, name in enumerate(_COVARIANCES)}
"""What compiled functions are given to say which kernel to use. The tags differ in type (tuples of different lengths),
so each kernel gets machine code of its own, and that code can be kept on disk, unlike that of a closure."""

KERNEL_NUMBERS = {name: number for number, name in enumerate(_COVARIANCES)}
"""The same for functions in which one piece of code, compiled once, serves all kernels: a little slower."""


def as_compiled(kernel: Kernel, params: Hyperparameters, d: int, numbers=KERNEL_NUMBERS):
    """What compiled functions are given for a kernel: its number or tag; for a sum, both numbers, the second's share,
    and (d,) what squared differences in the first's lengthscales are multiplied by for it."""
    if kernel.broad is None or params.broad is None:
        return numbers[kernel.name]
    first, second = (KERNEL_NUMBERS[part] for part in kernel.name.split("+"))
    factors = np.broadcast_to(np.square(params.lengthscale / np.asarray(params.broad.lengthscale)), d)
    return first, second, float(params.broad.share), factors.astype(float)


def is_sum(kernel) -> bool:
    return isinstance(kernel, types.Tuple) and any(isinstance(part, types.Array) for part in kernel.types)


def no_distance(kernel, zero):
    """A squared distance of zero: one vector, and two for a sum of kernels."""
    raise NotImplementedError


@overload(no_distance)
def _no_distance(kernel, zero):
    return (lambda kernel, zero: (zero, zero)) if is_sum(kernel) else (lambda kernel, zero: zero)


def farther(kernel, r2, difference, k):
    """A squared distance, and that of one more column."""
    raise NotImplementedError


@overload(farther)
def _farther(kernel, r2, difference, k):
    if is_sum(kernel):

        def both(kernel, r2, difference, k):
            square = difference * difference
            return r2[0] + square, fma(square, like(square, kernel[3][k]), r2[1])

        return both
    return lambda kernel, r2, difference, k: fma(difference, difference, r2)


def covariance(kernel, r2):
    """(g, dc/d(r²)) of the kernel that a tag or a number stands for; only for compiled code. For a sum, the second is
    the slope in each of its squared distances and that in its second part's share."""
    raise NotImplementedError


@overload(covariance)
def _covariance(kernel, r2):
    if is_sum(kernel):

        def of_sum(kernel, r2):
            near, slope = covariance(kernel[0], r2[0])
            broad, slope_of_broad = covariance(kernel[1], r2[1])
            share = like(near, kernel[2])
            rest = like(near, 1.0 - kernel[2])
            return fma(share, broad, rest * near), (rest * slope, share * slope_of_broad, near - broad)

        return of_sum
    if isinstance(kernel, types.Integer):

        def by_number(kernel, r2):
            if kernel == 0:
                return rbf(r2)
            if kernel == 1:
                return exponential(r2)
            if kernel == 2:
                return matern32(r2)
            return matern52(r2)

        return by_number
    chosen = list(_COVARIANCES.values())[len(kernel)]
    return lambda kernel, r2: chosen(r2)


def correlation(kernel, r2):
    """(c, dc/d(r²)) as `covariance` has them, for a kernel's number or a sum: in float64, where c may be added to noise
    as it is, for half the work."""
    raise NotImplementedError


@overload(correlation)
def _correlation(kernel, r2):
    if is_sum(kernel):

        def of_sum(kernel, r2):
            near, slope = correlation(kernel[0], r2[0])
            broad, slope_of_broad = correlation(kernel[1], r2[1])
            share = like(near, kernel[2])
            rest = like(near, 1.0 - kernel[2])
            return fma(share, broad, rest * near), (rest * slope, share * slope_of_broad, broad - near)

        return of_sum

    def by_number(kernel, r2):
        one = like(r2, 1.0)
        if kernel == 0:
            c = exp_minus(r2 * like(r2, 0.5))
            return c, like(r2, -0.5) * c
        if kernel == 1:
            r = sqrt(r2)
            c = exp_minus(r)
            return c, like(r2, -0.5) * c / maximum(r, like(r2, 1e-8))
        if kernel == 2:
            rho = _at_most_80(sqrt(r2 * like(r2, 3.0)))
            decay = exp_minus(rho)
            return (one + rho) * decay, like(r2, -1.5) * decay
        rho = _at_most_80(sqrt(r2 * like(r2, 5.0)))
        decay = exp_minus(rho)
        linear = (one + rho) * decay
        return fma(rho * rho * like(r2, 1 / 3), decay, linear), like(r2, -5 / 6) * linear

    return by_number
