"""A prepared data set as a file of the user's choice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpnn._files import whole_or_nothing
from gpnn.errors import InvalidInputError

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
    """Before the work, not after it."""
    if path.suffix not in _WRITERS:
        raise InvalidInputError(f"{path}: the ending must be one of {', '.join(_WRITERS)}.")
    if not path.parent.is_dir():
        raise InvalidInputError(f"{path}: the folder {path.parent} does not exist. Make it first.")


def export(X: pd.DataFrame, y: pd.Series, path: Path) -> None:
    """Write inputs and, as the last column, the target; in .npz as arrays X, y and columns."""
    check_export(path)
    with whole_or_nothing(path) as unfinished:
        _WRITERS[path.suffix](X, y, unfinished)
