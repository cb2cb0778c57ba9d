"""A fit of 10,000 rows of five columns in a process that finds everything compiled, beside LightGBM.

python benchmarks/small_fit.py                    # some processes of each
python benchmarks/small_fit.py --processes 9 --threads 1

Seconds are of `fit` alone, as a new process sees it: machine code is read from disk, numba is imported. Where others
use the machine too, the shortest time says more than the median.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from report import read_results, write_results

N, D, TEST = 10_000, 5, 5000
MODELS = ("gpnn", "lightgbm")

PROGRAM = """
import json, sys, warnings
from time import perf_counter, process_time
sys.path.insert(0, {here!r})
warnings.simplefilter("ignore")
import small_fit
model = small_fit.make({name!r})
X, y, X_test, y_test = small_fit.table()
begin, cpu = perf_counter(), process_time()
model.fit(X, y)
found = {{"fit_s": perf_counter() - begin, "fit_cpu_s": process_time() - cpu}}
print(json.dumps(found | small_fit.scores(model, y, X_test, y_test)))
"""


def table():
    """A sine, a product and a slope, with noise of 0.2."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N + TEST, D))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] + 0.2 * rng.normal(size=len(X))
    return X[:N], y[:N], X[N:], y[N:]


def make(name: str):
    if name == "gpnn":
        from gpnn import GPnnRegressor

        return GPnnRegressor(random_state=0)
    from lightgbm import LGBMRegressor

    return LGBMRegressor(random_state=0, verbose=-1)


def scores(model, y, X_test, y_test) -> dict:
    return {"rmse": float(np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)) / np.std(y))}


def new_process(name: str, threads: int) -> dict:
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LOKY_MAX_CPU_COUNT"), str(threads))
    program = PROGRAM.format(here=str(Path(__file__).parent), name=name)
    run = subprocess.run([sys.executable, "-c", program], env=os.environ | limits, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(run.stderr)
    return json.loads(run.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    args = parser.parse_args()
    results = read_results("small_fit")
    for name in args.models:
        new_process(name, args.threads)  # compiles, once and for all
        runs = [new_process(name, args.threads) for _ in range(args.processes)]
        found = {key: [run[key] for run in runs] for key in ("fit_s", "fit_cpu_s")}
        results[f"{name}, {args.threads} threads"] = {
            "rows": N, "columns": D, "rmse": runs[0]["rmse"], "load_average": os.getloadavg()[0],
            **{key: {"shortest": min(of), "median": float(np.median(of))} for key, of in found.items()},
        }  # fmt: skip
        print(name, json.dumps(results[f"{name}, {args.threads} threads"]), flush=True)
    write_results("small_fit", results)


if __name__ == "__main__":
    main()
