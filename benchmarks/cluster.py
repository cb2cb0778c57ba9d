"""Dask with two single-thread workers against one process with two threads: fit from Parquet, predict 10⁵ rows.

python benchmarks/cluster.py --rows 10000000                     # about four minutes on two cores; 2 GiB of disk
python benchmarks/cluster.py --rows 10000000 --workers 1         # where only one core is free

Twice: with each row in one of 16 shards, and with border rows in several, so that one answers nine queries in ten.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from beyond_memory import make, scored
from report import write_results

HALOS = {"dask": 0.0, "halo": 0.92}  # a little more than 90 %: how deep halos are is learned from a sample


def on_dask(folder: Path, workers: int, step: str) -> dict:
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    from gpnn import Prediction
    from gpnn.dask import DaskGPnnRegressor

    local = {"n_workers": workers, "threads_per_worker": 1, "memory_limit": "4GiB", "dashboard_address": None}
    with LocalCluster(**local) as cluster, Client(cluster) as client:
        start = perf_counter()
        model = DaskGPnnRegressor(client, folder=folder / f"{step}.gpnn", n_shards=16, halo=HALOS[step], random_state=0)
        model.fit(str(folder / "train" / "*.parquet"), "y")
        fit_s = perf_counter() - start
        start = perf_counter()
        new = dd.read_parquet(folder / "new.parquet")
        new = new.drop(columns="y").repartition(npartitions=8 * workers)
        lazy = model.predict_distribution(new)
        law = Prediction(*map(np.asarray, client.gather(client.compute([lazy.mean, lazy.variance]))))
        predict_s = perf_counter() - start
    _write(folder / f"{step}.parquet", [law.mean, *model.to_local()._interval(law, 0.9)])
    report = model.fit_report_
    told = ("n_sample", "shards", "rows_in_halos", "partitions", "bytes_spilled", "seconds_on_cluster", "asked")
    kept = {name: report[name] for name in told}
    return {"fit_s": fit_s, "predict_s": predict_s, **kept}


def alone(folder: Path, threads: int) -> dict:
    import pandas as pd

    from gpnn import GPnnRegressor

    start = perf_counter()
    table = pd.read_parquet(folder / "train")
    model = GPnnRegressor(random_state=0, n_jobs=threads).fit(table.drop(columns="y"), table["y"])
    fit_s = perf_counter() - start
    start = perf_counter()
    new = pd.read_parquet(folder / "new.parquet").drop(columns="y")
    law = model.predict_distribution(new)
    _write(folder / "alone.parquet", [law.mean, *model._interval(law, 0.9)])
    return {"fit_s": fit_s, "predict_s": perf_counter() - start, "seconds": model.fit_report_["seconds"]}


def _write(path: Path, columns) -> None:
    import pandas as pd

    table = {name: np.asarray(values) for name, values in zip(("mean", "lower", "upper"), columns, strict=True)}
    pd.DataFrame(table).to_parquet(path)


def shards_asked(folder: Path) -> dict:
    """On one machine and one thread: 10⁵ queries of both models, the same ones in turn. How many does one shard answer,
    what do they cost, and are the answers the same?"""
    import pandas as pd

    from gpnn import GPnnRegressor

    new = pd.read_parquet(folder / "new.parquet").drop(columns="y")
    models = {step: GPnnRegressor.load(folder / f"{step}.gpnn").set_params(n_jobs=1) for step in HALOS}
    laws = {step: model.predict_distribution(new) for step, model in models.items()}  # files are read by now
    seconds: dict[str, list[float]] = {step: [] for step in models}
    for model in models.values():
        model.index_.queries = model.index_.questions = model.index_.by_one_shard = 0
    for _ in range(3):
        for step, model in models.items():
            start = process_time()
            model.predict_distribution(new)
            seconds[step].append(process_time() - start)
    first, *others = laws.values()
    found: dict = {"same_bits": all((law.mean == first.mean).all() for law in others)}
    for step, model in models.items():
        index = model.index_
        found[step] = {
            "m": model.n_neighbors_, "by_one_shard": index.by_one_shard / index.queries,
            "shards_asked": index.questions / index.queries, "times_the_rows": len(index.order) / index.n,
            "query_ms": 1e3 * min(seconds[step]) / len(new),
            "bytes_a_row": sum(file.stat().st_size for file in (folder / f"{step}.gpnn").iterdir()) / index.n,
        }  # fmt: skip
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=10**7)
    parser.add_argument("--columns", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("cluster_benchmark"))
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--step", choices=["make", "alone", "dask", "halo", "shards"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    steps = {
        "make": lambda: make(args.folder, args.rows, args.columns, -(-args.rows // 16)),
        "alone": lambda: alone(args.folder, args.workers),
        "dask": lambda: on_dask(args.folder, args.workers, "dask"),
        "halo": lambda: on_dask(args.folder, args.workers, "halo"),
        "shards": lambda: shards_asked(args.folder),
    }
    if args.step:
        print(json.dumps(steps[args.step](), default=float))
        return
    results = {"rows": args.rows, "columns": args.columns, "workers": args.workers}
    for step in steps:
        command = [sys.executable, __file__, *sys.argv[1:], "--step", step]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        if step != "make":
            results[step] = json.loads(done.stdout.splitlines()[-1])
            if step != "shards":
                results[step] |= scored(args.folder, step)
            print(step, json.dumps(results[step]), flush=True)
    whole = {step: results[step]["fit_s"] + results[step]["predict_s"] for step in ("alone", *HALOS)}
    results["times_as_long"] = {step: whole[step] / whole["alone"] for step in HALOS}
    print("times as long as alone:", results["times_as_long"])
    write_results(f"cluster_{args.rows}", results)
    if not args.keep:
        shutil.rmtree(args.folder)


if __name__ == "__main__":
    main()
