"""The kernels of `gpnn.kernels` for SIMD vectors: r² → (g, dc/d(r²)), where g = 1 − c keeps its accuracy as r → 0.

With float32 and near rows, 1 − c computed from c would lose every digit. For the Matérn kernels, g is therefore its
own power series while √(2ν)·r is below 1, and 1 − c beyond.
"""

from math import factorial

from numba.core import types
from numba.extending import overload

from gpnn.engines.compiled import jit
from gpnn.engines.compiled.vectors import like, make_polynomial, maximum, one_minus_exp, sqrt, where_less

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


def covariance(kernel, r2):
    """(g, dc/d(r²)) of the kernel that a tag or a number stands for; only for compiled code."""
    raise NotImplementedError


@overload(covariance)
def _covariance(kernel, r2):
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
