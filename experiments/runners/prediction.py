"""How long a prediction takes: one query a call, and many in one call. The paper's table "Prediction times"."""

from time import perf_counter

import numpy as np

import methods
from gpnn import datasets
from gpnn.datasets.sources import find
from protocol import fingerprint, section
from runners.real import split

NAME = "prediction"


def add_arguments(parser) -> None:
    parser.add_argument("--methods", nargs="+", help="default: gpnn svgp, as far as they are installed")


def jobs(args) -> list[dict]:
    settings = section(NAME, args.quick)
    chosen = args.methods or settings["methods"]
    for method in chosen:
        if reason := methods.missing(method):
            print(f"left out: {method} is not available here: {reason}")
    return [
        {"data": data["name"], "method": method, "protocol": protocol_of(method)}
        for data in settings["data"]
        for method in chosen
        if not methods.missing(method)
    ]


def protocol_of(method: str) -> str:
    settings = section(NAME)
    used = {key: settings[key] for key in ("data", "kernel", "single_calls", "batch")}
    return fingerprint(used | methods.settings(method) | settings["overrides"].get(method, {}))


def run(job: dict, store, args) -> dict:
    settings = section(NAME)
    method = job["method"]
    X, y, queries, source = _rows(next(data for data in settings["data"] if data["name"] == job["data"]))
    overrides = settings["overrides"].get(method, {})
    model = methods.build(method, settings["kernel"], 0, n_jobs=args.jobs, **overrides).fit(X, y)
    model.predict(queries[:10])  # compiles
    times = [_seconds(model, queries[i : i + 1]) for i in range(settings["single_calls"])]
    return {
        "single_seconds": float(np.median(times)),
        "batch_seconds": _seconds(model, queries[: settings["batch"]]),
        "batch": settings["batch"],
        "n_train": len(X),
        "d": X.shape[1],
        "rows": source,
        "n_jobs": args.jobs,
    }


def line(job: dict, result: dict) -> str:
    batch = result["batch_seconds"] / result["batch"]
    return f"one query {result['single_seconds']:.2g} s, {batch:.2g} s a query in calls of {result['batch']}"


def _rows(data: dict):
    """Training rows and queries: the real set where it is at hand, else normal inputs of the same n and d."""
    known = data["name"] in datasets.names() and find(datasets.info(data["name"])) is not None
    if known:
        X, y, queries, _ = split(*datasets.load(data["name"]), seed=0)
        return X, y, queries, data["name"]
    rng = np.random.default_rng(0)
    X, queries = rng.standard_normal((data["n"], data["d"])), rng.standard_normal((1000, data["d"]))
    return X, np.sin(X[:, 0]) + 0.3 * rng.standard_normal(len(X)), queries, "standard normal"


def _seconds(model, queries) -> float:
    start = perf_counter()
    model.predict(queries, return_std=True)
    return perf_counter() - start
