"""GPnnRegressor() beside GPnnRegressor.paper() on real data: accuracy, honesty and time, on the paper's splits.

python benchmarks/defaults.py                                           # all seven sets, whole test sets
python benchmarks/defaults.py --datasets bike robot_arm --seeds 1 --max-test 10000 --models default
"""

import argparse
from time import perf_counter

import numpy as np

from data import load, split
from gpnn import GPnnRegressor
from gpnn.kernels import KERNELS
from report import read_results, write_results

SETS = ("poletele", "bike", "protein", "houseelectric", "britain_magnetic", "covtype", "blogfeedback")
MODELS = {"default": GPnnRegressor, "paper": GPnnRegressor.paper}
METRICS = ("rmse", "nll", "calibration", "coverage_90", "crps")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=SETS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-test", type=int, default=None, help="use only the first rows of each test set")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    args = parser.parse_args()
    results = read_results("defaults")  # of other data sets and models
    for name in args.datasets:
        X, y = load(name)
        for kernel in KERNELS:  # compile
            GPnnRegressor(kernel=kernel, random_state=0).fit(X[:3000], y[:3000]).predict(X[:10])
        for label in args.models:
            make, seeds = MODELS[label], range(args.seeds)
            runs = [run(make(random_state=seed), *split(X, y, seed), args.max_test) for seed in seeds]
            results[f"{name} {label}"] = runs
            middle = {key: np.mean([one[key] for one in runs]) for key in (*METRICS, "fit_s", "predict_ms")}
            print(
                f"{name:18s}{label:8s}" + "  ".join(f"{key} {value:.4g}" for key, value in middle.items()), flush=True
            )
            write_results("defaults", results)


def run(model, X, y, X_test, y_test, max_test) -> dict:
    start = perf_counter()
    model.fit(X, y)
    fitted = perf_counter()
    scores = model.evaluate(X_test[:max_test], y_test[:max_test])
    return scores | {
        "fit_s": fitted - start,
        "predict_ms": 1000 * (perf_counter() - fitted) / len(y_test[:max_test]),
        "kernel": model.kernel_,
        "whitening": model.fit_report_["whitening"],
        "n_neighbors": model.n_neighbors_,
        "alpha": model.alpha_,
        "alpha_interval": list(model.alpha_interval_),
        "shape": model.shape_.name,
        "n": len(X),
    }


if __name__ == "__main__":
    main()
