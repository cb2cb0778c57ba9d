"""Few rows: are intervals honest, and what does it cost? Random subsets of real sets, tested on other rows.

python benchmarks/small.py                                       # four sets, 300 to 1,500 rows, twenty draws each
python benchmarks/small.py --datasets bike --rows 600 --draws 5
"""

import argparse
import warnings
from time import process_time

import numpy as np

from gpnn import GPnnRegressor, datasets
from gpnn.common.errors import GPnnWarning
from report import read_results, write_results

SETS = ("bike", "protein", "houseelectric", "poletele")  # the last is Parkinsons telemonitoring, prepared like it
METRICS = ("coverage_90", "calibration", "rmse", "nll", "crps", "cpu_s")
_TEST = 3000


def run(X, y, n: int, seed: int) -> dict:
    rows = np.random.default_rng(seed).permutation(len(X))
    train, test = rows[:n], rows[n : n + _TEST]
    start = process_time()
    model = GPnnRegressor(random_state=seed).fit(X[train], y[train])
    seconds = process_time() - start
    return model.evaluate(X[test], y[test]) | {"cpu_s": seconds, "n": n, "seed": seed}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=SETS)
    parser.add_argument("--rows", nargs="+", type=int, default=[300, 600, 1000, 1500])
    parser.add_argument("--draws", type=int, default=20, help="of each set, shared out among the sizes")
    args = parser.parse_args()
    warnings.simplefilter("ignore", GPnnWarning)
    results = read_results("small")
    for name in args.datasets:
        X, y = datasets.load(name)
        run(X, y, 300, 999)  # compile
        runs = [run(X, y, args.rows[seed % len(args.rows)], seed) for seed in range(args.draws)]
        results[name] = runs
        means = {key: round(float(np.mean([one[key] for one in runs])), 4) for key in METRICS}
        print(f"{name:16s}", means, flush=True)
        write_results("small", results)


if __name__ == "__main__":
    main()
