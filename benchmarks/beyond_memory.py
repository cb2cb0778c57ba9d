"""Fit from Parquet files, and predict 10⁵ rows from a file to a file, with data and model on disk and memory bounded.

python benchmarks/beyond_memory.py --rows 10000000 --peer                      # two minutes on two cores; 3 GiB of disk
python benchmarks/beyond_memory.py --rows 300000000 --memory 6GiB --folder /big    # the largest; about 40 GiB of disk
python benchmarks/beyond_memory.py --rows 1000000000 --columns 4 --memory 8GiB --folder /big

--peer: the same files read whole and fitted in memory, in a process of its own. What is on disk is removed at the end,
unless --keep.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

from report import write_results

NOISE = 0.3
FILE_ROWS = 5_000_000
QUERIES = 100_000


def truth(X):
    """Each column counts half as much as the one before."""
    return sum(2.0**-k * np.sin(2 * X[:, k] + k) for k in range(X.shape[1]))


def write(path: Path, n: int, d: int, seed: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    rng = np.random.default_rng([19, seed])
    X = rng.standard_normal((n, d), dtype=np.float32)
    y = (truth(X) + NOISE * rng.standard_normal(n, dtype=np.float32)).astype(np.float32)
    columns = {f"x{k}": X[:, k] for k in range(d)} | {"y": y}
    pa.parquet.write_table(pa.table(columns), path, compression="none", use_dictionary=False, row_group_size=2**20)


def make(folder: Path, n: int, d: int, file_rows: int = FILE_ROWS) -> None:
    (folder / "train").mkdir(parents=True, exist_ok=True)
    for k, first in enumerate(range(0, n, file_rows)):
        path = folder / "train" / f"part-{k:05d}.parquet"
        if not path.exists():
            write(path, min(file_rows, n - first), d, k)
    write(folder / "new.parquet", QUERIES, d, 10**6)


def measure(folder: Path, memory: str | None, jobs: int | None) -> dict:
    """memory: None for the peer, which holds the table."""
    from gpnn import GPnnRegressor, TableModel

    start = perf_counter()
    regressor = GPnnRegressor(random_state=0, verbose=1, n_jobs=jobs)
    out = folder / ("model.gpnn" if memory else "in_memory.gpnn")
    told = {"memory": memory, "out": out} if memory else {}
    model = TableModel.fit(folder / "train", "y", regressor=regressor, **told)
    if not memory:
        model.save(out)
    fit_s, fit_peak = perf_counter() - start, peak()
    report = model.regressor.fit_report_
    start = perf_counter()
    TableModel.load(out).predict_file(folder / "new.parquet", folder / f"{out.stem}.parquet", keep=[])
    predict_s = perf_counter() - start
    return {
        "memory": memory or "whole table", "fit_s": fit_s, "predict_s": predict_s,
        "stages_s": report["seconds"], "fit_peak_gib": fit_peak, "peak_gib": peak(),
        "model_gib": sum(file.stat().st_size for file in ([out] if out.is_file() else out.iterdir())) / 2**30,
        "n_sample": report.get("n_sample", report["n"]), "shards": report.get("shards", 1),
        "asked": report.get("asked"), "kernel": model.regressor.kernel_, "n_neighbors": model.regressor.n_neighbors_,
        "index": report.get("index_of_shards", report["index"]), "recall": report["recall"],
    }  # fmt: skip


def scored(folder: Path, name: str) -> dict:
    import pandas as pd

    new, answers = pd.read_parquet(folder / "new.parquet"), pd.read_parquet(folder / f"{name}.parquet")
    error = answers["mean"] - truth(new.drop(columns="y").to_numpy())
    inside = (answers["lower"] <= new["y"]) & (new["y"] <= answers["upper"])
    return {"rmse_of_the_function": float(np.sqrt(np.mean(error**2))), "coverage_90": float(inside.mean())}


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=10**7)
    parser.add_argument("--columns", type=int, default=8)
    parser.add_argument("--memory", default="4GiB")
    parser.add_argument("--folder", type=Path, default=Path("beyond_memory"), help="for data and model")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--peer", action="store_true", help="the whole table in memory, too")
    parser.add_argument("--keep", action="store_true", help="leave data and model on disk")
    parser.add_argument("--step", choices=["make", "fit", "peer"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step == "make":
        make(args.folder, args.rows, args.columns)
        return
    if args.step:
        found = measure(args.folder, None if args.step == "peer" else args.memory, args.jobs)
        print(json.dumps(found, default=float))
        return
    results = {"rows": args.rows, "columns": args.columns, "queries": QUERIES, "runs": []}
    for step in ["make", "fit", *(["peer"] if args.peer else [])]:
        command = [sys.executable, __file__, *sys.argv[1:], "--step", step]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        if step != "make":
            run = json.loads(done.stdout) | scored(args.folder, "model" if step == "fit" else "in_memory")
            results["runs"].append(run)
            print(json.dumps(run), flush=True)
    data = sum(file.stat().st_size for file in (args.folder / "train").iterdir())
    write_results(f"beyond_memory_{args.rows}x{args.columns}", results | {"data_gib": data / 2**30})
    if not args.keep:
        shutil.rmtree(args.folder)


if __name__ == "__main__":
    main()
