"""The local systems on a device: float32 first, float64 where the estimate of its error says so, as on the CPU."""

from __future__ import annotations

import numpy as np
import torch
import triton
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
    noise: torch.Tensor | None,
    neighbors: torch.Tensor,
    X_star: torch.Tensor,
    kernel: Kernel,
    params: Hyperparameters,
    sizes: NDArray[np.integer],
    n_innovations: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Means and variances (q, k) from the nearest sizes[0] < … of the neighbors (q, m); jitter (q,); innovations of the
    first of them (q, n_innovations).

    y (n,) float64: of the rows of `cells`; noise (2, n): their share of σ_ξ², and what is known beside it.
    """
    variance_of_noise = torch.full((1,), params.noise_variance, dtype=torch.float64, device=X_star.device)
    if noise is not None:
        variance_of_noise = params.noise_variance * noise[0] + noise[1]
    ratios = variance_of_noise / params.kernel_variance

    def attempt(queries, dtype: torch.dtype, extra: float):
        return _attempt(
            cells, y, ratios + extra, neighbors[queries], X_star[queries], kernel, params, sizes, n_innovations, dtype
        )

    mean, shrinkage, innovations, (mean_error, error) = attempt(slice(None), torch.float32, 0.0)
    variance = params.kernel_variance * shrinkage[:, -1] + params.noise_variance
    for_mean, for_variance = (TOLERANCE / factor for factor in ROUNDING[kernel.name])
    accurate = mean_error <= for_mean * torch.sqrt(variance)
    accurate &= params.kernel_variance * error <= for_variance * variance
    jitter = torch.zeros_like(variance)
    failed = torch.nonzero(~accurate)[:, 0]  # comparisons with NaN are False
    for extra in JITTERS:
        if len(failed) == 0:
            break
        jitter[failed] = float(extra)
        mean[failed], shrinkage[failed], innovations[failed], _ = attempt(failed, torch.float64, extra)
        failed = failed[torch.isnan(shrinkage[failed, -1])]
    if len(failed):
        raise np.linalg.LinAlgError("a local covariance matrix is not positive definite, even with jitter")
    innovations /= params.kernel_variance
    return mean, params.kernel_variance * shrinkage + params.noise_variance, jitter, innovations


def _attempt(cells, y, ratios, neighbors, X_star, kernel, params, sizes, n_innovations, dtype):
    """Means, 1/precision, innovations and rounding errors of the first two; NaN where A is not positive definite."""
    (q, m), d, device = neighbors.shape, cells.d, X_star.device
    padded = -(-(m + 2) // _TILE) * _TILE
    n_programs = min(q, programs(device, _EACH))
    work_size = padded * (padded + d + 5 + _TILE)
    work = torch.empty(n_programs * work_size, dtype=dtype, device=device)
    a, b = torch.empty(2, q, m, dtype=dtype, device=device)
    center, amplified = (torch.empty(*shape, dtype=torch.float64, device=device) for shape in ((q,), (q, 3)))
    inverse_lengthscale = np.broadcast_to(1 / np.asarray(params.lengthscale, dtype=float), d)
    scale = upload(inverse_lengthscale, device).to(dtype)
    kernels.solve[(n_programs,)](
        cells.strips, y, neighbors, X_star, scale, ratios.to(dtype), int(len(ratios) > 1), LOWEST_PIVOT, a, b, center,
        amplified, work, work_size, q, m, padded, d,
        KERNEL=KERNEL_NUMBERS[kernel.name], B=_TILE, PRECISION=_PRECISION[dtype], num_warps=_WARPS,
    )  # fmt: skip
    mean, shrinkage = torch.empty(2, q, len(sizes), dtype=torch.float64, device=device)
    innovations = torch.empty(q, n_innovations, dtype=torch.float32, device=device)
    kernels.laws[(q,)](
        a, b, center, upload(np.asarray(sizes, np.int64), device), mean, shrinkage, innovations, m, len(sizes),
        n_innovations, M=triton.next_power_of_2(m),
    )  # fmt: skip
    weights, residuals, spread = amplified.T
    last = shrinkage[:, -1]
    mean_error = EPSILON * (torch.sqrt(weights * residuals) * last + 2 * (center.abs() + spread))
    return mean, shrinkage, innovations, (mean_error, EPSILON * weights * last * last)
