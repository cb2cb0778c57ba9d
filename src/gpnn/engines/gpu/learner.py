"""The loops of learning on the device: every row is compared, in the metric of the moment; gradients of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from gpnn.common.kernels import Kernel
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines import Probes
from gpnn.engines.cpu.learner import CPUNeighborhoods
from gpnn.engines.descent import Adam, descend
from gpnn.engines.gpu.cells import Cells, without_own
from gpnn.engines.gpu.device import upload
from gpnn.engines.gpu.inverted import to_strips
from gpnn.engines.gpu.kernels.covariance import KERNEL_NUMBERS
from gpnn.engines.gpu.kernels.likelihood import predictive_likelihood
from gpnn.engines.local import Noise


class GPULearner:
    """No index: the metric is a weight for each column's squared differences."""

    def __init__(self, rows: torch.Tensor, y: Array, noise: Noise | None = None):
        self.rows, self.y = rows, upload(y, rows.device)
        self.noise = None if noise is None else upload(noise.columns, rows.device)
        self._on_host = y, noise
        self._cells = Cells.plain(to_strips(rows), len(rows))

    @property
    def shape(self) -> tuple[int, int]:
        n, d = self.rows.shape
        return n, d

    def take(self, numbers: NDArray[np.integer]) -> NDArray[np.float32]:
        return self.rows[torch.from_numpy(numbers).to(self.rows.device)].cpu().numpy()

    def prepare(self, probes: Probes) -> None:
        pass

    def branch(self, n_jobs: int | None) -> GPULearner:
        return self

    def after(self, x_map: Array) -> GPULearner:
        y, noise = self._on_host
        return GPULearner((self.rows.double() @ upload(x_map, self.rows.device)).float(), y, noise)

    def neighborhoods(
        self, probes: Probes, lengthscale: Array | float, n_neighbors: int
    ) -> GPUNeighborhoods | CPUNeighborhoods:
        if isinstance(lengthscale, np.ndarray) and lengthscale.ndim == 2:
            return self._around_after(lengthscale, probes, n_neighbors)
        n, d = self.rows.shape
        m, device = min(n_neighbors, n - 1), self.rows.device
        X = upload(np.asarray(probes.X, np.float32), device)
        inverse = 1 / np.broadcast_to(np.asarray(lengthscale, dtype=float), d)
        weights = upload((inverse / inverse.max()).astype(np.float32) ** 2, device)  # a common factor changes nothing
        found, _ = self._cells.nearest(X, m + 1, weights)
        neighbors = without_own(found, found, upload(np.asarray(probes.own, np.int64), device))
        return self._around(probes, X, neighbors)

    def _around_after(self, x_map: Array, probes: Probes, n_neighbors: int) -> CPUNeighborhoods:
        """Found on the device; gradients in a map are computed on the CPU, from the few rows that batches need."""
        found = self.after(x_map).neighborhoods(probes.after(x_map), 1.0, n_neighbors)
        assert isinstance(found, GPUNeighborhoods)
        rows, place = np.unique(found.neighbors.cpu().numpy(), return_inverse=True)
        y, noise = self._on_host
        noise = None if noise is None else noise[rows]
        return CPUNeighborhoods(self.take(rows), y[rows], probes, place.reshape(len(probes), -1), 1, noise)

    def among(self, probes: Probes, neighbors: NDArray[np.int64]) -> GPUNeighborhoods:
        device = self.rows.device
        return self._around(probes, upload(np.asarray(probes.X, np.float32), device), upload(neighbors, device))

    def _around(self, probes: Probes, X: torch.Tensor, neighbors: torch.Tensor) -> GPUNeighborhoods:
        device = self.rows.device
        known = self.noise is not None and probes.noise is not None
        noise_star = upload(probes.noise.columns, device) if known and probes.noise is not None else None
        noise = self.noise if known else None
        return GPUNeighborhoods(
            self.rows, self.y, X, upload(probes.y, device), neighbors, noise_star, noise, probes.known
        )


@dataclass(frozen=True)
class GPUNeighborhoods:
    rows: torch.Tensor
    y: torch.Tensor
    X: torch.Tensor
    y_star: torch.Tensor
    neighbors: torch.Tensor
    noise_star: torch.Tensor | None = None
    noise: torch.Tensor | None = None
    known: Array | None = None

    @property
    def d(self) -> int:
        return self.rows.shape[1]

    def gradient(
        self, chosen: NDArray, kernel: Kernel, theta: Array, share: float, typical: float
    ) -> tuple[Array, int, float]:
        if kernel.broad is not None:
            return self._on_cpu.gradient(chosen, kernel, theta, share, typical)
        d = self.d
        gradients = torch.empty(len(chosen), d + 4, dtype=torch.float64, device=self.X.device)
        self._launch(chosen, kernel, [*theta, share, typical], gradients, None, None)
        *total, count, innovation = gradients.sum(dim=0).tolist()
        return np.array(total), int(count), innovation / len(chosen)

    def descend(
        self, kernel: Kernel, batches: NDArray[np.int64], u: Array, adam: Adam, typical: float
    ) -> tuple[Array, float]:
        around = self if kernel.broad is None else self._on_cpu
        return descend(around, kernel, batches, u, adam, typical)

    def map_gradient(self, chosen, kernel, x_map, variances, share, typical, fine=True):
        raise NotImplementedError("of neighbourhoods that were found through a map only, which are the CPU's")

    def predict(self, kernel: Kernel, params: Hyperparameters) -> tuple[Prediction, Array]:
        if kernel.broad is not None:
            return self._on_cpu.predict(kernel, params)
        (q, m), d = self.neighbors.shape, self.rows.shape[1]
        outcomes = torch.empty(q, 2, dtype=torch.float64, device=self.X.device)
        innovations = torch.empty(q, m, dtype=torch.float64, device=self.X.device)
        theta = [*np.broadcast_to(params.lengthscale, d), params.kernel_variance, params.noise_variance]
        self._launch(np.arange(q), kernel, [*theta, 1.0, 1.0], None, outcomes, innovations)
        fine = torch.isfinite(outcomes[:, 1])
        error, variance = torch.where(fine, outcomes[:, 0], 0.0), torch.where(fine, outcomes[:, 1], float("inf"))
        innovations = torch.where(fine[:, None], innovations, 1.0)
        law = Prediction((self.y_star - error).cpu().numpy(), variance.cpu().numpy(), known=self.known)
        return law, innovations.cpu().numpy()

    @cached_property
    def _on_cpu(self) -> CPUNeighborhoods:
        """For sums of kernels, of which the device knows nothing."""
        used, place = torch.unique(self.neighbors, return_inverse=True)
        X, y_star, rows, y, place = (
            of.cpu().numpy() for of in (self.X, self.y_star, self.rows[used], self.y[used], place)
        )
        noise_star, noise = (
            None if of is None else Noise(*of.cpu().numpy().T)
            for of in (self.noise_star, None if self.noise is None else self.noise[used])
        )
        return CPUNeighborhoods(rows, y, Probes(X, y_star, np.full(len(X), -1), noise_star), place, 1, noise)

    def _launch(self, chosen: NDArray, kernel: Kernel, settings: list, gradients, outcomes, innovations) -> None:
        m, d = self.neighbors.shape[1], self.rows.shape[1]
        size = max(16, triton.next_power_of_2(m + 1))
        batch = upload(np.concatenate([settings, chosen]), self.X.device)
        predictive_likelihood[(len(chosen),)](
            self.X, self.y_star, self.rows, self.y, self.neighbors, self.noise_star, self.noise, batch, gradients,
            outcomes, innovations, m, d, KERNEL=KERNEL_NUMBERS[kernel.name], S=size, LEARNING=gradients is not None,
            NOISY=self.noise is not None, num_warps=max(1, size // 16),
        )  # fmt: skip
