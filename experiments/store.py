"""Results as JSON lines: appended one at a time, on disk before the next begins, none lost, none counted twice.

A record is {"job": what was asked, "result": what came out, "made": where and when}. The job identifies it.
Several processes may append to one file: each appends under a lock, and drops a record whose job is there already.
"""

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpnn.errors import FileError
from gpnn.files.whole import full_disk_explained

RESULTS = Path(__file__).parent / "results"


class Store:
    def __init__(self, path: Path):
        self.path = path

    def records(self) -> list[dict]:
        """Every record, the oldest first; a line still being written, or broken off, is left out."""
        if not self.path.exists():
            return []
        return _parse(self.path.read_bytes(), self.path)[0]

    def __contains__(self, job: dict) -> bool:
        return _as_read(job) in (record["job"] for record in self.records())

    def append(self, record: dict) -> bool:
        """Write one record to disk; False if its job had one already, which is kept."""
        line = json.dumps(record, default=float).encode() + b"\n"
        with full_disk_explained(self.path.parent, "Every result written before is kept."):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked() as file:
                if _as_read(record["job"]) in (other["job"] for other in self._mend(file)):
                    return False
                end = os.lseek(file, 0, os.SEEK_END)
                try:
                    _write(file, line)
                    os.fsync(file)
                except OSError:
                    os.ftruncate(file, end)  # half a line would be cut off the next time; better now
                    raise
        return True

    @contextmanager
    def _locked(self) -> Iterator[int]:
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # released on close, also when this process is killed
            yield file
        finally:
            os.close(file)

    def _mend(self, file: int) -> list[dict]:
        """The records, after a line that a killed run left unfinished was cut off or, if all of it is there, ended."""
        text = self.path.read_bytes()
        records, whole = _parse(text, self.path)
        if whole < len(text):
            os.ftruncate(file, whole)
            print(f"{self.path.name}: an unfinished line ({len(text) - whole} bytes) was cut off", file=sys.stderr)
        elif text and not text.endswith(b"\n"):
            os.lseek(file, 0, os.SEEK_END)
            _write(file, b"\n")
        return records


def _parse(text: bytes, path: Path) -> tuple[list[dict], int]:
    """The records, and up to which byte they reach. Only the last line may be broken; any other is an error."""
    records, whole = [], 0
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            record["job"]
        except (ValueError, TypeError, KeyError) as error:
            if number == len(lines):
                break
            raise FileError(
                f"{path}, line {number} is not a result ({error}). Was it edited, or merged with a conflict? Mend or "
                "delete that line; the others are whole."
            ) from error
        records.append(record)
        whole += len(line)
    return records, whole


def _as_read(job: dict) -> dict:
    """As it comes back from a file: tuples are lists there."""
    return json.loads(json.dumps(job))


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
