"""An inverted file built on the device: the same cells as `IVF` makes of the same rows, but for rounding."""

from __future__ import annotations

import copy

import numpy as np
import torch

from gpnn.engines.cpu.neighbors import IVF
from gpnn.engines.cpu.neighbors.cells import STRIP, Rows, padded, row_numbers
from gpnn.engines.cpu.neighbors.ivf import PROBES, ROUNDS
from gpnn.engines.gpu.cells import Cells

_PAIRS = 2**28  # of rows and centres that are compared at a time
_UNITS = 2.0**30  # sums are of whole numbers, so that their order changes nothing


def build_inverted(
    spec: IVF, rows: torch.Tensor, n_neighbors: int, probes: torch.Tensor, seed: int
) -> tuple[IVF, Cells]:
    """The index, and the same on the device. `rows` (n, d) are used up."""
    n = len(rows)
    rng = np.random.default_rng(seed)
    centres = _k_means(rows, *spec.sizes(n), rng)
    cell = _nearest(rows, centres)
    order = torch.sort(cell, stable=True).indices
    counts = torch.bincount(cell, minlength=len(centres))
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    strips = to_strips(rows[order])
    index = copy.copy(spec)
    index.order = row_numbers(n)
    index.order[:] = order.cpu().numpy()
    index._starts, index._rows = starts.cpu().numpy(), Rows(strips.cpu().numpy(), n)
    index._centres = Rows.pack(centres.cpu().numpy())
    by_column = centres.T.contiguous()
    cells = Cells(strips, n, starts, by_column, by_column, n_probed=len(centres))
    if spec.exact:
        index.n_probed = len(centres)
        return index, cells.exhaustive()
    index.n_probed = index.enough(_ranks(cells, probes[:PROBES], n_neighbors), n_neighbors)
    return index, Cells(strips, n, starts, by_column, by_column, n_probed=index.n_probed)


def to_strips(rows: torch.Tensor) -> torch.Tensor:
    """Rows (n, d) as `cells.Rows` keeps them: (strips, d, 16)."""
    n, d = rows.shape
    whole = rows.new_zeros(padded(n), d)
    whole[:n] = rows
    return whole.view(-1, STRIP, d).transpose(1, 2).contiguous()


def _k_means(rows: torch.Tensor, n_cells: int, n_sample: int, rng: np.random.Generator) -> torch.Tensor:
    """Lloyd's rounds on a sample, from random rows."""

    def some(of: torch.Tensor, size: int) -> torch.Tensor:
        chosen = np.sort(rng.choice(len(of), size, replace=False))
        return of[torch.from_numpy(chosen).to(of.device)]

    sample = some(rows, n_sample)
    centres = some(sample, n_cells).clone()
    unit = sample.abs().max().double().clamp(min=1e-30) / _UNITS
    whole = (sample.double() / unit).round().to(torch.int64)
    for _ in range(ROUNDS):
        cell = _nearest(sample, centres)
        counts = torch.bincount(cell, minlength=n_cells)
        sums = torch.zeros(n_cells, whole.shape[1], dtype=torch.int64, device=rows.device).index_add_(0, cell, whole)
        filled = counts > 0
        centres[filled] = (sums[filled].double() * unit / counts[filled, None]).float()
        n_empty = int((~filled).sum())
        centres[~filled] = some(sample, n_empty) if n_empty else centres[~filled]
    return centres


def _nearest(rows: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    """The number of the nearest centre of each row."""
    out = torch.empty(len(rows), dtype=torch.int64, device=rows.device)
    halves = 0.5 * (centres * centres).sum(dim=1)
    size = max(1, _PAIRS // len(centres))
    for begin in range(0, len(rows), size):  # |x − c|²/2 = |x|²/2 − (x·c − |c|²/2)
        part = slice(begin, begin + size)
        out[part] = torch.addmm(-halves, rows[part], centres.T).argmax(dim=1)
    return out


def _ranks(cells: Cells, probes: torch.Tensor, n_neighbors: int) -> np.ndarray:
    """In the how-many-th nearest cell each true neighbour of the probes lies."""
    true, _ = cells.exhaustive().nearest(probes, n_neighbors)
    cell = torch.searchsorted(cells.starts, true, right=True) - 1
    nearest_first = cells.distances(probes).argsort(dim=1, stable=True)
    position = torch.empty_like(nearest_first)
    position.scatter_(1, nearest_first, torch.arange(nearest_first.shape[1], device=true.device).expand_as(position))
    return position.gather(1, cell).cpu().numpy()
