"""Dask with two single-thread workers against one process with two threads: fit from Parquet, predict 10⁵ rows.

python benchmarks/cluster.py --rows 10000000                     # about four minutes on two cores; 2 GiB of disk
python benchmarks/cluster.py --rows 10000000 --workers 1         # where only one core is free

Also how many queries one shard answers, of 10⁵, with 16 shards: as cells are cut, and with a halo of border rows.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

from beyond_memory import make, scored
from report import write_results


def on_dask(folder: Path, workers: int) -> dict:
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    from gpnn import Prediction
    from gpnn.dask import DaskGPnnRegressor

    local = {"n_workers": workers, "threads_per_worker": 1, "memory_limit": "4GiB", "dashboard_address": None}
    with LocalCluster(**local) as cluster, Client(cluster) as client:
        start = perf_counter()
        model = DaskGPnnRegressor(client, folder=folder / "dask.gpnn", n_shards=16, random_state=0)
        model.fit(str(folder / "train" / "*.parquet"), "y")
        fit_s = perf_counter() - start
        start = perf_counter()
        new = dd.read_parquet(folder / "new.parquet")
        new = new.drop(columns="y").repartition(npartitions=8 * workers)
        lazy = model.predict_distribution(new)
        law = Prediction(*map(np.asarray, client.gather(client.compute([lazy.mean, lazy.variance]))))
        predict_s = perf_counter() - start
    _write(folder / "dask.parquet", [law.mean, *model.to_local()._interval(law, 0.9)])
    report = model.fit_report_
    told = ("n_sample", "shards", "partitions", "bytes_spilled", "seconds_on_cluster", "asked")
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
    """Of 10⁵ queries: how many shards they ask; and if each shard also held all rows within some distance of its box,
    how many queries would one shard answer for sure, and how many times over would rows be held?"""
    import pandas as pd

    from gpnn import GPnnRegressor

    model = GPnnRegressor.load(folder / "dask.gpnn")
    new = pd.read_parquet(folder / "new.parquet").drop(columns="y")
    index, X = model.index_, model.whitener_.transform(new.to_numpy())
    index.queries = index.questions = index.by_one_shard = 0
    reach = model._holding_engine().neighbors(X, model.n_neighbors_).distances[:, -1].astype(float)
    asked = {"by_one_shard": index.by_one_shard / index.queries, "shards_asked": index.questions / index.queries}
    homes = index.homes(X)
    inside = np.minimum(X - index.low[homes], index.high[homes] - X).min(axis=1).clip(0)  # from the walls of its box
    alone = (index._gaps(X) < reach[:, None] ** 2).sum(axis=1) <= 1
    rows = index.points(np.random.default_rng(0).choice(len(index.order), 10**5, replace=False))
    gaps, halos = index._gaps(rows), []
    for width in np.quantile(reach, [0.1, 0.25, 0.5, 0.75, 0.9, 0.99]):
        held = alone | (reach - inside <= width)
        copies = float((gaps <= width**2).sum(axis=1).mean())
        halos.append({"width": float(width), "by_one_shard": float(held.mean()), "times_the_rows": copies})
    return asked | {"m": model.n_neighbors_, "median_reach": float(np.median(reach)), "halos": halos}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=10**7)
    parser.add_argument("--columns", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("cluster_benchmark"))
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--step", choices=["make", "dask", "alone", "shards"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    steps = {
        "make": lambda: make(args.folder, args.rows, args.columns, -(-args.rows // 16)),
        "alone": lambda: alone(args.folder, args.workers),
        "dask": lambda: on_dask(args.folder, args.workers),
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
    whole = {step: results[step]["fit_s"] + results[step]["predict_s"] for step in ("alone", "dask")}
    results["times_as_long"] = whole["dask"] / whole["alone"]
    print("dask takes", results["times_as_long"], "times as long")
    write_results(f"cluster_{args.rows}", results)
    if not args.keep:
        shutil.rmtree(args.folder)


if __name__ == "__main__":
    main()
