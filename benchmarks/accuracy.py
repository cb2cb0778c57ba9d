"""RMSE, NLL and calibration on Protein and House Electric beside the paper's Table "different kernels".

python benchmarks/accuracy.py                 # three seeds, whole test sets: about 25 minutes on two cores
python benchmarks/accuracy.py --test-rows 20000 --seeds 1
"""

import argparse

import numpy as np

from data import split
from gpnn import GPnnRegressor, datasets
from report import write_results

PUBLISHED = {  # (mean, spread) of RMSE, then of NLL
    ("protein", "rbf"): ((0.666, 0.0014), (1.01, 0.0016)),
    ("protein", "matern32"): ((0.629, 0.004), (0.95, 0.0061)),
    ("protein", "exponential"): ((0.58, 0.0068), (0.853, 0.013)),
    ("houseelectric", "rbf"): ((0.0506, 0.00072), (-1.56, 0.0065)),
    ("houseelectric", "matern32"): ((0.0485, 0.0004), (-1.62, 0.0095)),
    ("houseelectric", "exponential"): ((0.045, 0.00025), (-1.95, 0.028)),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--test-rows", type=int, default=None, help="use only the first rows of each test set")
    parser.add_argument("--optimizer", default="adam", help="adam is the paper's; lbfgs is ours")
    parser.add_argument("--data", nargs="+", default=["protein", "houseelectric"])
    args = parser.parse_args()
    results = []
    for name in args.data:
        X, y = datasets.load(name)
        for kernel in ("rbf", "matern32", "exponential"):
            scores = []
            for seed in range(args.seeds):
                X_train, y_train, X_test, y_test = split(X, y, seed)
                model = GPnnRegressor.paper(kernel=kernel, optimizer=args.optimizer, random_state=seed).fit(
                    X_train, y_train
                )
                scores.append(model.evaluate(X_test[: args.test_rows], y_test[: args.test_rows]))
            ours = {key: (np.mean([s[key] for s in scores]), np.std([s[key] for s in scores])) for key in scores[0]}
            published = dict(zip(("rmse", "nll"), PUBLISHED[name, kernel], strict=True))
            print(f"{name:15s} {kernel:12s}", end="")
            for key in ("rmse", "nll"):
                print(f" {key} {ours[key][0]:.4f} ± {ours[key][1]:.4f} (published {published[key][0]})", end="")
            print(f" calibration {ours['calibration'][0]:.3f} ± {ours['calibration'][1]:.3f}", flush=True)
            results.append({"data": name, "kernel": kernel, "optimizer": args.optimizer, "seeds": args.seeds,
                            "ours": ours, "published": published})  # fmt: skip
    write_results(f"accuracy_{args.optimizer}", results)


if __name__ == "__main__":
    main()
