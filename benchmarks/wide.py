"""Tables with many columns, of which few matter: time of a fit and accuracy, beside LightGBM and beside all columns.

python benchmarks/wide.py                                   # 1,500 rows of 100, 300 and 1,000 columns; 2,000 × 3,000
python benchmarks/wide.py --shapes 1500x1000 --models gpnn lightgbm
"""

import argparse
from time import perf_counter, process_time

import numpy as np

from gpnn import GPnnRegressor, Prediction, metrics
from peers import PEERS
from report import read_results, write_results

SHAPES = ("1500x100", "1500x300", "1500x1000", "2000x3000")
MODELS = ("gpnn", "lightgbm", "all columns")
_TEST = 2000


def table(n: int, d: int, seed: int = 0):
    """A sine, a product and a slope in four of the columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + _TEST, d))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] + 0.2 * rng.normal(size=len(X))
    return X[:n], y[:n], X[n:], y[n:]


def run(name: str, X, y, X_test, y_test) -> dict:
    model = PEERS[name](0) if name in PEERS else GPnnRegressor(random_state=0, screen_columns=name == "gpnn")
    begin, cpu = perf_counter(), process_time()
    model.fit(X, y)
    seconds, cpu = perf_counter() - begin, process_time() - cpu
    law = model.predict_distribution(X_test) if name not in PEERS else _gaussian(*model.predict(X_test))
    law, z = law.affine(-y.mean() / y.std(), 1 / y.std()), (y_test - y.mean()) / y.std()
    columns = getattr(model, "columns_", None)
    return {
        "fit_s": seconds, "fit_cpu_s": cpu, "rmse": metrics.rmse(z, law), "nll": metrics.nll(z, law),
        "columns": X.shape[1] if columns is None else len(columns),
    }  # fmt: skip


def _gaussian(mean, std) -> Prediction:
    return Prediction(mean, std**2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, help="rows x columns")
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    args = parser.parse_args()
    results = read_results("wide")
    results = dict(results) if results else {}
    GPnnRegressor(random_state=0).fit(*table(600, 100)[:2])  # compile
    for shape in args.shapes:
        parts = table(*map(int, shape.split("x")))
        for name in args.models:
            results[f"{shape} {name}"] = found = run(name, *parts)
            print(
                f"{shape:12s}{name:14s}" + "  ".join(f"{key} {value:.4g}" for key, value in found.items()), flush=True
            )
            write_results("wide", results)


if __name__ == "__main__":
    main()
