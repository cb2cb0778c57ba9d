"""Where float32 is enough: errors of the fast solvers in float32 against their own float64, beside their estimates.

    python benchmarks/precision.py                 # about three minutes on two cores
    python benchmarks/precision.py --engine gpu

For each kernel, "needed" is the least factor on the estimates with which every error above 1e-3 (of means in predictive
standard deviations, of variances relative) would have been seen; `ROUNDING` in engines/local.py is at least twice that.
"""

import argparse
from itertools import product

import numpy as np
import pandas as pd

from data import split
from gpnn import GPnnRegressor, Hyperparameters, datasets
from gpnn.engines.compiled.covariance import KERNEL_TAGS
from gpnn.engines.cpu import solver
from gpnn.engines.local import ROUNDING, TOLERANCE
from gpnn.engines.parallel import for_each_block
from gpnn.kernels import KERNELS
from report import write_results

LENGTHSCALES = (0.03, 0.1, 0.3, 1, 3, 10, 100)
RATIOS = 10.0 ** -np.arange(1, 8)  # σ_ξ²/σ_f²
QUERIES, M = 80, 400
SETS = ("houseelectric", "protein", "britain_magnetic", "egm96_geoid")


class OnCPU:
    """Neighbourhoods of a data set, and their means, 1/precision and error estimates in float32 or float64."""

    def __init__(self, model, X_star):
        self.X_star = X_star
        indices = model.index_.query(X_star, M).indices
        self.N, self.y = model.index_.points(indices), model._y[indices]

    def solve(self, dtype, kernel, lengthscale, ratio, m):
        q, d = self.X_star.shape
        mean, shrinkage, errors, innovations = np.empty((q, 1)), np.empty((q, 1)), np.empty((2, q)), np.empty((q, m))
        solver._solve_block(
            KERNEL_TAGS[kernel], self.X_star.astype(dtype), np.ascontiguousarray(self.N[:, :m], dtype),
            np.ascontiguousarray(self.y[:, :m]), solver._inverse(lengthscale, d, dtype), np.full((q, m), ratio, dtype),
            np.ones(q, bool),
            *solver._scratch(m, d, dtype), np.array([m]), mean, shrinkage, innovations, errors,
        )  # fmt: skip
        return mean[:, 0], shrinkage[:, 0], errors


class OnGPU:
    """The same on the device."""

    def __init__(self, model, X_star):
        from gpnn.engines.gpu import GPU

        engine = GPU()
        self.X_star = engine._queries(X_star)
        self.held = engine.hold(model.index_, model._y)._held
        self.neighbors = self.held.cells.nearest(self.X_star, M)[0]

    def solve(self, dtype, kernel, lengthscale, ratio, m):
        import torch

        from gpnn.engines.gpu.solver import _attempt

        kind = {np.float32: torch.float32, np.float64: torch.float64}[dtype]
        neighbors, params = self.neighbors[:, :m].contiguous(), Hyperparameters(lengthscale, 1.0, ratio)
        ratios = torch.full((1,), ratio, dtype=torch.float64, device=self.X_star.device)
        mean, shrinkage, _, errors = _attempt(
            self.held.cells,
            self.held.y,
            ratios,
            neighbors,
            self.X_star,
            KERNELS[kernel],
            params,
            np.array([m]),
            1,
            kind,
        )
        return mean[:, 0].cpu().numpy(), shrinkage[:, 0].cpu().numpy(), [error.cpu().numpy() for error in errors]


def neighbourhoods(name, make):
    X, y, X_test, _ = split(*datasets.load(name), seed=0)
    model = GPnnRegressor.paper(params=Hyperparameters(1, 1, 1), calibration_size=0, index="exact", random_state=0)
    model.fit(X, y)
    return make(model, model.whitener_.transform(X_test[:QUERIES]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--datasets", nargs="+", default=SETS)
    args = parser.parse_args()
    found = []
    for name in args.datasets:
        case = neighbourhoods(name, OnCPU if args.engine == "cpu" else OnGPU)
        cases = list(product(KERNEL_TAGS, LENGTHSCALES, RATIOS, (50, M)))
        frames = [None] * len(cases)

        def compare(part, name=name, cases=cases, frames=frames, case=case):
            kernel, scale, ratio, m = cases[part.start]
            single, double = (case.solve(dtype, kernel, scale, ratio, m) for dtype in (np.float32, np.float64))
            sd = np.sqrt(double[1] + ratio)
            errors = {
                "error": np.abs(single[0] - double[0]) / sd,
                "estimate": single[2][0] / sd,
                "variance_error": np.abs((single[1] + ratio) / (double[1] + ratio) - 1),
                "variance_estimate": single[2][1] / sd**2,
            }
            frames[part.start] = pd.DataFrame({"data": name, "kernel": kernel, **errors})

        for_each_block(compare, len(cases), 1, None if args.engine == "cpu" else 1)
        found += frames
    table = pd.concat(found).dropna()
    results = []
    for kernel, rows in table.groupby("kernel"):
        for_mean, for_variance = ROUNDING[kernel]
        estimate = np.maximum(for_mean * rows.estimate, for_variance * rows.variance_estimate)
        accepted = rows[estimate <= TOLERANCE]
        results.append(
            {
                "kernel": kernel,
                "needed_for_means": TOLERANCE / rows.estimate[rows.error >= 1e-3].min(),
                "needed_for_variances": TOLERANCE / rows.variance_estimate[rows.variance_error >= 1e-3].min(),
                "used": [for_mean, for_variance],
                "share_in_float32": len(accepted) / len(rows),
                "largest_error_accepted": accepted.error.max(),
                "largest_variance_error_accepted": accepted.variance_error.max(),
            }
        )
        print(results[-1])
    write_results("precision" if args.engine == "cpu" else "precision_gpu", results)


if __name__ == "__main__":
    main()
