"""What the benchmarks share: a stopwatch, and figures written as JSON with the machine and versions they are from."""

import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

RESULTS = Path(__file__).parent / "results"


def best(function, repeats=5):
    """Seconds of the shortest of several runs: the noise of a shared machine only ever adds."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        function()
        times.append(perf_counter() - start)
    return min(times)


def write_results(name: str, results) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    record = {
        "benchmark": name,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": _processor(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in ("numpy", "scipy", "scikit-learn", "numba")},
        "results": results,
    }
    partial = path.with_suffix(".tmp")
    partial.write_text(json.dumps(record, indent=1, default=float) + "\n")
    partial.replace(path)  # a file that is there is complete
    print(f"written to {path}")
    return path


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
