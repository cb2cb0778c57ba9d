"""What workers do. Each function is one task of Dask's, and gives the same whenever and wherever it is run again."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from distributed import get_worker

from gpnn.common.errors import InvalidInputError
from gpnn.common.provenance import FitReport
from gpnn.common.types import Array
from gpnn.engines.cpu.neighbors.cuts import Cuts, Regions
from gpnn.files import shards
from gpnn.files.shards import Made, Run, Slice
from gpnn.files.whole import HEAD
from gpnn.regressor import GPnnRegressor
from gpnn.regressor.streaming import Learned, Sizes
from gpnn.stages.sampling import Drawn, draw

RUNS = "runs"


@dataclass(frozen=True)
class Head:
    """A regressor that has learned, and what the tasks after that go on with."""

    regressor: GPnnRegressor
    learned: Learned
    cuts: Cuts
    regions: Regions | None
    report: dict


def rows_of(X, y, number: int) -> tuple[Array, Array]:
    """A partition as finite numbers; its number is in what is said otherwise."""
    where = f"Partition {number}: "
    X, y = np.asarray(X), np.asarray(y)
    y = y.reshape(len(y), -1) if y.ndim != 1 else y[:, None]
    if X.ndim != 2 or y.shape[1] != 1:
        raise InvalidInputError(f"{where}X is of shape {X.shape} and y of {y.shape}. X is (n, d), and y (n,).")
    if len(X) != len(y):
        raise InvalidInputError(
            f"{where}X has {len(X):,} rows, and y {len(y):,}. Cut both in the same places: repartition or rechunk one "
            "like the other."
        )
    return finite(X, where + "X"), finite(y, where + "y")[:, 0]


def finite(values, name: str) -> Array:
    try:
        values = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} holds what is no number ({error}). Encode it first.") from error
    if not np.isfinite(values).all():
        rows = int((~np.isfinite(values)).any(axis=1).sum())
        raise InvalidInputError(
            f"{name} has NaN or infinity in {rows:,} of its {len(values):,} rows. Drop or fill them."
        )
    return values


def count(X, y, number: int) -> tuple[int, int, str]:
    """Rows and columns of a partition, which is looked through; and what is wrong with it, if anything is."""
    try:
        X, y = rows_of(X, y, number)
    except InvalidInputError as error:  # of several, the first partition's is raised, whichever worker is first
        return 0, 0, str(error)
    return len(X), X.shape[1], ""


def sample(X, y, number: int, first: int, seed: int, highest: float) -> Drawn:
    return draw(*rows_of(X, y, number), first, seed, highest)


def learn(
    regressor: GPnnRegressor,
    parts: Sequence[Drawn],
    size: int,
    n: int,
    n_shards: int,
    halo: float,
    names,
    threads: dict[str, int],
) -> Head:
    regressor.set_params(n_jobs=_threads(threads))
    report = FitReport(jitter=0.0, engine=f"dask, {sum(threads.values())} threads")
    learned = regressor._learn_from(Drawn.joined(list(parts)).fewest(size), n, report, names)
    cuts, regions = regressor._cuts(learned, n_shards, n, halo)
    for name in ("index_", "_y"):  # of the sample
        regressor.__dict__.pop(name, None)
    return Head(regressor, learned, cuts, regions, dict(report))


def router(head: Head) -> Head:
    """All that sharing out needs."""
    nobody = head.learned.judges[:0]
    return replace(head, learned=replace(head.learned, judges=nobody, sample=nobody), report={})


def share_out(X, y, number: int, first: int, head: Head, folder: str) -> Run:
    check_room(len(X) * Sizes.bytes_shared_out(np.shape(X)[1]), f"Partition {number}, with {len(X):,} rows,")
    model = head.regressor.set_params(n_jobs=1)
    shared = model._shared_out(*rows_of(X, y, number), first, head.learned, head.cuts, head.regions)
    return shards.spill(Path(folder) / RUNS / f"run-{number:06d}", shared, head.cuts.n_shards)


def index(folder: str, slices: Sequence[Slice], k: int, d: int, head: Head) -> list[Made]:
    n = sum(part.end - part.begin for part in slices)
    check_room(n * (4 * d + shards.BYTES_BESIDE), f"Shard {k}, with {n:,} rows,")
    model = head.regressor
    settings = model._n_used(d), model.index, model.n_neighbors_, head.learned.seed, 1, head.regions
    return shards.make_shard(Path(folder), slices, k, *settings)


def finish(head: Head, made: Sequence[list[Made]], folder: str, memory: int, threads: dict[str, int]) -> dict:
    """Judges calibrate what the shards answer; then the head is written, and the model is there."""
    model = head.regressor.set_params(n_jobs=_threads(threads))
    report = FitReport()
    report |= head.report
    there = [one for some in made for one in some]
    model._hold_shards(*shards.open_shards(Path(folder), there, memory), head.learned, report)
    model.set_params(n_jobs=None)
    shards.write_head(Path(folder), model, None, there, memory)
    return model.fit_report_


def check_room(needed: int, what: str) -> None:
    """Raise where this worker would run out of memory, which Dask would end it for; partitions that it keeps can go."""
    worker: Any = get_worker()
    limit = worker.memory_manager.memory_limit
    kept = getattr(getattr(worker.data, "fast", None), "total_weight", 0)
    free = (limit or math.inf) - max(0, psutil.Process().memory_info().rss - kept)
    if needed > free:
        raise InvalidInputError(
            f"{what} needs {needed / 2**20:,.0f} MiB, and worker {worker.address} has {max(0, free) / 2**20:,.0f} left "
            f"of its {limit / 2**20:,.0f}. Start workers with a larger memory_limit or fewer threads, or cut the rows "
            "into more partitions and shards (n_shards)."
        )


def _threads(threads: dict[str, int]) -> int:
    """Of all workers on this one's machine: nothing else goes on meanwhile."""
    return threads.get(host(get_worker().address), 1)


def host(address: str) -> str:
    return address.rpartition(":")[0]


# --- predictions ------------------------------------------------------------------------------------------------------


def answers(X, folder: str, engine: Any, kind: str, asked, number: int = -1) -> Array:
    """Columns of what was asked for (n, k)."""
    if len(X) == 0:
        return np.zeros((0, width(kind, asked)))
    model = loaded(folder, engine)
    rows = finite(X, "X" if number < 0 else f"Partition {number}: X")
    if kind == "kneighbors":
        found = model.kneighbors(_named(model, rows))
        return np.hstack([found.indices, found.distances])
    law = model.predict_distribution(_named(model, rows))
    if kind == "quantiles":
        return model._quantiles(law, asked)
    support = np.full(len(rows), np.nan) if law.support is None else law.support
    return np.column_stack([law.mean, law.variance, support])


def width(kind: str, asked) -> int:
    """Of `answers`. asked: the orders of quantiles, or how many neighbours."""
    return 3 if kind == "law" else len(asked) if kind == "quantiles" else 2 * asked


def scores(X, y, folder: str, engine: Any, units: str, number: int) -> tuple[int, dict[str, float]]:
    X, y = rows_of(X, y, number)
    if len(y) == 0:
        return 0, {}
    model = loaded(folder, engine)
    return len(y), model._scores(y, model.predict_distribution(_named(model, X)), units)


def loaded(folder: str, engine: Any = "cpu") -> GPnnRegressor:
    """The model as it is there now, mapped once in each process; what its engine keeps on a device stays there."""
    return _loaded(folder, stamp(folder)).set_params(engine=engine)


def stamp(folder: str) -> int:
    return os.stat(Path(folder) / HEAD).st_mtime_ns


@lru_cache(maxsize=4)
def _loaded(folder: str, stamp: int) -> GPnnRegressor:
    return GPnnRegressor.load(folder).set_params(n_jobs=1)


def _named(model: GPnnRegressor, X: Array):
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return X
    import pandas as pd

    return pd.DataFrame(X, columns=names, copy=False)
