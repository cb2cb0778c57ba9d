"""The paper's data sets, prepared as its appendix says, stand-ins for those that cannot be had, and synthetic ones."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

import numpy as np
from numpy.typing import NDArray

from gpnn.common.errors import FileError, GPnnWarning, InvalidInputError
from gpnn.common.extras import import_pandas
from gpnn.datasets import registry
from gpnn.datasets.reading import read
from gpnn.datasets.registry import Dataset
from gpnn.datasets.sources import fetch
from gpnn.datasets.synthetic import oakley_ohagan, oakley_ohagan_parquet

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Dataset", "info", "load", "load_raw", "names", "oakley_ohagan", "oakley_ohagan_parquet", "path"]


def names(kind: str | None = None) -> list[str]:
    """All names, or those of one kind: "paper" (its seven), "stand-in" or "left out"."""
    if kind not in (None, *registry.KINDS):
        raise InvalidInputError(f"kind = {kind!r} is unknown. Choose one of: {', '.join(registry.KINDS)}.")
    return [name for name, dataset in registry.REGISTRY.items() if kind in (None, dataset.kind)]


def info(name: str) -> Dataset:
    """What is known of a data set: size, preparation, source, licence, citation."""
    return registry.get(name)


def path(name: str) -> Path:
    """The file of a data set as published; downloaded if this machine does not have it."""
    return fetch(info(name))


@overload
def load(name: str, *, as_frame: Literal[False] = False) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
@overload
def load(name: str, *, as_frame: Literal[True]) -> tuple[pd.DataFrame, pd.Series]: ...
def load(name: str, *, as_frame: bool = False):
    """Inputs X (n, d) and target y (n,), prepared as the paper did: float64 arrays, or a pandas frame and a series."""
    dataset = info(name)
    if dataset.prepare is None:
        raise InvalidInputError(
            f"{name} has no recipe. {dataset.preparation} load_raw({name!r}) gives the table as it is."
        )
    source, raw = _read(dataset)
    try:
        X, y = dataset.prepare(raw)
        if X.shape[1] != dataset.d:
            raise FileError(
                f"{X.shape[1]} inputs were found, and {name} has {dataset.d}: columns are missing, or there are too "
                f"many. Compare the file with {dataset.page}."
            )
    except FileError as error:
        raise FileError(f"{source}: {error}") from error
    if abs(len(X) - dataset.n) > 1e-5 * dataset.n:  # House Electric has two rows more in our Parquet file than at UCI
        warnings.warn(
            f"{source} gives {len(X):,} rows, and {name} should have {dataset.n:,}. They are used as they are.",
            GPnnWarning,
            stacklevel=2,
        )
    if as_frame:
        return X.reset_index(drop=True), y.reset_index(drop=True)
    return np.array(X, dtype=np.float64, order="C"), np.array(y, dtype=np.float64)


def load_raw(name: str) -> pd.DataFrame:
    """The table as published, every column, nothing dropped or changed."""
    return _read(info(name))[1]


def _read(dataset: Dataset) -> tuple[Path, pd.DataFrame]:
    import_pandas()  # before a long download, not after it
    source = fetch(dataset)
    return source, read(dataset, source)
