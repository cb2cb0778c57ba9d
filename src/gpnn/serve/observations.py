"""What happened, beside what was predicted: a log that only grows (SQLite), and whether the predictions still hold."""

from __future__ import annotations

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from gpnn.common.errors import FileError
from gpnn.common.provenance import now
from gpnn.common.reliability import sampling_error
from gpnn.common.types import Array
from gpnn.serve.refusals import RefusalError

WINDOW = 1000
"""Outcomes that the alarm looks at: the latest."""

_FEWEST = 30  # outcomes, for an alarm
_DEVIATIONS = 3.29  # 99.9 %: the interval is looked at again and again
_SHOWN, _POINTS = 50_000, 40  # outcomes on the chart, and its points
_BUSY_SECONDS = 2.0

_TABLE = """CREATE TABLE IF NOT EXISTS observations (
    id INTEGER PRIMARY KEY, time TEXT NOT NULL, model TEXT NOT NULL, version TEXT NOT NULL,
    mean REAL NOT NULL, sd REAL NOT NULL, lower REAL NOT NULL, upper REAL NOT NULL, y REAL NOT NULL,
    inputs TEXT NOT NULL)"""
_INDEX = "CREATE INDEX IF NOT EXISTS of_a_model ON observations (model, version, id)"
_INSERT = """INSERT INTO observations (time, model, version, mean, sd, lower, upper, y, inputs)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_LATEST = """SELECT time, mean, sd, lower, upper, y FROM observations WHERE model = ? AND version = ?
    ORDER BY id DESC LIMIT ?"""


@dataclass(frozen=True)
class Health:
    """Of the latest outcomes of one model."""

    n: int
    coverage: float | None = None
    """Share inside their 90 % intervals."""
    coverage_interval: tuple[float, float] | None = None
    mean_z2: float | None = None
    mean_z2_interval: tuple[float, float] | None = None
    """Where these two should lie, by chance alone, with probability 99.9 %."""
    alarm: bool = False


class Log:
    """One file, one thread that talks to it. A file that cannot be written fails its own requests and no others."""

    def __init__(self, path: Path):
        self.path = path
        self.thread = ThreadPoolExecutor(1, "log")
        self._connection: sqlite3.Connection | None = None

    def append(self, model: str, version: str, answers: dict[str, Array], y: Array, inputs: list[dict]) -> None:
        """All of these rows, or a refusal and none of them. To be called in `thread`, as are the others."""
        moment = now()
        columns = [answers[name].tolist() for name in ("mean", "sd", "lower", "upper")]
        texts = [json.dumps(row, ensure_ascii=False) for row in inputs]
        rows = [(moment, model, version, *row) for row in zip(*columns, y.tolist(), texts, strict=True)]
        try:
            with self._opened() as connection:  # commits, or takes all back
                connection.executemany(_INSERT, rows)
        except (sqlite3.Error, OSError) as error:
            raise self._unusable(error) from error

    def total(self) -> int:
        with self._opened() as connection:
            return connection.execute("SELECT COALESCE(MAX(id), 0) FROM observations").fetchone()[0]

    def health(self, model: str, version: str, spread_of_z2: float) -> Health:
        """`spread_of_z2`: standard deviation of z² under the model's own law of errors."""
        found = self._latest(model, version, WINDOW)
        return Health(0) if not len(found) else _health(found, spread_of_z2)

    def history(self, model: str, version: str, spread_of_z2: float) -> list[dict]:
        """The same over time: consecutive parts of the log, the oldest first."""
        found = self._latest(model, version, _SHOWN)[::-1]
        n_parts = min(_POINTS, max(1, len(found) // _FEWEST))
        parts = [part for part in np.array_split(np.arange(len(found)), n_parts) if len(part)]
        return [{"until": found[part[-1]][0]} | asdict(_health(found[part], spread_of_z2)) for part in parts]

    def _latest(self, model: str, version: str, n: int) -> np.ndarray:
        try:
            with self._opened() as connection:
                rows = connection.execute(_LATEST, (model, version, n)).fetchall()
        except (sqlite3.Error, OSError) as error:
            raise self._unusable(error) from error
        return np.array(rows, dtype=object).reshape(len(rows), 6)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, check_same_thread=False)
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")
                with connection:
                    connection.execute(_TABLE)
                    connection.execute(_INDEX)
            except sqlite3.Error:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def check(self) -> None:
        """At the start: a log that cannot be opened is said now, not at the first outcome."""
        try:
            self._opened()
        except (sqlite3.Error, OSError) as error:
            raise FileError(
                f"The log {self.path} cannot be opened: {error}. Check the folder, its permissions and its free space, "
                "and that the file is a log of gpnn serve; or name another one."
            ) from error

    def close(self) -> None:
        self.thread.shutdown(wait=True)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _unusable(self, error: Exception) -> RefusalError:
        return RefusalError(
            503,
            f"The log of outcomes cannot be used now: {error}. Nothing of this request was kept.",
            "Free space on its disk, or wait until whoever locks the file is done; then send the outcomes again.",
            "Predictions go on meanwhile.",
            {"Retry-After": "10"},
        )


def _health(rows: np.ndarray, spread_of_z2: float) -> Health:
    mean, sd, lower, upper, y = rows[:, 1:].astype(float).T
    n = len(rows)
    z2 = float(np.mean(((y - mean) / sd) ** 2))
    coverage = float(np.mean((lower <= y) & (y <= upper)))
    room = _DEVIATIONS * spread_of_z2 / np.sqrt(n)
    error = sampling_error(0.9, n, _DEVIATIONS)
    z2_interval = (max(0.0, 1 - room), 1 + room)
    interval = (max(0.0, 0.9 - error), min(1.0, 0.9 + error))
    inside = z2_interval[0] <= z2 <= z2_interval[1] and interval[0] <= coverage <= interval[1]
    return Health(n, coverage, interval, z2, z2_interval, n >= _FEWEST and not inside)


def spread_of_z2(quantile) -> float:
    """Standard deviation of z² from quantiles of z. The outermost 0.1 % are left out: a heavy tail has no variance."""
    z = np.asarray(quantile((np.arange(2000) + 0.5) / 2000), dtype=float)
    return float(np.std(z**2))
