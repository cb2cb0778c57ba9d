"""Where and when a figure was measured, in words, to be kept beside it."""

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter

import joblib

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def machine() -> str:
    """For instance: 2 cores of Intel(R) Xeon(R) Processor @ 2.80GHz, 23 GiB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 if hasattr(os, "sysconf") else None
    return f"{joblib.cpu_count()} cores of {processor()}" + (f", {memory:.0f} GiB" if memory else "")


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def peak_memory() -> int | None:
    """The most bytes that this process has held at any time so far; None where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def free_memory() -> int | None:
    """Bytes that could be had without swapping; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None


def versions(*others: str) -> dict[str, str]:
    """Of Python, of what every result depends on, and of `others`; a package that is not installed is left out."""
    found = {"python": platform.python_version()}
    for package in (*PACKAGES, *others):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


class FitReport(dict):
    """What `fit` did: facts by name, and "seconds" of each stage, all together where it is gone through again."""

    def __init__(self, **facts):
        super().__init__(facts, seconds={})

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = perf_counter()
        yield
        self["seconds"][name] = self["seconds"].get(name, 0.0) + perf_counter() - start
