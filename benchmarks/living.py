"""What it costs, and what it is worth, to live with data: new rows, several targets, known noise, streams.

    python benchmarks/living.py insert         10⁵ rows into 10⁶ × 8, then 10⁴ predictions; against an index built anew
    python benchmarks/living.py ones           rows one at a time: seconds of insert and search as they come
    python benchmarks/living.py targets        ten targets against one, at House Electric's size
    python benchmarks/living.py noise          known noise: NLL against the exact process, coverage by tenths of noise
    python benchmarks/living.py geoid          the same for heights of the geoid, read by instruments of known errors
    python benchmarks/living.py bike           prequential: each day predicted, then learned; LightGBM refitted weekly
    python benchmarks/living.py house          the same for House Electric, every hour
                                               (lightgbm must be there)

Each writes its part of benchmarks/results/living.json.
"""

from __future__ import annotations

import argparse
import copy
import json
import warnings
from time import perf_counter

import numpy as np

from gpnn import GPnnRegressor, Hyperparameters, datasets
from gpnn.common.kernels import KERNELS, squared_distances
from report import best, read_results, write_results

_KNOWN, _KNOWN_TEST = 2500, 6000  # rows with known noise
GIVEN = {"kernel": "matern32", "whitening": "diagonal", "calibration_size": 0, "random_state": 0, "suspects": "keep"}


def smooth(n, d=8, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=n)


def fixed(n_neighbors, jobs):
    params = Hyperparameters(2.0, 1.0, 0.05)
    return GPnnRegressor(params=params, n_neighbors=n_neighbors, n_jobs=jobs, **GIVEN)


def insert(args):
    n, more = int(args.rows), int(args.rows) // 10
    X, y = smooth(n + more)
    queries = smooth(10_000, seed=1)[0]
    fixed(args.neighbors, args.jobs).fit(X[:2000], y[:2000]).partial_fit(X[2000:4000], y[2000:4000]).predict(X[:9])
    model = fixed(args.neighbors, args.jobs).fit(X[:n], y[:n])
    start = perf_counter()
    model.partial_fit(X[n:], y[n:])
    inserted = perf_counter() - start
    rebuilt = copy.copy(model)
    rebuilt._consolidate()
    difference = np.abs(model.predict(queries) - rebuilt.predict(queries))  # rows at equal distance may change places
    times = {name: best(lambda one=one: one.predict(queries)) for name, one in (("living", model), ("anew", rebuilt))}
    return {
        "rows": n, "new": more, "neighbors": args.neighbors, "insert_s": inserted, "predict_s": times["living"],
        "predict_anew_s": times["anew"], "ratio": times["living"] / times["anew"],
        "differ": int(np.sum(difference > 0)),
        "largest_difference": float(difference.max()),
    }  # fmt: skip


def ones(args):
    n, more = int(args.rows) // 10, args.inserts
    X, y = smooth(n + more)
    queries = smooth(2000, seed=1)[0]
    model = fixed(args.neighbors, args.jobs).fit(X[:n], y[:n])
    model._follow = lambda *_: None  # predicting each row first takes as long as any prediction
    curve = []
    for first in range(n, n + more, more // 4):
        start = perf_counter()
        for row in range(first, first + more // 4):
            model.partial_fit(X[row : row + 1], y[row : row + 1])
        each = (perf_counter() - start) / (more // 4)
        took, rows = best(lambda: model.predict(queries)), first + more // 4
        segments = len(model.index_.parts)
        curve.append({"rows": rows, "insert_us": 1e6 * each, "predict_s": took, "segments": segments})
    rebuilt = copy.copy(model)
    rebuilt._consolidate()
    return {"neighbors": args.neighbors, "curve": curve, "predict_anew_s": best(lambda: rebuilt.predict(queries))}


def noise(args):
    """Simulated from a Matérn 3/2 process, variances over a factor of 100; the exact process has every row."""
    found = []
    for seed in range(args.seeds):
        rng = np.random.default_rng(seed)
        X = rng.uniform(size=(_KNOWN + _KNOWN_TEST, 2))
        K = KERNELS["matern32"].correlation(squared_distances(X / 0.2, X / 0.2))
        f = np.linalg.cholesky(K + 1e-8 * np.eye(len(X))) @ rng.normal(size=len(X))
        v = 0.005 * 100 ** rng.uniform(size=len(X))
        found.append(_beside_exact(X, f + np.sqrt(v) * rng.normal(size=len(X)), v, K, 0.0, args.jobs))
    return found


def geoid(args):
    """Places on the globe drawn at random in a window; the exact process learns its parameters from every row."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    X, y = datasets.load("egm96_geoid")
    inside = (np.abs(X[:, 0] - 60) < 30) & (np.abs(X[:, 1]) < 30)
    found = []
    for seed in range(args.seeds):
        rng = np.random.default_rng(seed)
        rows = rng.choice(np.flatnonzero(inside), _KNOWN + _KNOWN_TEST, replace=False)
        Z = X[rows] / 10
        f = (y[rows] - y[rows].mean()) / y[rows].std()
        v = 0.0005 * 100 ** rng.uniform(size=len(rows))
        noisy, train = f + np.sqrt(v) * rng.normal(size=len(rows)), slice(_KNOWN)
        kernel = ConstantKernel(1.0, (1e-2, 1e3)) * Matern([1.0, 1.0], (1e-2, 1e2), nu=1.5)
        kernel += WhiteKernel(1e-4, (1e-8, 1.0))
        exact = GaussianProcessRegressor(kernel, alpha=v[train]).fit(Z[train], noisy[train])
        white = exact.kernel_.k2.noise_level
        found.append(_beside_exact(Z, noisy, v, exact.kernel_.k1(Z), white, args.jobs))
    return found


def _beside_exact(X, y, v, K, white, jobs):
    """Our scores, and those of the exact process with covariances K of f and noise v + white."""
    train, test = slice(_KNOWN), slice(_KNOWN, None)
    model = GPnnRegressor(random_state=0, n_jobs=jobs).fit(X[train], y[train], noise_variance=v[train])
    ours = model.evaluate(X[test], y[test], "y", noise_variance=v[test])
    weights = np.linalg.solve(K[train, train] + np.diag(v[train] + white), K[train, test])
    variance = np.diag(K)[test] - np.sum(K[train, test] * weights, axis=0) + v[test] + white
    error = y[test] - weights.T @ y[train]
    exact = float(np.mean(0.5 * (np.log(2 * np.pi * variance) + error**2 / variance)))
    lower, upper = model.predict_interval(X[test], noise_variance=v[test])
    inside = (lower <= y[test]) & (y[test] <= upper)
    by_noise = np.array_split(np.argsort(v[test]), 10)
    of_exact = np.abs(error) <= 1.6448536 * np.sqrt(variance)
    return {
        "rows": _KNOWN, "nll": ours["nll"], "nll_exact": exact, "rmse": ours["rmse"],
        "rmse_exact": float(np.sqrt(np.mean(error**2))),
        "coverage_by_noise": [float(inside[rows].mean()) for rows in by_noise],
        "coverage_exact": [float(of_exact[rows].mean()) for rows in by_noise],
    }  # fmt: skip


def targets(args):
    X, y = _houseelectric()
    rng = np.random.default_rng(0)
    n = int(args.rows)
    X, y = X[:n], y[:n]
    Y = np.column_stack([y, *(np.sin(X @ rng.normal(size=X.shape[1])) + 0.1 * rng.normal(size=n) for _ in range(9))])
    queries = X[rng.choice(n, 10_000, replace=False)] + 1e-3
    one = fixed(args.neighbors, args.jobs).fit(X, y)
    ten = fixed(args.neighbors, args.jobs).set_params(shared_metric=True).fit(X, Y)
    one.predict(queries[:100]), ten.predict(queries[:100])
    times = [best(lambda model=model: model.predict(queries)) for model in (one, ten)]
    return {"rows": n, "neighbors": args.neighbors, "one_s": times[0], "ten_s": times[1], "ratio": times[1] / times[0]}


def _houseelectric():
    X, y = datasets.load("houseelectric")
    return np.asarray(X, float), np.asarray(y, float)


def prequential(X, y, day, first, args, refit_days):
    """Each day predicted, then learned; fitted again when rows have grown by half, or on an alarm. LightGBM is fitted
    again every so many days, on all rows before."""
    from lightgbm import LGBMRegressor

    days = np.unique(day)
    model, n_fitted, n_fits = None, 0, 0
    peers = dict.fromkeys(refit_days)
    found = {"ours": [], **{name: [] for name in refit_days}}
    inside = []
    for number, today in enumerate(days[first:]):
        rows = slice(*np.searchsorted(day, [today, today + 1]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if model is None or model.alarm_ or rows.start > 1.5 * n_fitted:
                model, n_fitted, n_fits = GPnnRegressor(random_state=0, n_jobs=args.jobs), rows.start, n_fits + 1
                model.fit(X[:n_fitted], y[:n_fitted], times=day[:n_fitted])
            law = model.predict_distribution(X[rows])
            lower, upper = model._interval(law, 0.9)
            for name, every in refit_days.items():
                if number % every == 0:
                    peer = LGBMRegressor(
                        n_estimators=400, learning_rate=0.05, num_leaves=63, verbose=-1, n_jobs=args.jobs
                    )
                    peers[name] = peer.fit(X[: rows.start], y[: rows.start])
                found[name].append(y[rows] - peers[name].predict(X[rows]))
            found["ours"].append(y[rows] - law.mean)
            inside.append((lower <= y[rows]) & (y[rows] <= upper))
            model.partial_fit(X[rows], y[rows])
    inside = np.concatenate(inside)
    quarters = [float(part.mean()) for part in np.array_split(inside, 4)]
    rmse = {name: float(np.sqrt(np.mean(np.concatenate(errors) ** 2))) for name, errors in found.items()}
    return {
        "days": len(days) - first, "rows": len(inside), "coverage": float(inside.mean()),
        "coverage_by_quarter": quarters, "rmse": rmse, "fits": n_fits,
    }  # fmt: skip


def bike(args):
    """Hours of two years; columns known when the day begins to be predicted, and the hour's weather."""

    table = datasets.load_raw("bike")
    date = next(name for name in table if table[name].dtype.kind == "M" or name in ("dteday", "date"))
    when = table[date].astype("datetime64[ns]").to_numpy().astype("datetime64[D]").astype(int)
    target = "cnt" if "cnt" in table else "count"
    left_out = {date, target, "casual", "registered", "instant"}
    columns = [name for name in table if name not in left_out]
    X = np.column_stack([*(table[name].to_numpy(float) for name in columns), when])
    order = np.argsort(when, kind="stable")
    return prequential(X[order], table[target].to_numpy(float)[order], when[order], 180, args, {"lightgbm weekly": 7})


def house(args):
    """A minute of each hour of four years: active power from what else is metered."""
    table = datasets.load_raw("houseelectric").dropna().iloc[::60]
    when = table["date_time"].astype("datetime64[ns]").to_numpy().astype("datetime64[D]").astype(int)
    X = table.drop(columns=["Global_active_power", "date_time"]).to_numpy(float)
    return prequential(X, table["Global_active_power"].to_numpy(float), when, 180, args, {"lightgbm weekly": 7})


PARTS = {
    "geoid": geoid,
    "house": house,
    "insert": insert,
    "ones": ones,
    "noise": noise,
    "targets": targets,
    "bike": bike,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--neighbors", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--inserts", type=lambda text: int(float(text)), default=20_000, help="of ones")
    parser.add_argument("--jobs", type=int)
    args = parser.parse_args()
    found = PARTS[args.part](args)
    print(json.dumps(found, indent=1))
    write_results("living", read_results("living") | {args.part: found})


if __name__ == "__main__":
    main()
