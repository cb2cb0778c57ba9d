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
from gpnn.engines.cpu.neighbors.shards import Joined, Shards, boxes_of
from gpnn.files import container
from gpnn.files import model as model_file
from gpnn.files.whole import HEAD, whole_folder, whole_or_nothing

_PROBES = 1000  # on which an index tunes itself
BYTES_BESIDE = 40
"""Of a row while its shard is made, beside its columns: number, target, and both once more in the index's order."""


class Run(NamedTuple):
    """Rows, whitened targets and numbers in one file, sorted by shard; shard k has offsets[k] … offsets[k + 1] − 1."""

    path: Path
    offsets: NDArray[np.int64]

    def of(self, k: int) -> Slice:
        return Slice(self.path, int(self.offsets[k]), int(self.offsets[k + 1]), int(self.offsets[-1]))


class Slice(NamedTuple):
    """Rows begin … end − 1 of a run of n."""

    path: Path
    begin: int
    end: int
    n: int


def spill(path: Path, rows: NDArray[np.float32], y: Array, numbers: NDArray, shard: NDArray, n_shards: int) -> Run:
    order = np.argsort(shard, kind="stable")
    with whole_or_nothing(path) as unfinished, open(unfinished, "wb") as file:
        for column in (rows, y.astype(np.float64, copy=False), numbers.astype(np.int64, copy=False)):
            column[order].tofile(file)
    return Run(path, np.searchsorted(shard[order], np.arange(n_shards + 1)))


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


class Made(NamedTuple):
    """A shard's file, and what the head says of it."""

    file: str
    n: int
    low: list[float]
    high: list[float]


def make_shard(
    folder: Path,
    slices: Sequence[Slice],
    k: int,
    d: int,
    index: str | NeighborIndex,
    n_neighbors: int,
    seed: int,
    n_jobs,
) -> list[Made]:
    """Shard k, indexed and written; none if no row belongs to it."""
    rows, y, numbers = gather(slices, d)
    if len(y) == 0:
        return []
    low, high = boxes_of(rows)
    probes = rows[np.linspace(0, len(y) - 1, min(len(y), _PROBES)).astype(np.int64)]
    spec: Any = make_index(index, len(y), d, n_neighbors)
    built = spec.build(rows, min(n_neighbors, len(y)), probes, n_jobs, seed + k)
    y, numbers = y[built.order], numbers[built.order]
    built.order = numbers.astype(np.int32) if numbers.max(initial=0) < 2**31 else numbers
    made = Made(f"shard-{k:05d}.gpnn", len(y), low.tolist(), high.tolist())
    arrays: dict[str, NDArray] = {}
    content = {"gpnn": gpnn.__version__, "index": model_file.encode(built, "index", arrays)}
    container.write(folder / made.file, content, {**arrays, "y": y})
    return [made]


def open_shards(folder: Path, made: Sequence[Made], memory: int | None, verify: bool = False) -> tuple[Shards, Joined]:
    """The index and the targets, mapped."""
    parts, targets = [], []
    for shard in made:
        content, arrays = container.read(folder / shard.file, verify)
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
    shards = Shards(parts, np.array([one.low for one in made]), np.array([one.high for one in made]), memory)
    shards.files = [folder / one.file for one in made]
    return shards, Joined(targets)


def write_head(folder: Path, regressor, schema: dict | None, made: Sequence[Made], memory: int | None) -> None:
    beside = {"shards": {"memory": memory, "made": [one._asdict() for one in made]}}
    model_file.write_one(folder / HEAD, regressor, schema, beside)


def read(folder: Path, verify: bool = True) -> model_file.Stored:
    """What is in the folder, its shards mapped. verify: checksums of the head; those of shards would read all rows."""
    if not (folder / HEAD).is_file():
        raise FileError(
            f"{folder} is not a file, nor a folder that gpnn made: there is no {HEAD} in it. Check the name."
        )
    content, arrays = container.read(folder / HEAD, verify)
    try:
        made = [Made(str(one["file"]), *(one[name] for name in Made._fields[1:])) for one in content["shards"]["made"]]
        if not made or any(Path(one.file).name != one.file for one in made):
            raise ValueError("its shards are not named as they should be")
        shards, y = open_shards(folder, made, content["shards"]["memory"])
    except container.MALFORMED as error:
        raise container.damaged(folder / HEAD, f"it tells of no shards ({error})") from error
    return model_file.restored(folder, content, arrays, {"index_": shards, "_y": y})


def copy(path: Path, regressor, schema: dict | None) -> None:
    """A model whose shards are files already, in another folder: whole or not there."""
    shards: Shards = regressor.index_
    boxes = zip(shards.parts, shards.low, shards.high, strict=True)
    made = [
        Made(file.name, len(part.order), low.tolist(), high.tolist())
        for file, (part, low, high) in zip(shards.files, boxes, strict=True)
    ]
    with whole_folder(path, HEAD) as folder:
        for file in shards.files:
            try:
                os.link(file, folder / file.name)
            except OSError:  # another disk
                shutil.copyfile(file, folder / file.name)
        write_head(folder, regressor, schema, made, shards.memory)
