"""The local systems on a device: float32 first, float64 where the estimate of its error says so, as on the CPU."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from gpnn.common.kernels import Kernel
from gpnn.common.types import Hyperparameters
from gpnn.engines.gpu.cells import Cells
from gpnn.engines.gpu.device import programs, upload
from gpnn.engines.gpu.kernels import solve as kernels
from gpnn.engines.gpu.kernels.covariance import KERNEL_NUMBERS
from gpnn.engines.local import EPSILON, JITTERS, LOWEST_PIVOT, ROUNDING, TOLERANCE

_TILE, _WARPS = 32, 2  # the quickest on an H200 of tiles of 16, 32, 64 and 1, 2, 4, 8 warps
_EACH = 8  # programs on a multiprocessor, of which registers let four run at a time
_PRECISION = {torch.float32: "tf32x3", torch.float64: "ieee"}
"""Of matrix products: three of TF32 are nearly as accurate as one of float32, and twice as fast."""


def solve_path(
    cells: Cells,
    y: torch.Tensor,
    neighbors: torch.Tensor,
    X_star: torch.Tensor,
    kernel: Kernel,
    params: Hyperparameters,
    sizes: NDArray[np.integer],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Means and variances (q, k) from the nearest sizes[0] < … of the neighbors (q, m); jitter; innovations (q, m).

    y (n,) float64: of the rows of `cells`.
    """
    y_neighbors = y[neighbors]
    mean, shrinkage, innovations, errors = _attempt(
        cells, neighbors, X_star, y_neighbors, kernel, params, sizes, torch.float32, 0.0
    )
    variance = params.kernel_variance * shrinkage[:, -1] + params.noise_variance
    for_mean, for_variance = (TOLERANCE / factor for factor in ROUNDING[kernel.name])
    accurate = errors[0] <= for_mean * torch.sqrt(variance)
    accurate &= params.kernel_variance * errors[1] <= for_variance * variance
    jitter = torch.zeros_like(variance)
    failed = torch.nonzero(~accurate)[:, 0]  # comparisons with NaN are False
    for extra in JITTERS:
        if len(failed) == 0:
            break
        jitter[failed] = float(extra)
        again = _attempt(
            cells, neighbors[failed], X_star[failed], y_neighbors[failed], kernel, params, sizes, torch.float64, extra
        )
        mean[failed], shrinkage[failed], innovations[failed] = again[:3]
        failed = failed[torch.isnan(again[1][:, -1])]
    if len(failed):
        raise np.linalg.LinAlgError("a local covariance matrix is not positive definite, even with jitter")
    innovations /= params.kernel_variance
    return mean, params.kernel_variance * shrinkage + params.noise_variance, jitter, innovations


def _attempt(cells, neighbors, X_star, y_neighbors, kernel, params, sizes, dtype, extra):
    """Means, 1/precision, innovations and rounding errors of the first two; NaN where A is not positive definite."""
    q, m = neighbors.shape
    d, device = cells.d, X_star.device
    center = y_neighbors.mean(dim=1)
    y_centred = y_neighbors - center[:, None]
    padded = -(-(m + 2) // _TILE) * _TILE
    n_programs = min(q, programs(device, _EACH))
    work_size = padded * (padded + d + 4 + _TILE)
    work = torch.empty(n_programs * work_size, dtype=dtype, device=device)
    a, b = torch.empty(2, q, m, dtype=dtype, device=device)
    amplified = torch.empty(q, 2, dtype=dtype, device=device)
    inverse_lengthscale = np.broadcast_to(1 / np.asarray(params.lengthscale, dtype=float), d)
    ratio = np.array(params.noise_variance / params.kernel_variance + extra)
    scale, ratio_there = (upload(values, device).to(dtype) for values in (inverse_lengthscale, ratio))
    kernels.solve[(n_programs,)](
        cells.strips, neighbors, X_star, y_centred.to(dtype), center.to(dtype), scale, ratio_there, LOWEST_PIVOT,
        a, b, amplified, work, work_size, q, m, padded, d,
        KERNEL=KERNEL_NUMBERS[kernel.name], B=_TILE, PRECISION=_PRECISION[dtype], num_warps=_WARPS,
    )  # fmt: skip
    a, b = a.double(), b.double()
    # Row i of L⁻¹ sees rows up to i only: each partial sum is the answer for that many neighbours.
    squares, products = a * a, a * b
    precision, product = 1 + squares.cumsum(1), products.cumsum(1)
    before = precision - squares
    surprise = b - a * (product - products - center[:, None]) / before  # what rows up to i say of f* − center
    innovations = surprise * surprise * before / precision
    at = torch.from_numpy(np.asarray(sizes, dtype=np.int64) - 1).to(device)
    precision, product = precision[:, at], product[:, at]
    mean = (product + center[:, None] * (precision - 1)) / precision  # eq. 6; hᵀA⁻¹(center·h) = center·(precision − 1)
    weights, residuals = amplified.double().T
    spread = y_centred.abs().amax(dim=1)
    last = precision[:, -1]
    mean_error = EPSILON * (torch.sqrt(weights * residuals) / last + 2 * (center.abs() + spread))
    return mean, 1 / precision, innovations, (mean_error, EPSILON * weights / (last * last))
