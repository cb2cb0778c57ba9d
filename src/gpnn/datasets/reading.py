"""The raw table of a data set, from Parquet or from the original archive, as a pandas frame."""

from __future__ import annotations

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, cast

import numpy as np

from gpnn.common.errors import FileError, listed
from gpnn.common.extras import import_pandas
from gpnn.datasets.registry import Dataset

if TYPE_CHECKING:
    import pandas as pd


def read(dataset: Dataset, path: Path) -> pd.DataFrame:
    pd = import_pandas()
    try:
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else _read_archive(dataset, path)
        return dataset.tidy(frame, path) if dataset.tidy else frame
    except FileError:
        raise
    except (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError) as error:
        raise FileError(
            f"{path} cannot be read: {error}. It is truncated, damaged, or not what its name says. Compare its size "
            f"with that at {dataset.page}, move it away and load again."
        ) from error


def _read_archive(dataset: Dataset, path: Path) -> pd.DataFrame:
    pd = import_pandas()
    seen: list[str] = []
    frames = {}
    with open(path, "rb") as file:
        for name, stream in _members(file, path.name):
            seen.append(name)
            if fnmatch(name, dataset.member):
                frames[name] = _read_text(dataset, stream, name)
    if not frames:
        raise FileError(
            f"{path} holds no {dataset.member}, but: {listed(seen)}. Check that it is the file from {dataset.url}, "
            "move it away and load again."
        )
    if "*" not in dataset.member:
        return next(iter(frames.values()))
    together = pd.concat(frames.values(), ignore_index=True)
    return together.assign(source_file=np.repeat(list(frames), [len(frame) for frame in frames.values()]))


def _members(stream: IO[bytes], name: str) -> Iterator[tuple[str, IO[bytes]]]:
    """The files in an archive, by name without folders, in the order of their names; archives in it are opened too."""
    if name.endswith(".zip"):
        with zipfile.ZipFile(stream) as archive:
            for inner in sorted(archive.namelist()):
                with archive.open(inner) as member:
                    yield from _members(member, PurePosixPath(inner).name)
    elif name.endswith((".tar.gz", ".tgz")):
        with tarfile.open(fileobj=stream, mode="r:gz") as archive:
            for entry in archive:
                if entry.isfile() and (opened := archive.extractfile(entry)):
                    yield from _members(opened, PurePosixPath(entry.name).name)
    elif name.endswith(".gz"):
        with gzip.open(stream) as member:
            yield name.removesuffix(".gz"), cast(IO[bytes], member)
    else:
        yield name, stream


def _read_text(dataset: Dataset, stream: IO[bytes], name: str) -> pd.DataFrame:
    frame = import_pandas().read_csv(
        stream,
        sep=dataset.separator,
        header=None if dataset.columns else "infer",
        na_values=["?"],
        dtype=dataset.types,
    )
    if dataset.columns:
        if len(frame.columns) != len(dataset.columns):
            raise FileError(
                f"{name} has {len(frame.columns)} columns where {dataset.name} has {len(dataset.columns)}: "
                f"{listed(list(dataset.columns))}. Check that it is the right file, or move it away and load again."
            )
        frame.columns = list(dataset.columns)
    return frame.copy()  # columns one after the other in memory, not scattered
