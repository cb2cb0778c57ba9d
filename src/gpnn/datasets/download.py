"""One file over HTTP: resumed where it broke off, checked, and put in its place only when it is whole.

While it comes in, the file is called `….part`; `….part.version` holds what the server calls this version of it (ETag
or Last-Modified), so that a resumed file is never sewn together from two versions. Where the registry knows no
checksum, that of the first download is kept as `….sha256`, and every later one must agree: trust on first use.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from gpnn.common.errors import FileError
from gpnn.engines.parallel import progress_bar
from gpnn.files.whole import full_disk_explained, sha256, whole_or_nothing

try:
    import fcntl
except ImportError:  # Windows: two processes that download the same file at once are not kept apart
    fcntl = None  # type: ignore[assignment]

_CHUNK = 2**18
_TIMEOUT = 60.0
_WORTH_ANOTHER_TRY = (408, 416, 425, 429)  # and all of 5xx


class _BrokenOffError(Exception):
    """The connection ended before the file did."""


def download(
    url: str,
    path: Path,
    checksum: str | None,
    check: Callable[[Path], None],
    attempts: int = 4,
    pause: float = 0.5,
) -> Path:
    """Fetch `url` to `path`. `check` must raise FileError on a file that is not what it should be."""
    part = _beside(path, ".part")
    with full_disk_explained(path.parent, kept=f"What has arrived stays in {part} and will be continued."):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _one_process_at_a_time(path):
            if not path.exists():  # another process may have been faster
                _transfer_with_retries(url, part, attempts, pause)
                _accept(part, path, url, checksum, check)
    return path


def verify(path: Path, checksum: str | None) -> None:
    """Compare a file that lies at its place with its checksum, known or kept; without either, accept it."""
    expected = checksum or _kept_checksum(path)
    if expected is not None and (found := sha256(path)) != expected:
        raise FileError(
            f"{path} is not the file it should be: its sha256 is {found}, expected is {expected}. It was changed or "
            "damaged on this machine. Move it away and load again to download it anew."
        )


def _transfer_with_retries(url: str, part: Path, attempts: int, pause: float) -> None:
    for attempt in range(1, attempts + 1):
        try:
            return _transfer(url, part)
        except (HTTPException, URLError, ConnectionError, TimeoutError, _BrokenOffError) as error:
            hopeless = isinstance(error, HTTPError) and error.code < 500 and error.code not in _WORTH_ANOTHER_TRY
            if hopeless or attempt == attempts:
                arrived = part.stat().st_size if part.exists() else 0
                raise FileError(
                    f"Cannot download {url}: {error or type(error).__name__} ({attempt} attempts, {arrived:,} bytes "
                    "so far). Check the connection and do the same again; or fetch the file on another machine and put "
                    f"it at {part.with_suffix('')}."
                ) from error
        time.sleep(pause * 2 ** (attempt - 1))


def _transfer(url: str, part: Path) -> None:
    """One request that begins `part` or continues it."""
    version = _beside(part, ".version")
    begun = part.stat().st_size if part.exists() and version.exists() else 0
    headers = {"User-Agent": "gpnn", "Accept-Encoding": "identity"}
    if begun:
        headers |= {"Range": f"bytes={begun}-", "If-Range": version.read_text()}
    try:
        response = urlopen(Request(url, headers=headers), timeout=_TIMEOUT)
    except HTTPError as error:
        if error.code == 416:
            if error.headers.get("Content-Range") == f"bytes */{begun}":
                return  # nothing is left to fetch
            version.unlink(missing_ok=True)  # the next attempt starts from the beginning
        raise
    with response:
        if response.status == 206 and not response.headers.get("Content-Range", "").startswith(f"bytes {begun}-"):
            version.unlink(missing_ok=True)
            raise _BrokenOffError("the server continued at another place than asked for")
        if response.status != 206:
            begun = 0
            part.write_bytes(b"")
            _keep_version(version, response.headers)
        length = response.headers.get("Content-Length")
        total = begun + int(length) if length is not None else None
        with open(part, "ab") as file, progress_bar(total, part.stem, "B", begun) as bar:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
            file.flush()
            os.fsync(file.fileno())
        if total is not None and part.stat().st_size != total:
            raise _BrokenOffError(f"the connection ended after {part.stat().st_size:,} of {total:,} bytes")


def _keep_version(version: Path, headers) -> None:
    tag = headers.get("ETag")
    name = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")
    if name:
        version.write_text(name)
    else:
        version.unlink(missing_ok=True)


def _accept(part: Path, path: Path, url: str, checksum: str | None, check: Callable[[Path], None]) -> None:
    """Give a finished download its name, or put it aside under another one."""
    _beside(part, ".version").unlink(missing_ok=True)
    rejected = _beside(path, ".rejected")
    found, kept = sha256(part), _kept_checksum(path)
    expected = checksum or kept
    try:
        if expected is not None and found != expected:
            cure = f" If the file was renewed there, delete {_beside(path, '.sha256')}." if not checksum else ""
            raise FileError(f"its sha256 is {found}, expected is {expected}.{cure}")
        check(part)
    except FileError as error:
        os.replace(part, rejected)
        raise FileError(
            f"What came from {url} is not used: {error} It was put aside as {rejected}; look at it, then load again."
        ) from error
    if expected is None:
        with whole_or_nothing(_beside(path, ".sha256")) as unfinished:
            unfinished.write_text(found + "\n")
    os.replace(part, path)


def _kept_checksum(path: Path) -> str | None:
    kept = _beside(path, ".sha256")
    return kept.read_text().strip() if kept.exists() else None


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


@contextmanager
def _one_process_at_a_time(path: Path) -> Iterator[None]:
    with open(_beside(path, ".lock"), "w") as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
