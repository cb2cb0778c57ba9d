"""Where the file of a data set comes from: the data directory, then the cache, then a download into the cache."""

import os
import sys
import warnings
import zipfile
from pathlib import Path
from urllib.parse import unquote

from gpnn.common.errors import FileError, GPnnWarning, InvalidInputError
from gpnn.datasets.download import download, verify
from gpnn.datasets.registry import Dataset
from gpnn.files.whole import sha256


def data_directory() -> Path | None:
    """What GPNN_DATA_DIR names; else `../shared/data` beside a checkout of the repository, if it is there."""
    if named := os.environ.get("GPNN_DATA_DIR"):
        folder = Path(named).expanduser()
        if not folder.is_dir():
            raise InvalidInputError(f"GPNN_DATA_DIR = {named!r} is not a folder. Correct it, or unset it.")
        return folder
    root = Path(__file__).resolve().parents[3]
    beside = root.parent / "shared" / "data"
    return beside if (root / "pyproject.toml").exists() and beside.is_dir() else None


def cache_directory() -> Path:
    """What GPNN_CACHE_DIR names; else the platform's place for such files."""
    if named := os.environ.get("GPNN_CACHE_DIR"):
        return Path(named).expanduser()
    home = Path.home()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME", home / ".cache"))
    return base / "gpnn"


def find(dataset: Dataset) -> Path | None:
    """The file of a data set if this machine has it."""
    names = [dataset.parquet] + ([archive_name(dataset.url)] if dataset.url else [])
    folders = [folder for folder in (data_directory(), cache_directory()) if folder]
    return next((folder / name for folder in folders for name in names if (folder / name).is_file()), None)


def fetch(dataset: Dataset) -> Path:
    """The file of a data set, checked; downloaded if this machine does not have it."""
    path = find(dataset)
    if path is None and dataset.url is None:
        raise FileError(
            f"{dataset.name} is not on this machine and has no download. Make {dataset.parquet} from {dataset.page} "
            f"({dataset.preparation}) and put it into {data_directory() or cache_directory()}; or set GPNN_DATA_DIR to "
            "the folder that has it."
        )
    if path is None:
        assert dataset.url is not None
        return download(dataset.url, cache_directory() / archive_name(dataset.url), dataset.sha256, check_archive)
    if path.name == dataset.parquet:
        _compare_with_ours(path, dataset)
    else:
        verify(path, dataset.sha256)
    return path


def archive_name(url: str) -> str:
    return unquote(url.rsplit("/", 1)[-1])


def check_archive(path: Path) -> None:
    """Read all of a zip archive against the checks that it carries itself."""
    try:
        with zipfile.ZipFile(path) as archive:
            if (bad := archive.testzip()) is not None:
                raise zipfile.BadZipFile(f"{bad} in it is damaged")
    except (zipfile.BadZipFile, EOFError) as error:
        with open(path, "rb") as file:
            begins = file.read(40)
        raise FileError(f"it is not a whole zip archive ({error}; it begins with {begins!r}).") from error


def _compare_with_ours(path: Path, dataset: Dataset) -> None:
    """A Parquet file is the user's own and is used as it is, but not silently if it is not the one we tried."""
    if dataset.parquet_sha256 is not None and sha256(path) != dataset.parquet_sha256:
        warnings.warn(
            f"{path} is not the file that this package was tried with (its sha256 is not {dataset.parquet_sha256}). It "
            "is used as it is; results may differ from those in the documentation.",
            GPnnWarning,
            stacklevel=4,
        )
