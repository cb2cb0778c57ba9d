"""Why faiss is not a dependency: exact and inverted-file search for m = 400 in 10⁶ rows of 15 columns, side by side.

pip install faiss-cpu && python benchmarks/against_faiss.py        # about one minute
"""

import faiss
import numpy as np

from gpnn.engines.cpu.neighbors.cells import Rows
from gpnn.engines.parallel import for_each_block
from gpnn.neighbors import IVF, Flat
from report import best, write_results

N, D, M, QUERIES = 10**6, 15, 400, 500


def ms_per_query(search):
    return best(search, 3) / QUERIES * 1e3


def main():
    rng = np.random.default_rng(0)
    X, queries, probes = (rng.standard_normal((n, D), dtype=np.float32) for n in (N, QUERIES, 1000))
    flat = faiss.IndexFlatL2(D)
    flat.add(X)
    true = flat.search(queries, M)[1]
    share = lambda found: np.mean([len(np.intersect1d(a, b)) for a, b in zip(found, true, strict=True)]) / M  # noqa: E731
    results = [{"engine": "faiss flat", "ms_per_query": ms_per_query(lambda: flat.search(queries, M)), "recall": 1.0}]

    inverted = faiss.IndexIVFFlat(faiss.IndexFlatL2(D), D, 4096)
    inverted.train(X[: 64 * 4096])
    inverted.add(X)
    for inverted.nprobe in (128, 256, 384, 512):
        found = inverted.search(queries, M)[1]
        ms = ms_per_query(lambda: inverted.search(queries, M))
        results.append(
            {"engine": f"faiss IVF, {inverted.nprobe} of 4096 cells", "ms_per_query": ms, "recall": share(found)}
        )

    for spec in (Flat(), IVF(recall=0.98)):
        rows = Rows.allocate(N, D)
        rows[:] = X
        index = spec.build(rows, M, probes)
        found = index.order[index.query(queries, M).indices]
        ms = ms_per_query(
            lambda index=index: for_each_block(lambda part: index.query(queries[part], M), QUERIES, 64, None)
        )
        results.append({"engine": f"gpnn {type(spec).__name__}", "ms_per_query": ms, "recall": share(found)})
    for row in results:
        print(f"{row['engine']:34s} {row['ms_per_query']:8.3f} ms a query, recall {row['recall']:.4f}")
    write_results("against_faiss", results)


if __name__ == "__main__":
    main()
