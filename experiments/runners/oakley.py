"""Oakley and O'Hagan's function with Laplacian noise, to n = 5·10⁷: one process for each n, whose peak is its own."""

import json
import resource
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import methods
from gpnn import theory
from gpnn.cli import arguments
from gpnn.datasets import oakley_ohagan
from gpnn.errors import InvalidInputError
from gpnn.kernels import get_kernel
from gpnn.neighbors import IVF
from protocol import fingerprint, section

NAME = "oakley"
_GIB = 2**30


def add_arguments(parser) -> None:
    parser.add_argument("--kernel", dest="kernels", nargs="+", help="default: rbf exponential")
    parser.add_argument("--sizes", nargs="+", type=arguments.whole_number(1000), help="default: 1e4 1e5 1e6 1e7 5e7")
    parser.add_argument("--seeds", nargs="+", type=arguments.seed, help="default: 0")


def jobs(args) -> list[dict]:
    settings = section(NAME, args.quick)
    for kernel in args.kernels or ():
        get_kernel(kernel)  # complain of an unknown one now
    return [
        {"n": n, "kernel": kernel, "seed": seed, "protocol": protocol()}
        for n in args.sizes or settings["sizes"]
        for kernel in args.kernels or settings["kernels"]
        for seed in (settings["seeds"] if args.seeds is None else args.seeds)
    ]


def protocol() -> str:
    used = {key: section(NAME)[key] for key in ("noise", "noise_variance", "test_rows")}
    return fingerprint(used | methods.settings("gpnn"))


def run(job: dict, store, args) -> dict:
    command = [sys.executable, str(Path(__file__).parents[1] / "run.py"), "--one", json.dumps(job), str(args.jobs or 0)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        cause = "it was killed, most likely for want of memory" if done.returncode < 0 else "its error is above"
        raise InvalidInputError(f"The process for n = {job['n']:,} ended with {done.returncode}: {cause}.")
    return json.loads(done.stdout)


def measure(job: dict, n_jobs: int | None) -> dict:
    """In this process: make the data, fit, evaluate. The peak counts all of it, the user's own table included."""
    settings = section(NAME)
    noise = settings["noise_variance"], settings["noise"]
    X, y = oakley_ohagan(job["n"], *noise, random_state=2 * job["seed"])
    X_test, y_test = oakley_ohagan(settings["test_rows"], *noise, random_state=2 * job["seed"] + 1)
    _compile(job["kernel"], X, y)
    before = _peak()
    model = methods.paper_gpnn(job["kernel"], job["seed"], n_jobs=n_jobs, verbose=1)
    start = perf_counter()
    model.fit(X, y)
    fitted = perf_counter()
    metrics = model.evaluate(X_test, y_test)
    share = settings["noise_variance"] / model.whitener_.y_std**2  # of the noise in the variance of y
    limit = theory.limits(share, share, model.n_neighbors_)
    return {
        "metrics": metrics,
        "limits": {"rmse": limit.rmse, "nll": limit.nll, "calibration": limit.calibration},
        "fit_seconds": fitted - start,
        "evaluate_seconds": perf_counter() - fitted,
        "stages": model.fit_report_["seconds"],
        "table_gib": (X.nbytes + y.nbytes) / _GIB,
        "peak_before_fit_gib": before,
        "peak_gib": _peak(),
        "index": model.fit_report_["index"],
        "recall": model.fit_report_["recall"],
        "n_jobs": n_jobs,
    }


def line(job: dict, result: dict) -> str:
    metrics = "  ".join(f"{name} {value:.4g} (limit {result['limits'][name]:.4g})"
                        for name, value in result["metrics"].items() if name in result["limits"])  # fmt: skip
    return f"{metrics}  fit {result['fit_seconds']:.1f} s  peak {result['peak_gib']:.2f} GiB"


def _compile(kernel: str, X, y) -> None:
    small = methods.paper_gpnn(kernel, 0, index=IVF(n_cells=8), verbose=0)
    small.fit(X[:5000], y[:5000]).predict(X[:10])


def _peak() -> float:
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts in bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / _GIB
