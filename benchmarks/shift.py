"""Do intervals hold where queries are unlike random rows? The future, patients never seen, discs cut out of a map.

python benchmarks/shift.py                                   # all five, three seeds
python benchmarks/shift.py --tasks bike parkinsons --seeds 1

Each is fitted with the defaults; with `groups=` or `times=` (or holdout="patches" for the maps), which say what queries
will be like; and with far=False, which has nothing but the local process. LightGBM with split-conformal intervals (a
fifth of its rows, drawn at random) stands beside where it is installed. RMSE is in training standard deviations.
"""

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from gaps import inside_discs
from gpnn import GPnnRegressor, GPnnWarning, datasets
from report import read_results, write_results

MOST_TESTED = 20_000


@dataclass
class Task:
    """Training rows, test rows, and what may be said of them."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    said: dict = field(default_factory=dict)
    settings: dict = field(default_factory=dict)


def bike(seed: int) -> Task:
    table = datasets.load_raw("bike")
    X = table.drop(columns=["cnt", "casual", "registered"]).select_dtypes("number").to_numpy(float)
    return _later(X, table["cnt"].to_numpy(float), table["instant"].to_numpy())


def parkinsons(seed: int) -> Task:
    """Every fifth patient, beginning with another one for each seed."""
    table = datasets.load_raw("poletele")
    patient, y = table["subject#"].to_numpy(), table["total_UPDRS"].to_numpy(float)
    X = table.drop(columns=["subject#", "test_time", "total_UPDRS"]).to_numpy(float)
    new = patient % 5 == (1 + seed) % 5
    return Task(X[~new], y[~new], X[new], y[new], {"groups": patient[~new]})


def houseelectric(seed: int) -> Task:
    table = datasets.load_raw("houseelectric").dropna()
    X = table.drop(columns=["Global_active_power", "date_time"]).to_numpy(float)
    return _later(X, table["Global_active_power"].to_numpy(float), np.arange(len(X)))


def britain_magnetic(seed: int) -> Task:
    return _discs("britain_magnetic", seed)


def egm96_geoid(seed: int) -> Task:
    return _discs("egm96_geoid", seed)


def _later(X, y, times) -> Task:
    """The last fifth is predicted from what came before."""
    n = len(X) * 4 // 5
    return Task(X[:n], y[:n], X[n:], y[n:], {"times": times[:n]})


def _discs(name: str, seed: int) -> Task:
    X, y = datasets.load(name)
    gap = inside_discs(X, np.random.default_rng(seed))
    return Task(X[~gap], y[~gap], X[gap], y[gap], settings={"holdout": "patches"})


TASKS: dict[str, Callable[[int], Task]] = {
    task.__name__: task for task in (bike, parkinsons, houseelectric, britain_magnetic, egm96_geoid)
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    results = read_results("shift")
    for name in args.tasks:
        runs: dict[str, list] = {}
        for seed in range(args.seeds):
            task = TASKS[name](seed)
            if len(task.y_test) > MOST_TESTED:
                some = np.random.default_rng(seed).choice(len(task.y_test), MOST_TESTED, replace=False)
                task.X_test, task.y_test = task.X_test[some], task.y_test[some]
            for label, found in compare(task, seed):
                runs.setdefault(label, []).append(found)
                print(f"{name:18s}{seed}  {label:10s}", {k: round(v, 4) for k, v in found.items()}, flush=True)
        results |= {f"{name} {label}": found for label, found in runs.items()}
        write_results("shift", results)


def compare(task: Task, seed: int):
    variants = {"default": ({}, {}), "said": (task.settings, task.said), "near only": ({"far": False}, {})}
    for label, (settings, said) in variants.items():
        start = perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GPnnWarning)
            model = GPnnRegressor(random_state=seed, **settings).fit(task.X, task.y, **said)
            fitted = perf_counter()
            scores = model.evaluate(task.X_test, task.y_test)
            support = model.predict_distribution(task.X_test[:2000]).support
        outside = {} if support is None else {"outside": float(np.mean(support < 0.01))}
        yield label, scores | outside | {"fit_s": fitted - start}
    try:
        from lightgbm import LGBMRegressor
    except ImportError:
        return
    order, n = np.random.default_rng(seed).permutation(len(task.y)), len(task.y) // 5
    held, used = order[:n], order[n:]
    trees = LGBMRegressor(n_estimators=1000, verbose=-1, random_state=seed).fit(task.X[used], task.y[used])
    width = np.quantile(np.abs(task.y[held] - trees.predict(task.X[held])), 0.9)
    error = np.abs(task.y_test - trees.predict(task.X_test))
    rmse = float(np.sqrt(np.mean(error**2)) / np.std(task.y))
    yield "lightgbm", {"rmse": rmse, "coverage_90": float(np.mean(error <= width))}


if __name__ == "__main__":
    main()
