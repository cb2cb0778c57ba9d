"""Dask collections as partitions, and answers as collections like them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
from dask.delayed import Delayed

from gpnn.common.errors import InvalidInputError, listed
from gpnn.common.types import Array


def is_frame(X) -> bool:
    return isinstance(X, dd.DataFrame)


def opened(X):
    """A path of Parquet files, read lazily; else X."""
    return dd.read_parquet(X) if isinstance(X, str) else X


def _parted(frame, target: str) -> tuple[list[Delayed], list[Delayed]]:
    """A frame's partitions without the column to learn, and that column's: not read twice, nor cut in two ways."""
    if target not in frame.columns:
        raise InvalidInputError(
            f"There is no column {target!r} to learn. There are: {listed(list(map(str, frame.columns)))}."
        )
    parts: list[Any] = partitions(frame)
    return [part.drop(columns=[target]) for part in parts], [part[target] for part in parts]


def check_collection(X, name: str = "X") -> None:
    if not isinstance(X, da.Array | dd.DataFrame | dd.Series):
        raise InvalidInputError(
            f"{name} is a {type(X).__name__}, not a dask array or data frame. What is in memory goes to GPnnRegressor, "
            "or through dask.array.from_array; a fitted model answers it after to_local()."
        )


def partitions(collection) -> list[Delayed]:
    """One after the other, each with all columns."""
    if isinstance(collection, da.Array) and collection.ndim == 2:
        collection = collection.rechunk({1: -1})
    return list(np.ravel(collection.to_delayed()))


def aligned(X, y) -> tuple[list[Delayed], list[Delayed]]:
    """Partitions of both, as many of one as of the other. y may be the name of a column of X."""
    check_collection(X)
    if is_frame(X) and isinstance(y, str):
        return _parted(X, y)
    check_collection(y, "y")
    both_arrays = isinstance(X, da.Array) and isinstance(y, da.Array)
    if both_arrays and X.chunks[0] != y.chunks[0] and not np.isnan([*X.chunks[0], *y.chunks[0]]).any():
        if X.shape[0] != y.shape[0]:
            raise InvalidInputError(f"X has {X.shape[0]:,} rows, and y {y.shape[0]:,}.")
        y = y.rechunk({0: X.chunks[0]})
    parts = partitions(X), partitions(y)
    if len(parts[0]) != len(parts[1]):
        raise InvalidInputError(
            f"X has {len(parts[0])} partitions, and y {len(parts[1])}. Cut both in the same places: repartition or "
            "rechunk one like the other."
        )
    return parts


def names_of(X, y) -> list[str] | None:
    return [str(name) for name in X.columns if not isinstance(y, str) or name != y] if is_frame(X) else None


def answered(X, answer: Callable[..., Array], width: int, name: str) -> list[Any]:
    """Lazily, for each partition of X, columns of answer(rows, number) (n, width): one collection each."""
    check_collection(X)
    if is_frame(X):
        import pandas as pd

        def frame(part, partition_info=None):
            number = -1 if partition_info is None else partition_info["number"]
            return pd.DataFrame(answer(part, number=number), index=part.index)

        meta = pd.DataFrame(np.zeros((0, width)), index=X._meta.index)
        found = X.map_partitions(frame, meta=meta)
        return [found[k] for k in range(width)]

    def block(part, block_info=None):
        at = -1 if not block_info else block_info[0]["chunk-location"][0]
        return answer(part, number=at)

    X = X.rechunk({1: -1})
    found = X.map_blocks(block, dtype=float, chunks=(X.chunks[0], (width,)), name=name, meta=np.zeros((0, width)))
    return [found[:, k] for k in range(width)]


def matrix(columns: Sequence[Any], names: Sequence[Any]):
    """Columns as one collection again."""
    if isinstance(columns[0], da.Array):
        return da.stack(columns, axis=1)
    return dd.concat(list(columns), axis=1, ignore_unknown_divisions=True).rename(columns=dict(enumerate(names)))
