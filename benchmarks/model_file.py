"""How fast a model of 10⁷ rows is saved and opened, and why xxhash is not a dependency.

pip install xxhash && python benchmarks/model_file.py [rows]        # 1 GB of memory and of disk for 10⁷ rows

The rows are random and the cells arbitrary: as many bytes as in a real model, with nothing to fit. Files are opened in
processes of their own, with the file in the page cache.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import zlib
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
import xxhash

from gpnn import GPnnRegressor, Hyperparameters
from gpnn.engines.cpu.neighbors.cells import STRIP, Rows, row_numbers
from gpnn.engines.parallel import blocks, for_each_block
from gpnn.neighbors import IVF
from report import best, write_results

D, CELLS, BLOCK = 15, 6324, 2**22
HASHES = {
    "zlib.crc32": zlib.crc32,
    "xxhash.xxh3_64": xxhash.xxh3_64_intdigest,
    "hashlib.sha256": lambda part: hashlib.sha256(part).digest(),
    "hashlib.blake2b": lambda part: hashlib.blake2b(part).digest(),
}
OPEN = """
import json, sys
from time import perf_counter
import numpy as np
from gpnn import GPnnRegressor

def own_megabytes():  # without what is mapped from files
    lines = (line.split() for line in open("/proc/self/smaps_rollup"))
    return sum(int(line[1]) for line in lines if line[0] == "Anonymous:") / 1024

before, start = own_megabytes(), perf_counter()
model = GPnnRegressor.load(sys.argv[1], sys.argv[2] == "True")
loaded = perf_counter()
memory = own_megabytes() - before
predicting = perf_counter()
model.predict(np.zeros((1, model.n_features_in_)))
done = perf_counter()
print(json.dumps({"seconds": loaded - start, "first_prediction": done - predicting, "own_megabytes": memory}))
"""


def make(n: int) -> GPnnRegressor:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, D))
    params = Hyperparameters(1.0, 0.9, 0.1)
    model = GPnnRegressor(params=params, index="ivf", n_neighbors=100, random_state=0).fit(X, X[:, 0])
    rows = Rows.allocate(n, D)
    for part in blocks(n, 2**16):
        rows[part] = rng.standard_normal(rows[part].shape, dtype=np.float32)
    index = IVF()
    index.order, index._rows = row_numbers(n), Rows.pack(rows)
    index._starts = np.linspace(0, n, CELLS + 1).astype(np.int64)
    index._centres = Rows.pack(rng.standard_normal((CELLS, D), dtype=np.float32))
    index.n_probed = max(20, -(-CELLS * 100 * STRIP // n))
    model.index_, model._y = index, rng.standard_normal(n)
    return model


def opened(path: Path, verify: bool) -> dict:
    run = [sys.executable, "-W", "ignore", "-c", OPEN, str(path), str(verify)]
    times = [json.loads(subprocess.run(run, capture_output=True, check=True, text=True).stdout) for _ in range(3)]
    return {"verify": verify, **{name: min(time[name] for time in times) for name in times[0]}}


def hash_seconds(content: np.ndarray) -> list[dict]:
    rows = []
    for name, digest in HASHES.items():
        for n_jobs in (1, None):
            loop = partial(for_each_block, lambda part, digest=digest: digest(content[part].data), len(content), BLOCK)
            rows.append({"hash": name, "threads": n_jobs or "all", "seconds": best(partial(loop, n_jobs), 2)})
    return rows


def main() -> None:
    n = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10**7
    model = make(n)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = Path(folder) / "model.gpnn"
        start = perf_counter()
        model.save(path)
        saved = perf_counter() - start
        del model
        size = path.stat().st_size
        opening = [opened(path, verify) for verify in (True, False)]
        hashing = hash_seconds(np.memmap(path, np.uint8, mode="r"))
    print(f"{n:,} rows, {size / 1e6:,.0f} MB: saved in {saved:.2f} s")
    for row in opening:
        print(
            f"verify={row['verify']}: opened in {row['seconds']:.3f} s with {row['own_megabytes']:.1f} MB of memory, "
            f"first prediction {row['first_prediction']:.2f} s"
        )
    for row in hashing:
        speed = size / row["seconds"] / 1e9
        print(f"{row['hash']:16s} threads: {row['threads']:>3}  {row['seconds']:.3f} s, {speed:.2f} GB/s")
    write_results("model_file", {"rows": n, "bytes": size, "save_seconds": saved, "open": opening, "hash": hashing})


if __name__ == "__main__":
    main()
