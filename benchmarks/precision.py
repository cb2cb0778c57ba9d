"""Where float32 is enough: errors of the compiled solver in float32 against its own float64, beside their estimates.

    python benchmarks/precision.py        # about three minutes on two cores

For each kernel, "needed" is the least factor on the estimates with which every error above 1e-3 (of means in predictive
standard deviations, of variances relative) would have been seen; `_ROUNDING` in engines/cpu/solver.py is at least
twice that.
"""

from itertools import product

import numpy as np
import pandas as pd

from data import split
from gpnn import GPnnRegressor, Hyperparameters, datasets
from gpnn.engines.compiled.covariance import KERNEL_TAGS
from gpnn.engines.cpu import solver
from gpnn.engines.parallel import for_each_block
from report import write_results

LENGTHSCALES = (0.03, 0.1, 0.3, 1, 3, 10, 100)
RATIOS = 10.0 ** -np.arange(1, 8)  # σ_ξ²/σ_f²
QUERIES, M = 80, 400


SETS = ("houseelectric", "protein", "britain_magnetic", "egm96_geoid")


def neighbourhoods(name):
    X, y, X_test, _ = split(*datasets.load(name), seed=0)
    model = GPnnRegressor.paper(params=Hyperparameters(1, 1, 1), calibration_size=0, index="exact", random_state=0).fit(
        X, y
    )
    X_star = model.whitener_.transform(X_test[:QUERIES])
    indices = model.index_.query(X_star, M).indices
    return X_star, model.index_.points(indices), model._y[indices]


def run(dtype, X_star, N, y, kernel, lengthscale, ratio):
    mean, shrinkage = np.empty((2, len(X_star)))
    errors = np.empty((2, len(X_star)))
    d = X_star.shape[1]
    solver._solve_block(
        KERNEL_TAGS[kernel], X_star.astype(dtype), np.ascontiguousarray(N, dtype), np.ascontiguousarray(y),
        solver._inverse(lengthscale, d, dtype), dtype(ratio), np.ones(len(X_star), bool),
        *solver._scratch(N.shape[1], d, dtype), mean, shrinkage, errors,
    )  # fmt: skip
    return mean, shrinkage, errors


def main():
    found = []
    for name in SETS:
        X_star, N, y = neighbourhoods(name)
        cases = list(product(KERNEL_TAGS, LENGTHSCALES, RATIOS, (50, M)))
        frames = [None] * len(cases)

        def compare(part, name=name, cases=cases, frames=frames, X_star=X_star, N=N, y=y):
            kernel, scale, ratio, m = cases[part.start]
            single, double = (
                run(t, X_star, N[:, :m], y[:, :m], kernel, scale, ratio) for t in (np.float32, np.float64)
            )
            sd = np.sqrt(double[1] + ratio)
            errors = {
                "error": np.abs(single[0] - double[0]) / sd,
                "estimate": single[2][0] / sd,
                "variance_error": np.abs((single[1] + ratio) / (double[1] + ratio) - 1),
                "variance_estimate": single[2][1] / sd**2,
            }
            frames[part.start] = pd.DataFrame({"data": name, "kernel": kernel, **errors})

        for_each_block(compare, len(cases), 1, None)
        found += frames
    table = pd.concat(found).dropna()
    results = []
    for kernel, rows in table.groupby("kernel"):
        for_mean, for_variance = solver._ROUNDING[kernel]
        estimate = np.maximum(for_mean * rows.estimate, for_variance * rows.variance_estimate)
        accepted = rows[estimate <= solver._TOLERANCE]
        results.append(
            {
                "kernel": kernel,
                "needed_for_means": solver._TOLERANCE / rows.estimate[rows.error >= 1e-3].min(),
                "needed_for_variances": solver._TOLERANCE / rows.variance_estimate[rows.variance_error >= 1e-3].min(),
                "used": [for_mean, for_variance],
                "share_in_float32": len(accepted) / len(rows),
                "largest_error_accepted": accepted.error.max(),
                "largest_variance_error_accepted": accepted.variance_error.max(),
            }
        )
        print(results[-1])
    write_results("precision", results)


if __name__ == "__main__":
    main()
