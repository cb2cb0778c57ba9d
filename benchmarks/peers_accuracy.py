"""How good and how fast the peers are beside GPnnRegressor, on the same splits of one data set.

python benchmarks/peers_accuracy.py --dataset poletele                        # every peer, three seeds
python benchmarks/peers_accuracy.py --dataset protein --peers gpnn lightgbm --seeds 1 --max-test 30000

RMSE and NLL are for y scaled to variance 1 by the training rows, as in the paper; times are of one run each. What other
runs wrote of other peers is kept.
"""

import argparse
from time import perf_counter

import numpy as np

import gpnn
from data import load, split
from gpnn import GPnnRegressor, Prediction, metrics
from peers import PEERS
from report import read_results, write_results


class Ours:
    """GPnnRegressor as shipped, as a peer."""

    version = gpnn.__version__

    def __init__(self, seed: int):
        self.model = GPnnRegressor(random_state=seed)

    def fit(self, X, y):
        self.model.fit(X, y)
        return self

    def predict(self, X):
        return self.model.predict(X, return_std=True)

    def law(self, X) -> Prediction:
        """Whole: on the scale that was learned, it is not Gaussian."""
        return self.model.predict_distribution(X)


def _gaussian(mean, std) -> Prediction:
    return Prediction(mean, std**2)


def score(peer, X, y, X_test, y_test) -> dict[str, float]:
    begin = perf_counter()
    peer.fit(X, y)
    fitted = perf_counter()
    law = peer.law(X_test) if hasattr(peer, "law") else _gaussian(*peer.predict(X_test))
    done = perf_counter()
    law = law.affine(-y.mean() / y.std(), 1 / y.std())
    z = (y_test - y.mean()) / y.std()
    return {
        "rmse": metrics.rmse(z, law),
        "nll": metrics.nll(z, law),
        "calibration": metrics.calibration(z, law),
        "coverage_90": metrics.coverage(z, law, 0.9),
        "fit_s": fitted - begin,
        "predict_s": done - fitted,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="protein", help="a name of `gpnn datasets list`, or robot_arm")
    peers = {"gpnn": Ours, **PEERS}
    parser.add_argument("--peers", nargs="+", choices=peers, default=list(peers), metavar="PEER",
                        help=f"any of: {', '.join(peers)} (default: all)")  # fmt: skip
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-train", type=int, default=None, help="use only the first rows of each training set")
    parser.add_argument("--max-test", type=int, default=30_000, help="use only the first rows of each test set")
    args = parser.parse_args()
    X, y = load(args.dataset)
    if "gpnn" in args.peers:
        GPnnRegressor(random_state=0).fit(X[:5000], y[:5000]).predict(X[:10])  # compile
    results = {entry["peer"]: entry for entry in read_results(f"peers_{args.dataset}")}
    for name in args.peers:
        scores = []
        for seed in range(args.seeds):
            X_train, y_train, X_test, y_test = split(X, y, seed)
            train, test = slice(args.max_train), slice(args.max_test)
            peer = peers[name](seed)
            scores.append(score(peer, X_train[train], y_train[train], X_test[test], y_test[test]))
        mean, spread = ({key: float(f([s[key] for s in scores])) for key in scores[0]} for f in (np.mean, np.std))
        print(f"{name:10s} " + "  ".join(f"{key} {mean[key]:.4g} ± {spread[key]:.2g}" for key in mean), flush=True)
        limits = {"seeds": args.seeds, "max_train": args.max_train, "max_test": args.max_test}
        results[name] = {"peer": name, "version": peer.version, **limits, "mean": mean, "spread": spread}
        write_results(f"peers_{args.dataset}", list(results.values()))


if __name__ == "__main__":
    main()
