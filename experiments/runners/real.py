"""Accuracy, calibration and training time on real data: the paper's Tables 1 and 2, all metrics, kernels."""

import warnings
from functools import lru_cache
from time import perf_counter

import numpy as np
from sklearn.base import clone

import methods
from gpnn import datasets
from gpnn.cli import arguments
from gpnn.common.types import Hyperparameters
from gpnn.datasets.sources import find
from gpnn.errors import GPnnWarning
from gpnn.kernels import get_kernel
from protocol import fingerprint, section
from store import Store

NAME = "real"
_WARM_UP_ROWS = 2500


def add_arguments(parser) -> None:
    parser.add_argument("--datasets", nargs="+", help="default: those of the paper that this machine has")
    parser.add_argument("--methods", nargs="+", help="default: those of the paper that are installed")
    parser.add_argument("--kernels", nargs="+", help="default: those that the paper ran each method with")
    parser.add_argument("--seeds", nargs="+", type=arguments.seed, help="default: 0 1 2")
    parser.add_argument("--max-test", type=arguments.whole_number(1), help="use only the first rows of each test set")


def jobs(args) -> list[dict]:
    settings = section(NAME, args.quick)
    at_hand = [name for name in settings["datasets"] if find(datasets.info(name))]
    names = args.datasets or at_hand
    if not args.datasets and at_hand != settings["datasets"]:
        absent = [name for name in settings["datasets"] if name not in at_hand]
        print(f"left out, not on this machine: {', '.join(absent)} (gpnn datasets get NAME downloads one)")
    chosen = args.methods or settings["methods"]
    for method in chosen:
        if reason := methods.missing(method):
            print(f"left out: {method} is not available here: {reason}")
    for kernel in args.kernels or ():
        get_kernel(kernel)  # complain of an unknown one now
    largest = settings.get("largest_for_rivals", np.inf) if not args.methods else np.inf
    return [
        job(dataset, method, kernel, seed, args.max_test or settings.get("max_test"))
        for dataset in names
        for seed in (settings["seeds"] if args.seeds is None else args.seeds)
        for method in chosen
        if not methods.missing(method) and (method == "gpnn" or datasets.info(dataset).n <= largest)
        for kernel in args.kernels or methods.kernels(method)
    ]


def job(dataset: str, method: str, kernel: str, seed: int, max_test: int | None) -> dict:
    n = datasets.info(dataset).n
    if max_test is not None and max_test >= n - n_train(n):
        max_test = None  # that is the whole test set
    return {
        "dataset": dataset,
        "method": method,
        "kernel": kernel,
        "seed": seed,
        "max_test": max_test,
        "protocol": protocol_of(method),
    }


def protocol_of(method: str) -> str:
    """The same for all five distributed methods, which are trained alike."""
    return fingerprint({"train_share": section(NAME)["train_share"]} | methods.settings(method))


def run(job: dict, store: Store, args) -> dict:
    X_train, y_train, X_test, y_test = split(*_load(job["dataset"]), job["seed"])
    X_test, y_test = X_test[: job["max_test"]], y_test[: job["max_test"]]
    trained = _trained_before(job, store)
    known = {"params": Hyperparameters(**trained["params"])} if trained else {}
    model = methods.build(job["method"], job["kernel"], job["seed"], n_jobs=args.jobs, verbose=1, **known)
    _warm_up(job["method"], job["kernel"], model, X_train, y_train)

    start = perf_counter()
    model.fit(X_train, y_train)
    fitted = perf_counter()
    metrics = model.evaluate(X_test, y_test)
    done = perf_counter()

    report = getattr(model, "fit_report_", {})
    return {
        "metrics": metrics,
        "fit_seconds": trained["fit_seconds"] if trained else fitted - start,
        "evaluate_seconds": done - fitted,
        "stages": report.get("seconds", {}),
        "n_train": len(X_train),
        "n_test": len(X_test),
        "d": X_train.shape[1],
        "n_jobs": args.jobs,
        "params": {name: np.asarray(value).tolist() for name, value in vars(model.params_).items()},
    } | {key: report[key] for key in ("index", "recall", "device") if key in report}


def split(X, y, seed: int):
    """The paper's random 7/9 for training, 2/9 for testing; the same rows as in benchmarks/."""
    rows = np.random.default_rng(seed).permutation(len(X))
    train, test = np.split(rows, [n_train(len(X))])
    return X[train], y[train], X[test], y[test]


def line(job: dict, result: dict) -> str:
    metrics = "  ".join(
        f"{name} {result['metrics'][name]:.4g}"
        for name in ("rmse", "nll", "log_score", "calibration")
        if name in result["metrics"]
    )
    return f"{metrics}  fit {result['fit_seconds']:.1f} s  evaluate {result['evaluate_seconds']:.1f} s"


def n_train(n: int) -> int:
    """Of n rows, how many the paper trains on."""
    part, whole = section(NAME)["train_share"]
    return n * part // whole


@lru_cache(maxsize=1)
def _load(dataset: str):
    return datasets.load(dataset)


def _trained_before(job: dict, store: Store) -> dict | None:
    """The result of another distributed method with the same split: all five have the same experts and parameters."""
    if job["method"] not in methods.DISTRIBUTED:
        return None
    same = ("dataset", "kernel", "seed", "protocol")
    for record in store.records():
        other = record["job"]
        if other["method"] in methods.DISTRIBUTED and all(other[key] == job[key] for key in same):
            return record["result"]
    return None


_warm: set[tuple[str, str]] = set()


def _warm_up(method: str, kernel: str, model, X, y) -> None:
    """Compile before the clock starts. Methods trained by GPyTorch compile nothing."""
    if (method, kernel) not in _warm and methods.get(method).extra is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GPnnWarning)
            clone(model).fit(X[:_WARM_UP_ROWS], y[:_WARM_UP_ROWS]).predict(X[:10])
        _warm.add((method, kernel))
