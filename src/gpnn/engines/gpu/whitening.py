"""A `Whitener`'s map on the device, row by row as on the CPU: what a row becomes does not depend on its company."""

from __future__ import annotations

from typing import Any

import torch

from gpnn.engines.gpu.device import upload
from gpnn.engines.local import FARTHEST


class DeviceWhitening:
    """Of a `stages.whitening.Whitener`."""

    def __init__(self, whitener: Any, device: torch.device):
        self.mean, self.map = (upload(array, device) for array in (whitener.x_mean, whitener.x_map))
        self.ranks = None
        if whitener.ranks is not None:
            self.ranks = tuple(upload(array, device) for array in (whitener.ranks.knots, whitener.ranks.reach))

    def __call__(self, X: torch.Tensor) -> torch.Tensor:
        """X (n, d) on the device → float32."""
        X = X.double()
        if self.ranks is not None:
            X = _ranked(X, *self.ranks)
        X = X - self.mean
        if self.map.ndim == 1:
            X = X * self.map
        else:  # a matrix product would round a row differently in different company
            total = torch.zeros_like(X)
            for k in range(X.shape[1]):
                total.addcmul_(X[:, k : k + 1], self.map[k])
            X = total
        return X.clamp(-FARTHEST, FARTHEST).float()


def _ranked(X: torch.Tensor, knots: torch.Tensor, reach: torch.Tensor) -> torch.Tensor:
    """See `stages.whitening._rank_rows`."""
    values, last = X.T.contiguous(), knots.shape[1] - 1
    below, upto = (torch.searchsorted(knots, values, right=right) for right in (False, True))
    left, right = (knots.gather(1, at.clamp(0, last)) for at in (below - 1, below))
    between = below - 1 + (values - left) / (right - left)
    ranked = torch.where(upto > below, 0.5 * (below + upto - 1), between)
    first, final, reach = knots[:, :1], knots[:, -1:], reach[:, None]
    ranked = torch.where(values < first, (values - first) / reach, ranked)
    return torch.where(values > final, last + (values - final) / reach, ranked).T
