"""What the benchmarks share: a stopwatch, and figures written as JSON with the machine and versions they are from."""

import json
import os
from pathlib import Path
from time import perf_counter

from gpnn.common import provenance

RESULTS = Path(__file__).parent / "results"


def best(function, repeats=5):
    """Seconds of the shortest of several runs: the noise of a shared machine only ever adds."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        function()
        times.append(perf_counter() - start)
    return min(times)


def read_results(name: str) -> dict:
    """What an earlier run wrote, for one that adds to it."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text())["results"] if path.exists() else {}


def write_results(name: str, results) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    record = {
        "benchmark": name,
        "time": provenance.now(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": provenance.processor(),
        "versions": provenance.versions(),
        "results": results,
    }
    partial = path.with_suffix(".tmp")
    partial.write_text(json.dumps(record, indent=1, default=float) + "\n")
    partial.replace(path)  # a file that is there is complete
    print(f"written to {path}")
    return path
