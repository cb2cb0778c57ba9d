"""How fast: every figure a ratio against a peer, measured side by side in one run, printed and written as JSON.

    python benchmarks/speed.py            # everything, about ten minutes on two cores
    python benchmarks/speed.py solve search

The peer is the paper's recipe (peers/paper_recipe.py). Data: House Electric with m = 400, and Protein, from
`gpnn.datasets`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from functools import cache
from time import perf_counter

import numpy as np
from sklearn.neighbors import NearestNeighbors

from data import split
from gpnn import GPnnRegressor, datasets
from gpnn.engines import reference
from gpnn.engines.cpu import solver
from gpnn.engines.cpu.neighbors.cells import Rows
from gpnn.engines.parallel import for_each_block
from gpnn.kernels import KERNELS
from gpnn.neighbors import IVF, KDTree, recall
from report import best, write_results

M = 400


@cache
def houses():
    X_train, y_train, X_test, y_test = split(*datasets.load("houseelectric"), seed=0)
    return X_train, y_train, X_test[:20_000], y_test[:20_000]


@cache
def fitted(kernel="exponential"):
    X, y, *_ = houses()
    return GPnnRegressor.paper(kernel=kernel, random_state=0).fit(X, y)


def in_parallel(function, n, size=64):
    for_each_block(function, n, size, None)


def solve():
    """Local solves against m³/3 operations at the rate of this machine's float32 matrix product, same cores."""
    A, B = np.random.default_rng(0).random((2, 2048, 2048), dtype=np.float32)
    gemm_rate = 2 * 2048**3 / best(lambda: A @ B, 15)
    ideal = M**3 / 3 / gemm_rate
    results = []
    sets = {"houseelectric": houses(), "protein": split(*datasets.load("protein"), seed=0)}
    for name, (X, y, X_test, _) in sets.items():
        for kernel in KERNELS:
            model = GPnnRegressor.paper(kernel=kernel, random_state=0).fit(X, y)
            X_star = model.whitener_.transform(X_test[:2000])
            indices = model.index_.query(X_star, M).indices
            N, Y = model.index_.points(indices), model._y[indices]
            args = (KERNELS[kernel], model.params_)
            standard = reference.solve(X_star[:200], N[:200], Y[:200], *args)
            ours = solver.solve(X_star[:200], N[:200], Y[:200], *args)
            seconds = best(
                lambda X_star=X_star, N=N, Y=Y, args=args: in_parallel(
                    lambda part: solver.solve(X_star[part], N[part], Y[part], *args), 2000
                )
            )
            A @ B
            rate = 2 * 2048**3 / best(lambda: A @ B)  # beside each measurement: the machine's speed drifts
            results.append(
                {
                    "data": name,
                    "kernel": kernel,
                    "ms_per_query": seconds / 2000 * 1e3,
                    "times_ideal": seconds / 2000 / (M**3 / 3 / max(rate, gemm_rate)),
                    "largest_mean_error_sd": np.max(np.abs(ours.mean - standard.mean) / np.sqrt(standard.variance)),
                    "largest_variance_error": np.max(np.abs(ours.variance / standard.variance - 1)),
                }
            )
            print_row(results[-1])
    return {"gemm_gflops": gemm_rate / 1e9, "ideal_ms": ideal * 1e3, "rows": results}


def search():
    """Neighbour search in 1.6 million rows of 8 columns against scikit-learn's query."""
    model = fitted()
    X, _, X_test, _ = houses()
    Z, queries = model.whitener_.transform(X), model.whitener_.transform(X_test[:4000])
    start = perf_counter()
    sklearn = NearestNeighbors(n_neighbors=M).fit(Z.astype(float))
    peer_build = perf_counter() - start
    few = queries[:300].astype(float)
    one_by_one = best(lambda: [sklearn.kneighbors(row[None]) for row in few], 3) / len(few)
    sklearn.set_params(n_jobs=-1)
    batch = best(lambda: sklearn.kneighbors(queries[:2000].astype(float)), 3) / 2000
    results = [
        {
            "index": "scikit-learn, one query a call (the recipe)",
            "build_s": peer_build,
            "ms_per_query": one_by_one * 1e3,
        },
        {"index": "scikit-learn, one call, all cores", "build_s": peer_build, "ms_per_query": batch * 1e3},
    ]
    for label, spec in {"KDTree()": KDTree(), "KDTree(slack=2)": KDTree(slack=2), "IVF(0.985)": IVF(0.985)}.items():
        rows = Rows.allocate(*Z.shape)
        rows[:] = Z
        start = perf_counter()
        index = spec.build(rows, M, model.whitener_.transform(X_test[-1000:]))
        build = perf_counter() - start
        seconds = best(lambda index=index: in_parallel(lambda part: index.query(queries[part], M), len(queries)))
        per_query = seconds / len(queries)
        results.append(
            {
                "index": label,
                "build_s": build,
                "ms_per_query": per_query * 1e3,
                "recall": recall(index.query(queries[:500], M), index.exact_query(queries[:500], M)),
                "times_faster_than_recipe": one_by_one / per_query,
                "times_faster_than_batch": batch / per_query,
            }
        )
    for row in results:
        print_row(row)
    return results


def fit_and_predict():
    """Fit, then predict from the same rows with the same parameters, against the paper's recipe."""
    sys.path.insert(0, os.path.dirname(__file__))
    from peers.paper_recipe import PaperRecipe

    results = []
    sets = {"houseelectric": houses(), "protein": split(*datasets.load("protein"), seed=0)}
    for name, (X, y, X_test, _) in sets.items():
        start = perf_counter()
        peer = PaperRecipe().fit(X, y)
        peer_fit = perf_counter() - start
        fits = {}
        for optimizer in ("lbfgs", "adam"):
            model = GPnnRegressor.paper(optimizer=optimizer, random_state=0)
            fits[optimizer] = best(lambda model=model, X=X, y=y: model.fit(X, y), 3)

        few = peer.whiten(X_test[:200])
        start = perf_counter()
        peer_mean, peer_variance = peer.predict_whitened(few)
        peer_predict = (perf_counter() - start) / len(few)
        # The same rows, parameters and metric, so that the numbers must be the same too.
        ours = GPnnRegressor.paper(
            params=peer.params, whitening="none", calibration_size=0, index="exact", random_state=0
        ).fit(peer.Z, peer.z)
        law = ours.predict_distribution(few)
        Z_star = peer.whiten(X_test[:10_000])
        seconds = best(lambda ours=ours, Z_star=Z_star: ours.predict(Z_star), 3) / len(Z_star)
        results.append(
            {
                "data": name,
                "recipe_fit_s": peer_fit,
                "fit_s": fits["lbfgs"],
                "fit_adam_s": fits["adam"],
                "fit_times_faster": peer_fit / fits["lbfgs"],
                "fit_adam_times_faster": peer_fit / fits["adam"],
                "recipe_predict_ms": peer_predict * 1e3,
                "predict_ms": seconds * 1e3,
                "predict_times_faster": peer_predict / seconds,
                "largest_difference_of_means_sd": np.max(np.abs(law.mean - peer_mean) / np.sqrt(peer_variance)),
                "largest_difference_of_variances": np.max(np.abs(law.variance / peer_variance - 1)),
            }
        )
        print_row(results[-1])
    return results


COMPILE_SCRIPT = """
import time, numpy as np
from gpnn import GPnnRegressor
rng = np.random.default_rng(0)
X = rng.normal(size=(3000, 8)); y = np.sin(X[:, 0])
start = time.perf_counter()
GPnnRegressor.paper(random_state=0).fit(X, y).predict(X[:100])
first = time.perf_counter() - start
start = time.perf_counter()
GPnnRegressor.paper(random_state=0).fit(X, y).predict(X[:100])
print(first - (time.perf_counter() - start))
"""


def compilation():
    """What the first fit and predict cost over the second: on a machine that never ran them, then in a new process."""
    with tempfile.TemporaryDirectory() as cache_directory:
        environment = os.environ | {"NUMBA_CACHE_DIR": cache_directory}
        overheads = [
            float(subprocess.run([sys.executable, "-c", COMPILE_SCRIPT], env=environment, check=True,
                                 capture_output=True, text=True).stdout)
            for _ in range(3)
        ]  # fmt: skip
    result = {"first_process_s": overheads[0], "second_process_s": min(overheads[1:])}
    print_row(result)
    return result


def print_row(row):
    print(
        "  " + "  ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{value}" for key, value in row.items())
    )


PARTS = {"compilation": compilation, "solve": solve, "search": search, "fit_and_predict": fit_and_predict}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of: {', '.join(PARTS)} (default: all)")
    args = parser.parse_args()
    unknown = set(args.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {', '.join(unknown)}; choose from {', '.join(PARTS)}")
    for name in args.parts or PARTS:
        print(f"{name}: {PARTS[name].__doc__}", flush=True)
        write_results(f"speed_{name}", PARTS[name]())


if __name__ == "__main__":
    main()
