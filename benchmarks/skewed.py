"""Skewed targets: learned as they are and on the scale that held-out rows choose, beside LightGBM.

python benchmarks/skewed.py
python benchmarks/skewed.py --targets lognormal bike --seeds 1
"""

import argparse

import numpy as np

from data import split
from gpnn import GPnnRegressor, Prediction, datasets, metrics
from peers import PEERS
from report import read_results, write_results

DRAWS = {
    "lognormal": lambda f, rng: np.exp(f + rng.normal(size=len(f))),
    "gamma": lambda f, rng: rng.gamma(2.0, np.exp(0.6 * f)),
    "counts": lambda f, rng: rng.poisson(np.exp(f)).astype(float),
}
MODELS = ("auto", "identity", "lightgbm")


def parts(name: str, seed: int):
    if name not in DRAWS:
        return split(*datasets.load(name), seed)
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(9000, 4))
    y = DRAWS[name](np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2], rng)
    return X[:6000], y[:6000], X[6000:], y[6000:]


def run(model: str, seed: int, X, y, X_test, y_test) -> dict:
    if model in PEERS:
        mean, std = PEERS[model](seed).fit(X, y).predict(X_test)
        law, kind = Prediction(mean, std**2), None
        low, high = mean - 1.6448536 * std, mean + 1.6448536 * std
    else:
        fitted = GPnnRegressor(random_state=seed, target_scale=model).fit(X, y)
        law, kind = fitted.predict_distribution(X_test), fitted.target_scale_.kind
        low, high = fitted.predict_interval(X_test)
    return {
        "rmse": metrics.rmse(y_test, law), "nll": metrics.nll(y_test, law), "crps": metrics.crps(y_test, law),
        "coverage_90": float(np.mean((low <= y_test) & (y_test <= high))),
        "impossible": float(np.mean(low < min(0.0, y.min()))), "scale": kind,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="+", default=[*DRAWS, "bike", "protein"])
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    results = read_results("skewed")
    results = dict(results) if results else {}
    for name in args.targets:
        for model in MODELS:
            runs = [run(model, seed, *parts(name, seed)) for seed in range(args.seeds)]
            results[f"{name} {model}"] = runs
            numbers = {key: np.mean([one[key] for one in runs]) for key in runs[0] if key != "scale"}
            print(f"{name:12s}{model:10s}" + "  ".join(f"{key} {value:.4g}" for key, value in numbers.items()),
                  *(one["scale"] for one in runs), flush=True)  # fmt: skip
            write_results("skewed", results)


if __name__ == "__main__":
    main()
