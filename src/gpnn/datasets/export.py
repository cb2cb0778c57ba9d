"""A prepared data set as a file of the user's choice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpnn.files.whole import check_folder, whole_or_nothing

if TYPE_CHECKING:
    import pandas as pd


def _npz(X: pd.DataFrame, y: pd.Series, path: Path) -> None:
    with open(path, "wb") as file:  # given a name, numpy would change its ending
        np.savez(file, X=np.array(X, dtype=float), y=np.array(y, dtype=float), columns=np.array(X.columns, dtype=str))


_WRITERS: dict[str, Callable[[pd.DataFrame, pd.Series, Path], None]] = {
    ".parquet": lambda X, y, path: X.assign(**{y.name: y}).to_parquet(path, index=False),
    ".csv": lambda X, y, path: X.assign(**{y.name: y}).to_csv(path, index=False),
    ".npz": _npz,
}


def check_export(path: Path) -> None:
    check_folder(path, _WRITERS)


def export(X: pd.DataFrame, y: pd.Series, path: Path) -> None:
    """Write inputs and, as the last column, the target; in .npz as arrays X, y and columns."""
    check_export(path)
    with whole_or_nothing(path) as unfinished:
        _WRITERS[path.suffix](X, y, unfinished)
