"""Boosted trees of this package beside scikit-learn's histogram trees: growing and asking them, with one thread.

python benchmarks/forests.py                       # Bike, Protein and blogfeedback's 64 columns of largest variance
python benchmarks/forests.py --datasets covtype --max-train 100000

Both grow as many trees with the same settings (rate 0.1, a leaf for 150 rows, 0.7 of the columns at a split), and half
of the runs begin with the one, half with the other.
"""

import argparse
from time import perf_counter

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from data import load, split
from gpnn.stages.forest import Binned, Growth
from report import read_results, write_results

TREES, TRIED, COLUMNS = 200, 0.7, 64


def ours(X, y, leaves: int, seed: int):
    forest = Binned.of(X).grow(y, np.arange(len(X)), Growth(TREES, 0.1, leaves, tried=TRIED), seed).forest
    return lambda X: forest(X, n_jobs=1)


def scikit_learns(X, y, leaves: int, seed: int):
    settings = {"max_iter": TREES, "max_leaf_nodes": leaves, "max_features": TRIED, "early_stopping": False}
    return HistGradientBoostingRegressor(learning_rate=0.1, random_state=seed, **settings).fit(X, y).predict


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=("bike", "protein", "blogfeedback"))
    parser.add_argument("--max-train", type=int, default=None)
    parser.add_argument("--seeds", type=int, default=4)
    args = parser.parse_args()
    results = read_results("forests")
    for name in args.datasets:
        found: dict[str, list] = {"ours": [], "scikit-learn": []}
        for seed in range(args.seeds):
            X, y, X_test, y_test = split(*load(name), seed)
            some = np.argsort(-X.var(axis=0))[:COLUMNS]
            X, y, X_test = np.ascontiguousarray(X[: args.max_train, some]), y[: args.max_train], X_test[:, some]
            leaves = int(np.clip(len(X) // 150, 31, 255))
            if seed == 0:
                ours(X[:2000], y[:2000], 31, 0)(X[:100])  # compile
            for label, grow in list(zip(found, (ours, scikit_learns), strict=True))[:: 1 if seed % 2 else -1]:
                with threadpool_limits(1):
                    begin = perf_counter()
                    said = grow(X, y, leaves, seed)
                    grown = perf_counter()
                    error = said(X_test) - y_test
                    asked = perf_counter()
                rmse = float(np.sqrt(np.mean(error**2)) / y.std())
                microseconds = 1e6 * (asked - grown) / len(y_test)
                found[label].append({"rmse": rmse, "grow_s": grown - begin, "ask_us_a_row": microseconds})
        results[name] = found
        means = {label: {key: np.mean([run[key] for run in runs]) for key in runs[0]} for label, runs in found.items()}
        ratio = {key: means["scikit-learn"][key] / means["ours"][key] for key in means["ours"]}
        print(name, {label: {k: round(float(v), 4) for k, v in of.items()} for label, of in means.items()})
        print("  theirs / ours: " + "  ".join(f"{key} {value:.3g}" for key, value in ratio.items()), flush=True)
        write_results("forests", results)


if __name__ == "__main__":
    main()
