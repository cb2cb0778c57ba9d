"""Building an inverted file: rows compared with all centres, and with those of their region, in one run.

python benchmarks/inverted_file.py --rows 10000000        # about two minutes on two cores
python benchmarks/inverted_file.py --rows 50000000        # the largest: about six minutes, 5 GiB
"""

import argparse
from time import perf_counter

import numpy as np

from gpnn.engines.cpu.neighbors import IVF, ivf, recall
from gpnn.engines.cpu.neighbors.cells import Rows
from report import write_results

D, M = 15, 100


def build(n: int, many: int, jobs: int | None) -> dict:
    rng = np.random.default_rng(0)
    rows = Rows.allocate(n, D)
    for at in range(0, n, 10**6):
        rows[at : at + 10**6] = rng.standard_normal((min(10**6, n - at), D), dtype=np.float32)
    queries, probes = (rng.standard_normal((128, D), dtype=np.float32) for _ in range(2))
    ivf._MANY = many
    start = perf_counter()
    index = IVF().build(rows, M, probes, jobs, 0)
    seconds = perf_counter() - start
    start = perf_counter()
    found = index.query(queries, M)
    return {
        "build_s": seconds, "cells": index._centres.n, "cells_looked_into": index.n_probed,
        "query_ms": (perf_counter() - start) / len(queries) * 1e3,
        "recall": recall(found, index.exact_query(queries, M)),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=10**7)
    parser.add_argument("--jobs", type=int)
    args = parser.parse_args()
    build(20_000, ivf._MANY, args.jobs)  # compiles
    ways = {"all centres": 2**62, "those of the region": ivf._MANY}
    results = {"rows": args.rows, "columns": D} | {way: build(args.rows, many, args.jobs) for way, many in ways.items()}
    results["times_as_fast"] = results["all centres"]["build_s"] / results["those of the region"]["build_s"]
    print(results)
    write_results(f"inverted_file_{args.rows}", results)


if __name__ == "__main__":
    main()
