"""Files that are either whole or not there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_or_nothing(path: str | Path) -> Iterator[Path]:
    """A temporary name beside `path` that becomes `path` when the block succeeds, and is removed when it fails.

    What was at `path` before stays until then, so a failure loses nothing.
    """
    path = Path(path)
    unfinished = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")  # writers look at the suffix
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
