"""One file over HTTP, by pooch: under another name until it is whole and checked.

Where the registry knows no checksum, that of the first download is kept as `….sha256`, and every later one must agree:
trust on first use. A download that broke off begins anew: the largest archive is of 200 MB.
"""

from collections.abc import Callable
from pathlib import Path

from gpnn.common.errors import FileError
from gpnn.common.extras import import_pooch
from gpnn.engines.parallel import progress_bar
from gpnn.files.whole import full_disk_explained, sha256, whole_or_nothing


def download(url: str, path: Path, checksum: str | None, check: Callable[[Path], None], retries: int = 2) -> Path:
    """Fetch `url` to `path`. `check` must raise FileError on a file that is not what it should be."""
    pooch = import_pooch()
    from requests import RequestException  # by which pooch fetches

    pooch.get_logger().setLevel("WARNING")  # progress is shown by our own bar
    expected = checksum or _kept_checksum(path)

    def transfer(url: str, unfinished: str, _) -> None:
        with progress_bar(1, path.name, "B") as bar:  # pooch learns and sets the total
            pooch.HTTPDownloader(progressbar=bar, chunk_size=2**18)(url, unfinished, None)
        check(Path(unfinished))

    name = path.name
    store = pooch.create(path.parent, "", registry={name: expected}, urls={name: url}, retry_if_failed=retries)
    with full_disk_explained(path.parent):
        try:
            store.fetch(name, downloader=transfer)
        except ValueError as error:  # the checksum
            cure = (
                f"If the file was renewed there, delete {_place_of_checksum(path)}." if not checksum else "Try again."
            )
            raise FileError(f"What came from {url} is not used: {error} {cure}") from error
        except RequestException as error:
            raise FileError(
                f"Cannot download {url}: {error}. Check the connection and do the same again; or fetch the file on "
                f"another machine and put it at {path}."
            ) from error
        except FileError as error:
            raise FileError(
                f"What came from {url} is not used: {error} Look at that address, then try again."
            ) from error
    if expected is None:
        with whole_or_nothing(_place_of_checksum(path)) as unfinished:
            unfinished.write_text(sha256(path) + "\n")
    return path


def verify(path: Path, checksum: str | None) -> None:
    """Compare a file that lies at its place with its checksum, known or kept; without either, accept it."""
    expected = checksum or _kept_checksum(path)
    if expected is not None and (found := sha256(path)) != expected:
        raise FileError(
            f"{path} is not the file it should be: its sha256 is {found}, expected is {expected}. It was changed or "
            "damaged on this machine. Move it away and load again to download it anew."
        )


def _kept_checksum(path: Path) -> str | None:
    kept = _place_of_checksum(path)
    return kept.read_text().strip() if kept.exists() else None


def _place_of_checksum(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")
