"""Does the choice hold? Over seeds, how often the chosen candidate is among the best on rows that nobody has seen.

python benchmarks/steadiness.py                                     # four sets, ten seeds
python benchmarks/steadiness.py --datasets bike --seeds 3 --rows 8000

All candidates of the first comparison predict the test rows as they predicted the judges, calibrated there. Steady:
√(RMSE·e^NLL) of the one that was chosen is within 2 % of the best's.
"""

import argparse
import warnings
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from data import split
from gpnn import GPnnRegressor, GPnnWarning, datasets, regressor
from gpnn.engines import Probes
from gpnn.stages.candidates import score
from report import read_results, write_results

SETS = ("bike", "protein", "houseelectric", "poletele")
_TEST, _WITHIN = 4000, 0.02


@contextmanager
def noted(calls: list):
    """What is compared in `choose`, and what came out."""
    choose = regressor.choose

    def noting(sample, whiteners, kernels, how, rng, engine, progress=None):
        found = choose(sample, whiteners, kernels, how, rng, engine, progress)
        calls.append((sample, whiteners, engine, found))
        return found

    regressor.choose = noting
    try:
        yield
    finally:
        regressor.choose = choose


def run(X, y, X_test, y_test, seed: int) -> dict:
    calls: list = []
    with noted(calls):
        model = GPnnRegressor(random_state=seed, far=False).fit(X, y)
    sample, whiteners, engine, candidates = calls[-1]
    test = Probes(X_test, y_test - model.mean_.predict(X_test), np.full(len(X_test), -1))
    best = {}
    for candidate in candidates:  # the best of each kind, as in the heats
        best.setdefault((candidate.whitening, candidate.kernel, candidate.x_map is None), candidate)
    scores = []
    for candidate in best.values():
        space = replace(sample, judge=test).whitened(whiteners[candidate.whitening], np.random.default_rng(0), engine)
        judged = space.judged(candidate)
        scores.append(score(judged.rmse, judged.nll))
    behind = float(np.exp((scores[0] - min(scores)) / 2) - 1)
    chosen = candidates[0]
    return {
        "behind": behind, "steady": behind <= _WITHIN, "candidates": len(scores), "kernel": chosen.kernel,
        "whitening": chosen.whitening, "mapped": chosen.x_map is not None, "seed": seed, "n": len(X),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=SETS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rows", type=int, default=20_000, help="at most, drawn anew for each seed")
    args = parser.parse_args()
    warnings.simplefilter("ignore", GPnnWarning)
    results = read_results("steadiness")
    for name in args.datasets:
        X, y = datasets.load(name)
        runs = []
        for seed in range(args.seeds):
            X_train, y_train, X_test, y_test = split(X, y, seed)
            runs.append(run(X_train[: args.rows], y_train[: args.rows], X_test[:_TEST], y_test[:_TEST], seed))
            print(f"{name}: {runs[-1]}", flush=True)
        results[name] = runs
        steady = np.mean([one["steady"] for one in runs])
        print(f"{name}: steady in {100 * steady:.0f} % of {len(runs)} seeds", flush=True)
        write_results("steadiness", results)


if __name__ == "__main__":
    main()
