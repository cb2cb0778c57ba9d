"""Nearest rows: how far cells are from queries, and a scan of cells that keeps each query's nearest rows.

Candidates are 64-bit keys, the bits of a squared distance above a row number, as on the CPU: unique, so that answers do
not depend on the order of anything.
"""

import triton
import triton.language as tl

STRIP = tl.constexpr(16)


@triton.jit(do_not_specialize=["n_queries"])
def box_distances(X, low, high, out, n_queries, n_cells, d, QUERIES: tl.constexpr, CELLS: tl.constexpr):
    """Squared distances (q, cells) of the queries X (q, d) from boxes low, high (d, cells); 0 inside."""
    q = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    c = tl.program_id(1) * CELLS + tl.arange(0, CELLS)
    r2 = tl.zeros((QUERIES, CELLS), tl.float32)
    for k in range(0, d):
        x = tl.load(X + q * d + k, mask=q < n_queries, other=0.0)[:, None]
        below = tl.load(low + k * n_cells + c, mask=c < n_cells, other=0.0)[None, :]
        above = tl.load(high + k * n_cells + c, mask=c < n_cells, other=0.0)[None, :]
        gap = tl.maximum(tl.maximum(below - x, x - above), 0.0)
        r2 += gap * gap
    inside = (q < n_queries)[:, None] & (c < n_cells)[None, :]
    tl.store(out + q.to(tl.int64)[:, None] * n_cells + c[None, :], r2, mask=inside)


@triton.jit
def _keep_smallest(keys, count, wanted, most, ROOM: tl.constexpr):
    """Keep between `wanted` and `most` of the smallest of the first `count` keys, in the order in which they lie.

    Returns how many, and the largest. By bisection between the smallest and the largest key.
    """
    place = tl.arange(0, ROOM)
    all_keys = tl.load(keys + place, mask=place < count, other=0x7FFFFFFFFFFFFFFF)
    low = tl.min(all_keys, axis=0) - 1  # fewer than wanted are ≤ low; at least wanted are ≤ high
    high = tl.max(tl.where(place < count, all_keys, 0), axis=0)
    kept = count
    while (kept > most) & (high - low > 1):
        middle = low + (high - low) // 2
        below = tl.sum((all_keys <= middle).to(tl.int32), axis=0)
        enough = below >= wanted
        low = tl.where(enough, low, middle)
        high = tl.where(enough, middle, high)
        kept = tl.where(enough, below, kept)
    keep = all_keys <= high
    tl.debug_barrier()
    tl.store(keys + tl.cumsum(keep.to(tl.int32), axis=0) - 1, all_keys, mask=keep & (place < count))
    tl.debug_barrier()
    return kept, high


@triton.jit(do_not_specialize=["n_cells", "n_neighbors"])
def scan(
    strips, starts, cells, distances, X, weights, keys, counts, n_cells, n_neighbors, d,
    LISTED: tl.constexpr, TILE: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """The keys (q, ROOM) of each query's n_neighbors nearest rows, in no order, and how many there are.

    LISTED: only of the cells (q, n_cells) named, passing over those whose `distances` (q, n_cells, squared) are not
    below that of the farthest row kept; else of all n_cells. starts (cells + 1,): where the rows of each begin. Squared
    differences count `weights` (d,) times.
    """
    q = tl.program_id(0).to(tl.int64)
    keys += q * ROOM
    lane = tl.arange(0, TILE)
    bound = float("inf")
    count = 0
    for c in range(0, n_cells):
        if LISTED:
            cell = tl.load(cells + q * n_cells + c)
            nearest = tl.load(distances + q * n_cells + c)
        else:
            cell = c
            nearest = 0.0
        if nearest < bound:
            begin = tl.load(starts + cell)
            end = tl.load(starts + cell + 1)
            for first in range(begin, end, TILE):
                row = first + lane
                inside = row < end
                address = strips + (row // STRIP) * (STRIP * d) + row % STRIP
                r2 = tl.zeros((TILE,), tl.float32)
                for k in range(0, d):
                    difference = tl.load(address + STRIP * k, mask=inside, other=0.0) - tl.load(X + q * d + k)
                    r2 += difference * difference * tl.load(weights + k)
                near = inside & (r2 < bound)
                n_near = tl.sum(near.to(tl.int32), axis=0)
                if n_near > 0:
                    key = (r2.to(tl.int32, bitcast=True).to(tl.int64) << 32) | row
                    place = count + tl.cumsum(near.to(tl.int32), axis=0) - 1
                    tl.store(keys + place, key, mask=near)
                    count += n_near
                    if count > ROOM - TILE:
                        tl.debug_barrier()
                        most = (n_neighbors + ROOM - TILE) // 2
                        count, largest = _keep_smallest(keys, count, n_neighbors, most, ROOM)
                        bound = (largest >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    tl.debug_barrier()
    if count > n_neighbors:
        count, largest = _keep_smallest(keys, count, n_neighbors, n_neighbors, ROOM)
    tl.store(counts + q, count)
