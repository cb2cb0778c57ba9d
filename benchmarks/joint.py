"""Joint laws: how near to an exact process, whether sums of real rows come out as promised, and how quick.

python benchmarks/joint.py                            # everything, some ten minutes
python benchmarks/joint.py --parts exact gstools      # of: exact, blocks, map, gstools

exact: covariances of 100 y*, n + q = 2,000, against a Gaussian process of all rows: how far off relative to their size
(Frobenius), and the Kullback–Leibler divergence in nats: of covariances and, beside it, of means; from m = 400 rows,
and from all.
blocks: 90 % intervals of means over blocks of held-out rows, interspersed among training rows ("random") or with none
of these between them ("gap"). map: 10⁶ cells × 100 draws from 4·10⁵ rows of Britain's magnetic field. gstools: the same
draws by kriging of random fields, as GSTools (pip install gstools) does it, in the same run.
"""

import argparse
from time import perf_counter

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial import cKDTree

from gpnn import GPnnRegressor, Hyperparameters, datasets
from gpnn.common.provenance import peak_memory
from gpnn.engines.cpu.joint import CPUErrors
from gpnn.kernels import KERNELS, squared_distances
from report import read_results, write_results

LENGTHSCALES = {"exponential": 0.5, "matern32": 0.3, "matern52": 0.3, "rbf": 0.2}
MAP_ROWS, DRAWS = 400_000, 100


def process(kernel, lengthscale, noise, X, y, n_neighbors, n_jobs=None):
    """A regressor with these parameters, and nothing chosen or calibrated."""
    scale = float(np.var(y))
    params = Hyperparameters(lengthscale, 1 / scale, noise / scale)
    return GPnnRegressor(
        kernel=kernel, params=params, whitening="none", mean="zero", calibration_size=0, n_neighbors=n_neighbors,
        suspects="keep", n_jobs=n_jobs,
    ).fit(X, y)  # fmt: skip


def exact() -> dict:
    """By chain, as with any number of rows, though so few would not need one."""
    found, rng = {}, np.random.default_rng(0)
    CPUErrors._whole = 0
    for kernel, lengthscale in LENGTHSCALES.items():
        for noise in (0.1, 0.001):
            for queries in ("random", "dense"):
                X = rng.random((1900, 2)).astype(np.float32)
                Z = rng.random((100, 2)) if queries == "random" else 0.4 + 0.2 * rng.random((100, 2))
                Z = Z.astype(np.float32)

                def k(A, B, kernel=kernel, lengthscale=lengthscale):
                    return KERNELS[kernel].correlation(squared_distances(A, B) / lengthscale**2)

                f = np.linalg.cholesky(k(X, X) + 1e-8 * np.eye(1900)) @ rng.standard_normal(1900)
                y = f + np.sqrt(noise) * rng.standard_normal(1900)
                factor = cho_factor(k(X, X) + noise * np.eye(1900))
                mean = k(Z, X) @ cho_solve(factor, y)
                true = k(Z, Z) - k(Z, X) @ cho_solve(factor, k(X, Z)) + noise * np.eye(100)
                for m in (400, 1900):
                    got_mean, got = process(kernel, lengthscale, noise, X, y, m).predict(Z, return_cov=True)
                    scores = _against(mean, true, got_mean, got)
                    found[f"{kernel} noise {noise} {queries} m {m}"] = scores
                    print(kernel, noise, queries, m, {k: f"{value:.4f}" for k, value in scores.items()}, flush=True)
    CPUErrors._whole = 2048
    return found


def _against(mean, true, got_mean, got) -> dict[str, float]:
    off, difference = np.linalg.norm(got - true) / np.linalg.norm(true), got_mean - mean
    nats = np.trace(np.linalg.solve(got, true)) - len(mean) + np.linalg.slogdet(got)[1] - np.linalg.slogdet(true)[1]
    of_means = difference @ np.linalg.solve(got, difference)
    return {"frobenius": float(off), "nats": float(nats / 2), "nats_of_means": float(of_means / 2)}


def blocks_of(X, kind: str, size: int, rng) -> tuple[np.ndarray, np.ndarray]:
    """Rows to hold out, and the number of the block of each."""
    place = (X - X.mean(axis=0)) / X.std(axis=0)
    if kind == "random":
        rows, parts = rng.permutation(len(X))[: len(X) // 5], []
        todo = [rows]
        while todo:
            part = todo.pop()
            if len(part) <= size:
                parts.append(part)
                continue
            widest = np.argmax(np.ptp(place[part], axis=0))
            todo += np.array_split(part[np.argsort(place[part, widest])], 2)
        chosen = [parts[k] for k in rng.permutation(len(parts))[:400]]
        return np.concatenate(chosen), np.repeat(np.arange(len(chosen)), [len(part) for part in chosen])
    tree, hidden, found = cKDTree(place), np.zeros(len(X), bool), []
    for centre in rng.permutation(len(X)):
        around = tree.query(place[centre], 4 * size)[1]
        if not hidden[around].any():
            hidden[around[:size]] = True
            found.append(around[:size])
        if len(found) == 200 or hidden.sum() > len(X) // 8:
            break
    return np.concatenate(found), np.repeat(np.arange(len(found)), size)


def blocks(n: int = 50_000, size: int = 50, seeds: int = 2) -> dict:
    found = {}
    for name in ("britain_magnetic", "egm96_geoid"):
        X_all, y_all = (np.asarray(values, dtype=float) for values in datasets.load(name))
        for kind in ("random", "gap"):
            inside, naive, rows_inside = [], [], []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                chosen = rng.permutation(len(X_all))[:n]
                X, y = X_all[chosen], y_all[chosen]
                rows, block = blocks_of(X, kind, size, rng)
                rest = np.setdiff1d(np.arange(n), rows)
                model = GPnnRegressor(random_state=seed).fit(X[rest], y[rest])
                sums = model.predict_sum(X[rows], by=block, average=True)
                mean, std = model.predict(X[rows], return_std=True)
                error = np.abs(np.bincount(block, y[rows]) / np.bincount(block) - sums.mean)
                inside += (error < 1.645 * sums.std).tolist()
                naive += (error < 1.645 * sums.naive_std).tolist()
                rows_inside += (np.abs(y[rows] - mean) < 1.645 * std).tolist()
            scores = {"blocks": len(inside), "coverage_90": float(np.mean(inside))}
            scores |= {"naive_coverage_90": float(np.mean(naive)), "rows_coverage_90": float(np.mean(rows_inside))}
            found[f"{name} {kind}"] = scores
            print(name, kind, scores, flush=True)
    return found


def map_of_a_million() -> dict:
    X, y = (np.asarray(values, dtype=float) for values in datasets.load("britain_magnetic"))
    chosen = np.random.default_rng(0).permutation(len(X))[:MAP_ROWS]
    X, y = X[chosen], y[chosen]
    model = GPnnRegressor(random_state=0).fit(X, y)
    low, high = np.quantile(X, [0.02, 0.98], axis=0)
    axes = [np.linspace(first, last, 1000) for first, last in zip(low, high, strict=True)]
    cells = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    model.sample_y(cells[:3000], 2)  # compiled
    start = perf_counter()
    model.sample_y(cells, DRAWS)
    seconds = perf_counter() - start
    found = {"seconds": seconds, "peak_gib": (peak_memory() or 0) / 2**30, "neighbors": model.n_neighbors_}
    print("map", found, flush=True)
    return found


def against_gstools(n: int = 10_000, draws: int = 3) -> dict:
    """Conditional random fields at n places from n values: global kriging there, the nearest 48 rows here."""
    import gstools

    rng = np.random.default_rng(0)
    X, Z = rng.random((n, 2)), rng.random((n, 2))
    y = np.sin(6 * X[:, 0]) * np.cos(4 * X[:, 1]) + 0.1 * rng.standard_normal(n)
    model = process("exponential", 0.3, 0.01, X, y, 48)
    model.sample_y(Z[:3000], 2)
    start = perf_counter()
    model.sample_y(Z, draws, noise=False)
    ours = perf_counter() - start
    print("gpnn", n, ours, flush=True)
    start = perf_counter()
    field = gstools.Exponential(dim=2, var=1.0, len_scale=0.3)
    kriging = gstools.krige.Simple(field, X.T, y, cond_err=0.01, exact=False, pseudo_inv=False)
    conditional = gstools.CondSRF(kriging)
    conditional.set_pos(Z.T)
    for seed in range(draws):
        conditional(seed=seed, store=False)
    theirs = perf_counter() - start
    found = {"gpnn_seconds": ours, "gstools_seconds": theirs, "times": theirs / ours, "draws": draws, "rows": n}
    print("gstools", found, flush=True)
    return found


PARTS = {"exact": exact, "blocks": blocks, "map": map_of_a_million, "gstools": against_gstools}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--gstools-rows", type=int, help="fewer than 10⁴, which take it many minutes")
    args = parser.parse_args()
    if args.gstools_rows:
        PARTS["gstools"] = lambda: against_gstools(args.gstools_rows)
    for part in args.parts:
        write_results("joint", read_results("joint") | {part: PARTS[part]()})


if __name__ == "__main__":
    main()
