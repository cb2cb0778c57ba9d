"""The GPU engine beside the CPU of the same machine: seconds, and the same laws.

    python benchmarks/gpu.py                            # everything; needs an NVIDIA GPU and gpnn[gpu]
    python benchmarks/gpu.py --parts predict default    # some of it
    python benchmarks/gpu.py --quick                    # small sizes

predict: House Electric's test rows, m = 400, exponential, search included; twice, since the first call compiles what
the small one before it did not need. default: GPnnRegressor() fitted on its training rows, and what it predicts.
large: the paper preset on 5·10⁷ × 15, and 10⁵ rows predicted. exact: means and variances against the float64
reference, four kernels, House Electric and Protein, over lengthscales and noise.
"""

import argparse
from itertools import product
from time import perf_counter

import numpy as np

from data import split
from gpnn import GPnnRegressor, Hyperparameters, datasets
from gpnn.datasets.synthetic import oakley_ohagan_function
from gpnn.engines.parallel import for_each_block
from gpnn.kernels import KERNELS
from report import read_results, write_results

NOISE_VARIANCE = 6.0


def timed(function):
    start = perf_counter()
    return function(), perf_counter() - start


def predict(quick: bool) -> dict:
    X, y, X_test, _ = split(*datasets.load("houseelectric"), seed=0)
    if quick:
        X, y, X_test = X[:200_000], y[:200_000], X_test[:20_000]
    model = GPnnRegressor.paper(random_state=0).fit(X, y)
    some = X_test[: max(1000, len(X_test) // 10)]
    model.predict(some)  # compiles, float64 too
    (mean, std), cpu_s = timed(lambda: model.predict(some, return_std=True))
    model.set_params(engine="gpu").predict(X_test[:1000])  # sends the rows, compiles
    laws, gpu_s = timed(lambda: model.predict(X_test, return_std=True))
    again, gpu_again_s = timed(lambda: model.predict(X_test, return_std=True))
    return {
        "queries": len(X_test),
        "n_neighbors": model.n_neighbors_,
        "gpu_s": [gpu_s, gpu_again_s],
        "cpu_s": cpu_s * len(X_test) / len(some),
        "largest_difference_sd": np.abs((laws[0][: len(some)] - mean) / std).max(),
        "same_again": bool(np.array_equal(laws, again)),
    }


def default(quick: bool) -> dict:
    X, y, X_test, y_test = split(*datasets.load("houseelectric"), seed=0)
    if quick:
        X, y, X_test, y_test = X[:200_000], y[:200_000], X_test[:20_000], y_test[:20_000]
    found = {"rows": len(X), "queries": len(X_test)}
    for engine in ("gpu", "cpu"):
        for kernel in KERNELS:  # compile
            GPnnRegressor(kernel=kernel, random_state=0, engine=engine).fit(X[:60_000], y[:60_000]).predict(X[:10])
        model, fit_s = timed(lambda engine=engine: GPnnRegressor(random_state=0, engine=engine).fit(X, y))
        model.predict(X_test[:1000])
        part = slice(None) if engine == "gpu" else slice(50_000)
        if engine == "gpu":
            model.predict(X_test)  # compiles what the small one did not need
        laws, predict_s = timed(lambda model=model, part=part: model.predict_distribution(X_test[part]))
        found[engine] = {
            "fit_s": fit_s,
            "predict_s": predict_s * len(X_test) / len(laws),
            "stages": model.fit_report_["seconds"],
            "kernel": model.kernel_,
            "whitening": model.fit_report_["whitening"],
            "n_neighbors": model.n_neighbors_,
            **model._scores(y_test[part], laws, "whitened"),
        }
    return found


def large(quick: bool) -> dict:
    n, d, block = 10**6 if quick else 5 * 10**7, 15, 10**5
    n_test = 10**4 if quick else 10**5
    X, y = np.empty((n + n_test, d), np.float32), np.empty(n + n_test)

    def draw(part):
        rng = np.random.default_rng(part.start)
        X[part] = rng.standard_normal((part.stop - part.start, d), np.float32)
        noise = rng.laplace(scale=np.sqrt(NOISE_VARIANCE / 2), size=part.stop - part.start)
        y[part] = oakley_ohagan_function(X[part]) + noise

    for_each_block(draw, len(X), block, None)
    GPnnRegressor.paper(random_state=0, engine="gpu", index="ivf").fit(X[:50_000], y[:50_000]).predict(X[:1000])
    model, fit_s = timed(lambda: GPnnRegressor.paper(random_state=0, engine="gpu").fit(X[:n], y[:n]))
    law, predict_s = timed(lambda: model.predict_distribution(X[n:]))
    report = model.fit_report_
    return {
        "rows": n,
        "queries": n_test,
        "fit_s": fit_s,
        "stages": report["seconds"],
        "predict_s": predict_s,
        "together_s": fit_s + predict_s,
        "recall": report["recall"],
        "n_probed": model.index_.n_probed,
        "peak_memory_gib": report["peak_memory"] / 2**30,
        **model._scores(y[n:], law, "whitened"),
    }


def exact(quick: bool) -> dict:
    """The largest errors of means (in predictive sd) and of variances (relative)."""
    queries, m = (20, 100) if quick else (100, 400)
    found = {}
    for name in ("houseelectric", "protein"):
        X, y, X_test, _ = split(*datasets.load(name), seed=0)
        X, y, X_test = X[:100_000], y[:100_000], X_test[:queries]
        for kernel in KERNELS:
            errors = []
            for scale, noise in product((0.1, 1.0, 10.0), (1e-1, 1e-3, 1e-6)):
                model = GPnnRegressor(
                    kernel=kernel, params=Hyperparameters(scale, 1.0, noise), n_neighbors=m, calibration_size=0,
                    whitening="full", random_state=0,
                ).fit(X, y)  # fmt: skip
                true, law = (model.set_params(engine=on).predict_distribution(X_test) for on in ("reference", "gpu"))
                errors.append(
                    (np.abs((law.mean - true.mean) / true.std).max(), np.abs(law.variance / true.variance - 1).max())
                )
            mean, variance = np.max(errors, axis=0)
            found[f"{name} {kernel}"] = {"mean_sd": mean, "variance": variance}
    return found


PARTS = {"predict": predict, "default": default, "large": large, "exact": exact}
BARS = {
    "predict": "5 s (better: 1.5 s)",
    "default": "fit 6 s (better: 3 s), predict 3 s (better: 1 s)",
    "large": "90 s together (better: 30 s)",
    "exact": "means within 1e-3 sd",
}
"""What one H200 should reach."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    results = read_results("gpu") if not args.quick else {}
    for name in args.parts:
        results[name] = PARTS[name](args.quick)
        print(
            f"{name}, to reach on an H200: {BARS[name]}",
            *(f"  {key}: {value}" for key, value in results[name].items()),
            sep="\n",
            flush=True,
        )
        if not args.quick:
            write_results("gpu", results)


if __name__ == "__main__":
    main()
