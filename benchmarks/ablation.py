"""What each ingredient of GPnnRegressor() is worth: the default with one of them off in turn, on the paper's splits.

python benchmarks/ablation.py --datasets poletele bike --seeds 1 --max-test 10000
python benchmarks/ablation.py --table

Results are kept as they come; a run that was stopped goes on where it was.
"""

import argparse
import warnings
from contextlib import contextmanager
from time import perf_counter

import numpy as np

from data import split
from defaults import SETS
from gpnn import GPnnRegressor, GPnnWarning, datasets, regressor
from gpnn.stages import calibration, judges, refinement, shapes
from report import read_results, write_results


@contextmanager
def changed(module, **values):
    """Constants that are no settings, for the length of one run."""
    before = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


OFF = {
    "default": ({}, None),
    "m = 400": ({"n_neighbors": 400}, None),
    "one α": ({"calibration": "global"}, None),
    "no floor": ({}, (calibration, {"_FLOORS": np.zeros(0)})),
    "no row may surprise": ({}, (calibration, {"_SURPRISED": 0.0})),
    "Gaussian intervals": ({"trees": False}, (judges, {"fit_shape": lambda residuals, rng: (shapes.GAUSSIAN, {})})),
    "no learned metric": ({"refine": False}, None),
    "one scale for all neighbourhoods": ({}, (refinement, {"_SHARE": 1.0})),
    "lengthscales, no linear map": ({"refine": "columns"}, None),
    "no sums of kernels": ({}, (regressor, {"SUMS": ()})),
    "no trees": ({"trees": False}, None),
    "exponential kernel only": ({"kernel": "exponential"}, None),
    "no ranks": ({}, (regressor, {"WHITENINGS_TRIED": ["diagonal", "full"]})),
    "full whitening only": ({"whitening": "full"}, None),
    "no larger samples": ({}, (regressor, {"LARGER_SAMPLES": ()})),
    "rows set aside": ({"return_rows": False}, None),
    "1000 calibration rows": ({"calibration_size": 1000}, None),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=SETS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--max-test", type=int, default=10_000)
    parser.add_argument("--table", action="store_true", help="only print what is there, as Markdown")
    args = parser.parse_args()
    if args.table:
        print(table(read_results("ablation")))
        return
    warnings.simplefilter("ignore", GPnnWarning)
    results = read_results("ablation")
    for name in args.datasets:
        X, y = datasets.load(name)
        for seed in range(args.seeds):
            for off, (settings, constants) in OFF.items():
                key = f"{name} | {off} | {seed} | {args.max_test}"
                if key not in results:
                    X_train, y_train, X_test, y_test = split(X, y, seed)
                    with changed(constants[0], **constants[1]) if constants else changed(regressor):
                        start = perf_counter()
                        model = GPnnRegressor(random_state=seed, **settings).fit(X_train, y_train)
                        seconds = perf_counter() - start
                    scores = model.evaluate(X_test[: args.max_test], y_test[: args.max_test])
                    results[key] = scores | {"fit_s": seconds, "kernel": model.kernel_, "m": model.n_neighbors_}
                    write_results("ablation", results)
                print(f"{key}: " + "  ".join(f"{what} {value:.4g}" for what, value in results[key].items()
                                              if not isinstance(value, str)), flush=True)  # fmt: skip


def table(results: dict) -> str:
    """RMSE, NLL and the coverage of 90 % intervals: means over the seeds that are there."""
    runs: dict[tuple[str, str], list[dict]] = {}
    for key, scores in results.items():
        name, off, *_ = key.split(" | ")
        runs.setdefault((name, off), []).append(scores)
    names = [name for name in SETS if any(key[0] == name for key in runs)]
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for off in OFF:
        cells = []
        for name in names:
            of_pair = runs.get((name, off), [])
            rmse, nll, coverage = (
                np.mean([run[what] for run in of_pair]) if of_pair else np.nan
                for what in ("rmse", "nll", "coverage_90")
            )
            cells.append(f"{rmse:.3g}, {nll:.2f}, {100 * coverage:.0f} %".replace("-", "−") if of_pair else "–")
        lines.append(f"| {off} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
