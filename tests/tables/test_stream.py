"""A table goes through `gpnn predict` in a stream: its length costs time, not memory."""

import subprocess
import sys

import numpy as np
import pyarrow.parquet

_PROGRAM = """
import resource, sys
import numpy as np
from gpnn import GPnnRegressor, Prediction
from gpnn.cli import main

def instant(self, X, noise=None):  # so that what surrounds it is measured
    return Prediction(X["size"].to_numpy(), np.ones(len(X)))

GPnnRegressor.predict_distribution = instant
assert main(["predict", *sys.argv[1:]]) == 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
_BLOCK = 1000


def write_csv(path, make_frame, n_blocks: int) -> None:
    """The same rows again and again, but numbered in the column `size`."""
    lines = make_frame(_BLOCK).drop(columns=["price", "size"]).to_csv(index=False).splitlines()
    with open(path, "w") as file:
        file.write(f"size,{lines[0]}\n")
        for block in range(n_blocks):
            file.writelines(f"{block * _BLOCK + row},{line}\n" for row, line in enumerate(lines[1:]))


def test_memory_does_not_grow_with_the_table(model_file, make_frame, tmp_path):
    megabytes = []
    for n_blocks in (300, 1200):
        table, out = tmp_path / "table.csv", tmp_path / f"{n_blocks}.parquet"
        write_csv(table, make_frame, n_blocks)
        arguments = [sys.executable, "-c", _PROGRAM, model_file, table, "--out", out, "--jobs", "1"]
        run = subprocess.run(arguments, capture_output=True, text=True, check=True)
        megabytes.append(int(run.stdout))
        means = pyarrow.parquet.read_table(out, columns=["mean"])["mean"].to_numpy()
        np.testing.assert_array_equal(means, np.arange(n_blocks * _BLOCK))  # every row, in order
    encoded = 900 * _BLOCK * 12 * 8 / 2**20  # what the added rows are as numbers; as texts they are more
    assert megabytes[1] - megabytes[0] < 0.6 * encoded
