"""Time and memory as n grows: Oakley–O'Hagan, 15 inputs, float32, each n in a process of its own.

python benchmarks/scaling.py                      # n = 10⁴ … 10⁷, about five minutes on two cores
python benchmarks/scaling.py --rows 50000000      # the largest, about ten minutes and 8 GiB
"""

import argparse
import json
import resource
import subprocess
import sys
from time import perf_counter

from report import write_results

NOISE_VARIANCE = 6.0
QUERIES = 5_000


def measure(n: int, kernel: str) -> dict:
    """Make the data, fit, predict; the peak is that of the whole process, the user's own table included."""
    from gpnn import GPnnRegressor
    from gpnn.datasets import oakley_ohagan
    from gpnn.neighbors import IVF

    X, y = oakley_ohagan(n, NOISE_VARIANCE, random_state=0)
    X_test, y_test = oakley_ohagan(QUERIES, NOISE_VARIANCE, random_state=1)
    GPnnRegressor.paper(kernel=kernel, index=IVF(n_cells=8), random_state=0).fit(X[:5000], y[:5000]).predict(
        X[:10]
    )  # compiles
    before = peak()
    model = GPnnRegressor.paper(kernel=kernel, random_state=0).fit(X, y)
    start = perf_counter()
    scores = model.evaluate(X_test, y_test)
    return {
        "n": n,
        "kernel": kernel,
        "fit_s": sum(model.fit_report_["seconds"].values()),
        **{f"{stage}_s": seconds for stage, seconds in model.fit_report_["seconds"].items()},
        "predict_ms": (perf_counter() - start) / QUERIES * 1e3,
        "data_gib": (X.nbytes + y.nbytes) / 2**30,
        "peak_before_fit_gib": before,
        "peak_gib": peak(),
        "index": model.fit_report_["index"],
        "recall": model.fit_report_["recall"],
        "noise": NOISE_VARIANCE / model.whitener_.y_std**2,
        **scores,
    }


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10**4, 10**5, 10**6, 10**7])
    parser.add_argument("--kernel", default="exponential")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.rows[0], args.kernel), default=float))
        return
    results = []
    for n in args.rows:
        command = [sys.executable, __file__, "--one", "--rows", str(n), "--kernel", args.kernel]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        results.append(json.loads(done.stdout))
        print(
            "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in results[-1].items()),
            flush=True,
        )
    write_results("scaling" if len(args.rows) > 1 else f"scaling_{args.rows[0]}", results)


if __name__ == "__main__":
    main()
