"""Wrong targets among the training rows: how far off are predictions of right ones, and do intervals hold?

python benchmarks/contamination.py                                     # all sets, three seeds, LightGBM beside
python benchmarks/contamination.py --datasets smooth --seeds 1 --peers

A smooth function and real sets, of which at most 20,000 rows: as they are; one target set to 10⁶; one in a thousand set
to −9999; one in twenty with a Cauchy error of scale one standard deviation; one in twenty exchanged among each other.
Errors are medians over new rows with right targets, in units of the standard deviation of y.
"""

import argparse
import warnings
from time import perf_counter

import numpy as np

from gpnn import GPnnRegressor, datasets
from gpnn.common.errors import GPnnWarning
from peers import PEERS
from report import read_results, write_results

SETS = ("smooth", "bike", "protein", "houseelectric", "egm96_geoid")
KINDS = ("clean", "one 1e6", "0.1 % -9999", "5 % cauchy", "5 % swapped")
_TEST = 5000


def table(name: str, n: int, seed: int):
    rng = np.random.default_rng(seed)
    if name != "smooth":
        X, y = datasets.load(name)
        rows = rng.permutation(len(X))[: n + _TEST]
        return X[rows], y[rows]
    X = rng.uniform(-2, 2, size=(n + _TEST, 3))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.01 * rng.normal(size=len(X))


def spoilt(y, kind: str, seed: int):
    rng, y, n = np.random.default_rng(seed + 1000), y.copy(), len(y)
    match kind:
        case "one 1e6":
            y[rng.integers(n)] = 1e6
        case "0.1 % -9999":
            y[rng.choice(n, n // 1000, replace=False)] = -9999
        case "5 % cauchy":
            some = rng.choice(n, n // 20, replace=False)
            y[some] += np.std(y) * rng.standard_cauchy(len(some))
        case "5 % swapped":
            some = rng.choice(n, n // 20, replace=False)
            y[some] = y[rng.permutation(some)]
    return y


def run(make, X, y, X_test, y_test, unit: float) -> dict:
    start = perf_counter()
    model = make().fit(X, y)
    seconds = perf_counter() - start
    if isinstance(model, GPnnRegressor):
        mean, (low, high) = model.predict(X_test), model.predict_interval(X_test)
        more = {"left_out": model.fit_report_["left_out"]}
    else:
        mean, std = model.predict(X_test)
        low, high, more = mean - 1.645 * std, mean + 1.645 * std, {}
    return more | {
        "median_error": float(np.median(np.abs(mean - y_test)) / unit),
        "coverage_90": float(np.mean((low <= y_test) & (y_test <= high))),
        "fit_s": seconds,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=SETS)
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--peers", nargs="*", default=["lightgbm"])
    args = parser.parse_args()
    warnings.simplefilter("ignore", GPnnWarning)
    results = read_results("contamination")
    for name in args.datasets:
        for kind in args.kinds:
            runs: dict[str, list] = {}
            for seed in range(args.seeds):
                X, y = table(name, args.rows, seed)
                X, y, X_test, y_test = X[:-_TEST], y[:-_TEST], X[-_TEST:], y[-_TEST:]
                wrong, unit = spoilt(y, kind, seed), float(np.std(y))
                makers = {"gpnn": lambda seed=seed: GPnnRegressor(random_state=seed)}
                makers |= {peer: lambda peer=peer, seed=seed: PEERS[peer](seed) for peer in args.peers}
                for label, make in makers.items():
                    runs.setdefault(label, []).append(run(make, X, wrong, X_test, y_test, unit))
            for label, of_label in runs.items():
                results[f"{name}, {kind}, {label}"] = of_label
                means = {key: np.mean([one[key] for one in of_label]) for key in of_label[0]}
                print(
                    f"{name:14s}{kind:13s}{label:9s}", {key: round(float(v), 4) for key, v in means.items()}, flush=True
                )
            write_results("contamination", results)


if __name__ == "__main__":
    main()
