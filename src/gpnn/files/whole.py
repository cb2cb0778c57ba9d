"""Files that are either whole or not there."""

import errno
import hashlib
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpnn.common.errors import FileError, InvalidInputError

HEAD = "model.gpnn"
"""In the folder of a model whose rows are in shards: all but the rows."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


def head_of(path: Path) -> Path:
    """The file that says what a model is: itself, or one in its folder."""
    return path / HEAD if path.is_dir() else path


@contextmanager
def whole_or_nothing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` that becomes `path` when the block succeeds, and is removed when it fails.

    What was at `path` before stays until then, so a failure loses nothing.
    """
    unfinished = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")  # some writers look at the ending
    try:
        with full_disk_explained(path.parent):
            yield unfinished
            os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path, mark: str) -> Iterator[Path]:
    """A hidden folder beside `path` that takes its place when the block succeeds, and is removed when it fails.

    What a killed process left of an earlier attempt is removed first. What was at `path` stays until the end. mark: a
    file that folders of this kind have, so that no other is ever replaced.
    """
    check_place(path, mark)
    for left in path.parent.glob(f".{path.name}.*.part"):
        if not _is_running(left.suffixes[-2]):
            shutil.rmtree(left, ignore_errors=True)
    unfinished, before = (path.with_name(f".{path.name}.{os.getpid()}.{end}") for end in ("part", "before"))
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        with full_disk_explained(path.parent):
            unfinished.mkdir()
        yield unfinished  # what writes there explains its own errors
        with full_disk_explained(path.parent):
            if path.exists():
                os.replace(path, before)
            os.replace(unfinished, path)
    finally:
        for left in (unfinished, before):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)


def _is_running(process: str) -> bool:
    """Whether there is, or may be, a process of that number, said as ".123"."""
    if os.name == "nt":  # where to ask is to interrupt
        return True
    try:
        os.kill(int(process.removeprefix(".")), 0)
    except (ValueError, ProcessLookupError):
        return False
    except OSError:  # somebody else's
        return True
    return True


def check_folder(path: Path, endings: Collection[str] = ()) -> None:
    """Whether a file can be made there, before the work and not after it."""
    if endings and path.suffix.lower() not in endings:
        raise InvalidInputError(f"{path}: the ending must be one of {', '.join(endings)}.")
    if not path.parent.is_dir():
        raise InvalidInputError(f"There is no folder {path.parent} for {path.name}. Make it first.")
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder. Give the name of a file.")


def check_place(path: Path, mark: str) -> None:
    """Whether a folder that holds the file `mark` can be made there, in place of one like it at most."""
    if not path.parent.is_dir():
        raise InvalidInputError(f"There is no folder {path.parent} for {path.name}. Make it first.")
    if path.is_dir() and not (path / mark).is_file():
        raise InvalidInputError(f"{path} is a folder of something else, and stays. Give another name.")


@contextmanager
def full_disk_explained(folder: Path, kept: str = "Nothing that was there before has changed.") -> Iterator[None]:
    """Errors of writing into `folder` said in words."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise FileError(
                f"The disk is full: {free_bytes(folder):,} bytes are free for {folder}. {kept} Free some space, or "
                "choose another folder (GPNN_CACHE_DIR moves the cache), and do the same again."
            ) from error
        raise FileError(f"Cannot write into {folder}: {error}. Check that the folder exists and is yours.") from error


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.exists())).free


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
