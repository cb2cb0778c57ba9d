"""Does `ensemble=3` pay? The winner of the choice alone beside the three leading candidates together, of the same fit.

python benchmarks/ensemble.py                                            # five functions and five tables, two seeds
python benchmarks/ensemble.py --datasets smooth bike --seeds 1 --rows 4000

Of the tables, only rows are used that are in the training parts of all splits of `defaults.py`: what that scores on has
no say here. A fit with ensemble=3 contains the one with ensemble=1, digit for digit. "together" is what the ensemble
does on test rows whether judges would have kept it or not; "kept" is what they say.
"""

import argparse
import copy
import warnings

import numpy as np

from data import robot_arm, split
from gpnn import GPnnRegressor, GPnnWarning, datasets
from gpnn.stages import ensemble as stage
from report import best, read_results, write_results

TABLES = ("bike", "protein", "poletele", "houseelectric", "britain_magnetic")
_SPLITS = 3  # of defaults.py
_TEST, _TIMED = 4000, 1000
SURE = stage.SURE


def smooth(X, rng):
    return np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + 0.5 * X[:, 2] * X[:, 3] + 0.1 * rng.normal(size=len(X))


def additive(X, rng):
    return np.sin(3 * X).sum(axis=1) + 0.3 * rng.normal(size=len(X))


def steps(X, rng):
    return np.floor(2 * X[:, 0]) + (X[:, 1] > X[:, 2]) * np.sign(X[:, 3]) + 0.1 * rng.normal(size=len(X))


def heteroscedastic(X, rng):
    return np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * np.exp(X[:, 2]) * rng.normal(size=len(X))


FUNCTIONS = {of.__name__: of for of in (smooth, additive, steps, heteroscedastic)}


def rows_of(name: str, seed: int, n: int):
    """Rows to learn from (n at most) and to test on."""
    if name == "robot_arm":
        X, y = robot_arm(n + _TEST, seed + 100)
    elif name in FUNCTIONS:
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, size=(n + _TEST, 5))
        y = FUNCTIONS[name](X, rng)
    else:
        X, y = datasets.load(name)
        trained = [split(np.arange(len(X)), y, k)[0] for k in range(_SPLITS)]
        kept = set(trained[0]).intersection(*trained[1:])
        order = np.random.default_rng(seed).permutation(sorted(kept))
        n = min(n, len(order) * 3 // 4)
        X, y = X[order], y[order]
    return X[:n], y[:n], X[n : n + _TEST], y[n : n + _TEST]


def nll(model, X, y):
    """Of each row, but for the slope of the target's scale, which is the same for all models."""
    law = model.predict_distribution(X)
    law, y = (law, y) if law.inner is None else (law.inner, model.target_scale_(y))
    return 0.5 * (np.log(2 * np.pi * law.variance) + (y - law.mean) ** 2 / law.variance)


def run(name: str, seed: int, n: int, k: int) -> dict:
    X, y, X_test, y_test = rows_of(name, seed, n)
    together = GPnnRegressor(ensemble=k, random_state=seed, n_jobs=1).fit(X, y)
    alone = copy.copy(together)
    alone._ensemble = None
    told, seconds = together.fit_report_["ensemble"], together.fit_report_["seconds"]
    kept = told["kept"] and told["gain"] > SURE * told["gain_standard_error"]
    result = {"seed": seed, "n": len(X), "d": X.shape[1], "fit_share": seconds["ensemble"] / sum(seconds.values())}
    for label, model in (("alone", alone), ("together", together)):
        scores = model.evaluate(X_test, y_test)
        predict_s = best(lambda model=model: model.predict(X_test[:_TIMED]), 3)
        result[label] = {key: scores[key] for key in ("rmse", "nll", "crps", "coverage_90")}
        result[label]["predict_ms"] = 1000 * predict_s / len(X_test[:_TIMED])
    gains = nll(alone, X_test, y_test) - nll(together, X_test, y_test)
    error = float(np.std(gains) / np.sqrt(len(gains)))
    ratio = result["together"]["rmse"] / result["alone"]["rmse"]
    return result | told | {"kept": kept, "rmse_ratio": ratio, "nll_gain": np.mean(gains), "nll_gain_error": error}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=(*FUNCTIONS, "robot_arm", *TABLES))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rows", type=int, default=6000, help="to learn from, at most")
    parser.add_argument("--members", type=int, default=3)
    args = parser.parse_args()
    warnings.simplefilter("ignore", GPnnWarning)
    stage.SURE = -np.inf  # to see what would have been
    results = read_results("ensemble")
    for name in args.datasets:
        runs = results[f"{name} ensemble={args.members} rows={args.rows}"] = []
        for seed in range(args.seeds):
            runs.append(run(name, seed, args.rows, args.members))
            one = runs[-1]
            ends = "  ".join(f"{key} {one[of][key]:.4g}" for key in ("rmse", "nll") for of in ("alone", "together"))
            judges = f"judges {one['gain']:.4f} ± {one['gain_standard_error']:.4f}" if "gain" in one else one["why"]
            weights = " ".join(f"{weight:.2f}" for weight in one.get("weights", ()))
            gain = f"nll gain {one['nll_gain']:.4f} ± {one['nll_gain_error']:.4f}"
            print(f"{name:18s}{seed}  kept {one['kept']!s:6s}{ends}  {gain}  {judges}  {weights}", flush=True)
        write_results("ensemble", results)


if __name__ == "__main__":
    main()
