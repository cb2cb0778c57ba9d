"""How long fits and predictions of 10⁹ to 10¹¹ rows would take on 10 to 1,000 workers, from what was measured here.

python benchmarks/plan.py                 # a second: reads results/beyond_memory_*.json, writes docs' tables

The model is small on purpose. A worker is one thread of the machine measured, with a disk or network of `BANDWIDTH`.
Passes over the rows (sample, share out, index) are shared by all workers; learning, calibration and what is learned for
gaps need a sample only, on one machine's threads; queries are shared by all workers.
"""

import argparse
import json
from pathlib import Path

from report import RESULTS, write_results

BANDWIDTH = 200e6  # bytes a second, of each worker, from a shared file system
LEARNERS = 8  # threads of the machine that learns
SCHEDULING = 1e-3  # seconds of Dask's scheduler for a task
ROWS_OF_A_SHARD, ROWS_OF_A_PARTITION = 2**23, 2**20
FIXED = ("suspects", "hold out", "mean", "learn", "calibrate", "far")


def constants(record: dict) -> dict:
    """Seconds of one thread for a row of each pass, and for a query."""
    run, n, d = record["runs"][0], record["rows"], record["columns"]
    stages = run["stages_s"]
    passes = {name: stages[name] / n for name in ("sample", "share out", "index")}
    learned = sum(stages.get(name, 0.0) for name in FIXED)
    return {
        "d": d, "m": run["n_neighbors"], "rows_measured": n, "kind": run["index"], **passes, "learn_s": learned,
        "query_s": run["predict_s"] / record["queries"], "bytes_in": record["data_gib"] * 2**30 / n,
        "bytes_spilled": 4 * d + 16, "bytes_of_model": run["model_gib"] * 2**30 / n,
    }  # fmt: skip


def planned(of: dict, n: float, workers: int, queries: float) -> dict:
    share = n / workers
    moved = 2 * of["bytes_in"] + 2 * of["bytes_spilled"] + of["bytes_of_model"]
    tasks = 3 * n / ROWS_OF_A_PARTITION + n / ROWS_OF_A_SHARD
    rows = share * (of["sample"] + of["share out"] + of["index"])
    fit = {
        "rows_s": rows, "moved_s": share * moved / BANDWIDTH, "learn_s": of["learn_s"] / min(LEARNERS, workers),
        "scheduled_s": tasks * SCHEDULING,
    }  # fmt: skip
    deeper = (n / of["rows_measured"]) ** 0.1  # a query's leaves are as many; there are more boxes above them
    predict = queries * of["query_s"] * deeper / workers
    disk = n * (of["bytes_spilled"] + of["bytes_of_model"])
    return {
        "rows": n, "workers": workers, **fit, "fit_s": max(rows, fit["moved_s"]) + fit["learn_s"] + fit["scheduled_s"],
        "predict_s": predict, "disk_tb": disk / 1e12, "shards": -(-n // ROWS_OF_A_SHARD),
    }  # fmt: skip


def readable(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=float, default=1e6)
    args = parser.parse_args()
    found = []
    for path in sorted(Path(RESULTS).glob("beyond_memory_*.json")):
        of = constants(json.loads(path.read_text())["results"])
        print({name: f"{value:.3g}" if isinstance(value, float) else value for name, value in of.items()})
        table = [planned(of, n, workers, args.queries) for n in (1e9, 1e10, 1e11) for workers in (10, 100, 1000)]
        for row in table:
            print(f"| 10^{len(str(int(row['rows']))) - 1} | {row['workers']:,} | {readable(row['fit_s'])} | "
                  f"{readable(row['predict_s'])} | {row['disk_tb']:.2g} TB | {row['shards']:,.0f} |")  # fmt: skip
        found.append({"constants": of, "planned": table})
    write_results("plan", {"queries": args.queries, "bandwidth": BANDWIDTH, "of": found})


if __name__ == "__main__":
    main()
