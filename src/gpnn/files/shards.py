"""A model of more rows than memory holds, as a folder: its head, which says all but the rows, and one file per shard.

Rows come from a stream. They are spilled in runs, each sorted by shard; then the shards are made, one after the other,
each from its slices of the runs. Files are containers (`files.container`), whole or not there, and mapped when read.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import gpnn
from gpnn.common.errors import FileError
from gpnn.common.types import Array
from gpnn.engines.cpu.neighbors import NeighborIndex, make_index
from gpnn.engines.cpu.neighbors.cells import Rows, StoredIndex
from gpnn.engines.cpu.neighbors.cuts import Regions, Shared
from gpnn.engines.cpu.neighbors.shards import Joined, Once, Shards, boxes_of
from gpnn.files import container
from gpnn.files import model as model_file
from gpnn.files.whole import HEAD, whole_folder, whole_or_nothing

_PROBES = 1000  # on which an index tunes itself
BYTES_BESIDE = 40
"""Of a row while its shard is made, beside its columns: number, target, and both once more in the index's order."""


class Run(NamedTuple):
    """Rows, whitened targets and numbers in one file, sorted by shard. Those of shard k's own begin at offsets[2k],
    those of its halo at offsets[2k + 1]."""

    path: Path
    offsets: NDArray[np.int64]

    def of(self, k: int) -> Slice:
        begin, halo, end = self.offsets[2 * k : 2 * k + 3].tolist()
        return Slice(self.path, begin, halo, end, int(self.offsets[-1]))


class Slice(NamedTuple):
    """Rows begin … end − 1 of a run of n, up to `halo` the shard's own."""

    path: Path
    begin: int
    halo: int
    end: int
    n: int


def spill(path: Path, shared: Shared, n_shards: int) -> Run:
    rows, y, numbers, shard, halo = shared
    place = np.concatenate([2 * shard.astype(np.int64), 2 * halo[1] + 1])
    order = np.argsort(place, kind="stable")
    which = np.concatenate([np.arange(len(rows)), halo[0]])[order]
    with whole_or_nothing(path) as unfinished, open(unfinished, "wb") as file:
        for column in (rows, y.astype(np.float64, copy=False), numbers.astype(np.int64, copy=False)):
            column[which].tofile(file)
    return Run(path, np.searchsorted(place[order], np.arange(2 * n_shards + 1)))


def gather(slices: Sequence[Slice], d: int) -> tuple[NDArray[np.float32], Array, NDArray[np.int64]]:
    """Rows (in an array that an index takes over), targets and numbers of a shard."""
    n = sum(part.end - part.begin for part in slices)
    rows, y, numbers = Rows.allocate(n, d), np.empty(n), np.empty(n, np.int64)
    done = 0
    for part in slices:
        count = part.end - part.begin
        with open(part.path, "rb") as file:
            for column, start, width in ((rows, 0, 4 * d), (y, 4 * d * part.n, 8), (numbers, (4 * d + 8) * part.n, 8)):
                file.seek(start + width * part.begin)
                if file.readinto(column[done : done + count].reshape(-1).view(np.uint8).data) != width * count:
                    raise FileError(f"{part.path} ends too early. Was it changed while the model was being made?")
        done += count
    return rows, y, numbers


def _are_own(slices: Sequence[Slice]) -> NDArray[np.bool_]:
    """Whether each of the rows that `gather` gives is the shard's own."""
    counts = [count for part in slices for count in (part.halo - part.begin, part.end - part.halo)]
    return np.repeat(np.arange(len(counts)) % 2 == 0, counts)


class Made(NamedTuple):
    """A shard's file, and what the head says of it: n rows, of which `own` are no other's, and the box of those."""

    file: str
    n: int
    low: list[float]
    high: list[float]
    own: int
    region: list[list[float | None]] | None = None
    """Where the shard is at home, lowest and highest values, None where there is no end; only where there are halos."""
    depth: float = 0.0
    """Of its halo."""


def make_shard(
    folder: Path,
    slices: Sequence[Slice],
    k: int,
    d: int,
    index: str | NeighborIndex,
    n_neighbors: int,
    seed: int,
    n_jobs,
    regions: Regions | None = None,
) -> list[Made]:
    """Shard k, indexed and written; none if no row is its own."""
    rows, y, numbers = gather(slices, d)
    own = _are_own(slices)
    if not own.any():
        return []
    low, high = boxes_of(rows, own)
    probes = rows[np.linspace(0, len(y) - 1, min(len(y), _PROBES)).astype(np.int64)]
    spec: Any = make_index(index, len(y), d, n_neighbors)
    built = spec.build(rows, min(n_neighbors, len(y)), probes, n_jobs, seed + k)
    y, numbers = y[built.order], numbers[built.order]
    built.order = numbers.astype(np.int32) if numbers.max(initial=0) < 2**31 else numbers
    made = Made(f"shard-{k:05d}.gpnn", len(y), low.tolist(), high.tolist(), int(own.sum()))
    if regions is not None:
        ends = [[x if np.isfinite(x) else None for x in side[k].tolist()] for side in (regions.low, regions.high)]
        made = made._replace(region=ends, depth=float(regions.depth[k]))
    arrays: dict[str, NDArray] = {}
    content = {"gpnn": gpnn.__version__, "index": model_file.encode(built, "index", arrays)}
    container.write(folder / made.file, content, {**arrays, "y": y})
    return [made]


def open_shards(folder: Path, made: Sequence[Made], memory: int | None, verify: bool = False) -> tuple[Shards, Joined]:
    """The index and the targets, mapped. verify: checksums too, of each shard before its first answer."""
    parts, targets = [], []
    for shard in made:
        content, arrays = container.read(folder / shard.file, verify=False)
        try:
            part, y = model_file.decode(content["index"], arrays), arrays["y"]
            if not isinstance(part, StoredIndex) or (part._rows.n, part._rows.d) != (shard.n, len(shard.low)):
                raise ValueError("it is not the shard that the head tells of")
            if y.shape != (shard.n,) or y.dtype != np.float64:
                raise ValueError(f"{shard.n} rows, but targets {y.shape}")
        except container.MALFORMED as error:
            raise container.damaged(folder / shard.file, str(error)) from error
        parts.append(part)
        targets.append(y)
    low, high = (np.array([getattr(one, side) for one in made]) for side in ("low", "high"))
    shards = Shards(parts, low, high, memory, _regions(made), [one.own for one in made])
    shards.made, shards.folder = list(made), folder
    if verify:
        shards.check = Once(shards.files, container.verify)
    return shards, Joined(targets)


def _regions(made: Sequence[Made]) -> Regions | None:
    if any(one.region is None for one in made):
        return None
    low, high = (
        np.array([[end if x is None else x for x in one.region[side]] for one in made if one.region is not None], float)
        for side, end in enumerate((-np.inf, np.inf))
    )
    if low.shape != high.shape or low.shape != (len(made), len(made[0].low)):
        raise ValueError(f"regions of {low.shape} and {high.shape}")
    return Regions(low, high, np.array([one.depth for one in made], float))


def write_head(folder: Path, regressor, schema: dict | None, made: Sequence[Made], memory: int | None) -> None:
    beside = {"shards": {"memory": memory, "made": [one._asdict() for one in made]}}
    model_file.write_one(folder / HEAD, regressor, schema, beside)


def read(folder: Path, verify: bool = True) -> model_file.Stored:
    """What is in the folder, its shards mapped. verify: checksums of the head, and of shards when they are first asked:
    nothing is read that no query needs."""
    if not (folder / HEAD).is_file():
        raise FileError(
            f"{folder} is not a file, nor a folder that gpnn made: there is no {HEAD} in it. Check the name."
        )
    content, arrays = container.read(folder / HEAD, verify)
    try:
        made = [Made(**{"own": one["n"], **one}) for one in content["shards"]["made"]]
        if not made or any(Path(one.file).name != one.file for one in made):
            raise ValueError("its shards are not named as they should be")
        shards, y = open_shards(folder, made, content["shards"]["memory"], verify)
    except container.MALFORMED as error:
        raise container.damaged(folder / HEAD, f"it tells of no shards ({error})") from error
    return model_file.restored(folder, content, arrays, {"index_": shards, "_y": y})


def copy(path: Path, regressor, schema: dict | None) -> None:
    """A model whose shards are files already, in another folder: whole or not there."""
    shards: Shards = regressor.index_
    with whole_folder(path, HEAD) as folder:
        for file in shards.files:
            try:
                os.link(file, folder / file.name)
            except OSError:  # another disk
                shutil.copyfile(file, folder / file.name)
        write_head(folder, regressor, schema, shards.made, shards.memory)
