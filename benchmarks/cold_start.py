"""The first answer of a new process, nothing cached: import, load a model file, predict one row. And what import costs.

python benchmarks/cold_start.py      # some minutes: `pip install .` into two fresh environments

One environment has the machine code that is made during installation, the other has none and compiles. Each process is
given an empty folder for numba's cache. Where others use the machine too, the shortest time says more than the median.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

from gpnn import GPnnRegressor, Hyperparameters
from report import write_results

ROOT = Path(__file__).parent.parent
PROCESSES, COMPILING = 9, 3
KINDS = {"exact": (8, 30_000), "inverted file": (30, 40_000)}  # columns and rows

ANSWER = """
from time import perf_counter, process_time
start = perf_counter()
import gpnn
model = gpnn.GPnnRegressor.load({path!r})
mean, std = model.predict({row}, return_std=True)
print(perf_counter() - start, process_time(), mean[0], std[0])
"""
IMPORT = """
from time import perf_counter
start = perf_counter()
import sklearn.base
between = perf_counter()
from gpnn import GPnnRegressor
print(between - start, perf_counter() - between)
"""


def make(d: int, n: int) -> GPnnRegressor:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(n)
    model = GPnnRegressor(params=Hyperparameters(2.0, 0.9, 0.01), kernel="matern32", n_neighbors=100, random_state=0)
    return model.fit(X, y)


def install(folder: Path, **environment: str) -> tuple[Path, float]:
    """Into an environment of its own; its Python, and the seconds that pip took."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    constraints = dict.fromkeys(("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT"), str(ROOT / "constraints.txt"))
    start = perf_counter()
    command = [python, "-m", "pip", "install", "--quiet", ROOT]
    subprocess.run(command, check=True, env=os.environ | constraints | environment)
    return python, perf_counter() - start


def new_process(python: Path, program: str, folder: Path) -> list[float]:
    """What the program prints, run where there is no cache of any kind."""
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        environment = {"PATH": os.environ["PATH"], "HOME": cache, "NUMBA_CACHE_DIR": cache}
        run = subprocess.run([python, "-c", program], env=environment, capture_output=True, text=True, cwd=folder)
    if run.returncode:
        raise SystemExit(run.stderr)
    return [float(word) for word in run.stdout.split()]


def main() -> None:
    results: dict = {"processes": PROCESSES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pure, results["install_seconds_without"] = install(folder / "pure", HATCH_BUILD_NO_HOOKS="1")
        python, results["install_seconds"] = install(folder / "whole")
        new_process(python, IMPORT, folder)  # the files are in memory from here on
        imports = np.array([new_process(python, IMPORT, folder) for _ in range(PROCESSES)])
        for column, name in enumerate(("import_sklearn_base", "import_gpnn_above")):
            results[name] = {"shortest": imports[:, column].min(), "median": float(np.median(imports[:, column]))}
        for kind, (d, n) in KINDS.items():
            model, path = make(d, n), folder / kind
            model.save(path)
            expected = [float(value[0]) for value in model.predict(np.zeros((1, d)), return_std=True)]
            program = ANSWER.format(path=str(path), row=[[0.0] * d])
            results[kind] = {"rows": n, "columns": d, "index": model.fit_report_["index"]}
            for how, which, count in (("installed", python, PROCESSES), ("compiling", pure, COMPILING)):
                new_process(which, IMPORT, folder)
                answers = [new_process(which, program, folder) for _ in range(count)]
                if any(answer[2:] != expected for answer in answers):
                    raise SystemExit(f"{kind}, {how}: not the same bits: {answers}, {expected}")
                seconds, on_cpu = ([answer[k] for answer in answers] for k in (0, 1))
                results[kind][how] = {
                    "shortest": min(seconds), "median": float(np.median(seconds)), "each": seconds,
                    "cpu_median": float(np.median(on_cpu)), "load_average": os.getloadavg()[0],
                }  # fmt: skip
            print(kind, json.dumps(results[kind]), flush=True)
    print("bar: the first answer in 3 s (moonshot 2 s); import at most 0.2 s above sklearn.base")
    print(json.dumps({name: value for name, value in results.items() if name not in KINDS}))
    write_results("cold_start", results)


if __name__ == "__main__":
    main()
