"""Are intervals honest in gaps? Discs are cut out of a map (5 % of its area), and the rows inside them predicted.

python benchmarks/gaps.py --datasets britain_magnetic egm96_geoid --seeds 3

With holdout="patches" the model learns, chooses and calibrates on patches like those gaps; with "random" it believes
that queries lie as near to the data as the rows do to each other.
"""

import argparse

import numpy as np

from gpnn import GPnnRegressor, datasets
from report import write_results

DISCS, SHARE = 20, 0.05


def inside_discs(X, rng) -> np.ndarray:
    """Rows (n,) in discs around random rows, with radii such that they hold about the share of all rows."""
    place = X[:, :2] / X[:, :2].std(axis=0)
    centres = place[rng.choice(len(place), DISCS, replace=False)]
    nearest = np.full(len(place), np.inf)
    for centre in centres:
        np.minimum(nearest, np.linalg.norm(place - centre, axis=1), out=nearest)
    return nearest < np.quantile(nearest, SHARE)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["britain_magnetic", "egm96_geoid"])
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    results = {}
    for name in args.datasets:
        X, y = datasets.load(name)
        for holdout in ("patches", "random"):
            for seed in range(args.seeds):
                gap = inside_discs(X, np.random.default_rng(seed))
                model = GPnnRegressor(holdout=holdout, random_state=seed).fit(X[~gap], y[~gap])
                scores = model.evaluate(X[gap], y[gap])
                results[f"{name} {holdout} {seed}"] = scores | {"kernel": model.kernel_, "rows": int(gap.sum())}
                print(
                    name, holdout, seed, model.kernel_, {k: round(float(v), 4) for k, v in scores.items()}, flush=True
                )
        write_results("gaps", results)


if __name__ == "__main__":
    main()
