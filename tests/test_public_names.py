"""What users import is where it always was, whatever room it lives in: one module object under both names."""

import pickle
import subprocess
import sys
from importlib import import_module

import pytest

import gpnn

CLASSES = [
    "AdaptiveIntervals", "Broad", "CalibratedRegressor", "GPnnRegressor", "GPnnWarning", "Hyperparameters",
    "InvalidInputError", "Prediction", "TableEncoder", "TableModel", "diagnose",
]  # fmt: skip
ROOMS = {
    "baselines": "baselines",
    "calibration": "stages.calibration",
    "datasets": "datasets",
    "diagnostics": "judging.diagnostics",
    "errors": "common.errors",
    "geography": "common.geography",
    "kernels": "common.kernels",
    "metrics": "common.metrics",
    "neighbors": "engines.cpu.neighbors",
    "persistence": "files.model",
    "plots": "judging.plots",
    "report": "judging.report",
    "simulation": "theory.simulation",
    "tables": "tables",
    "theory": "theory",
}
SUBMODULES = ["neighbors.cells", "simulation.laws", "plots.displays", "report.svg", "diagnostics.measure"]


def in_a_new_process(program: str) -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_names_are_listed():
    names = {*CLASSES, *ROOMS}
    assert set(dir(gpnn)) == {*names, "__version__"}
    assert set(gpnn.__all__) == names - {"TableEncoder", "TableModel", "tables"}  # which need an extra
    assert all(callable(getattr(gpnn, name)) for name in CLASSES)


def test_what_is_no_name():
    with pytest.raises(AttributeError, match="no attribute 'solvers'"):
        _ = gpnn.solvers
    with pytest.raises(ImportError):
        import_module("gpnn.solvers")
    with pytest.raises(ModuleNotFoundError, match="nothing"):
        import_module("gpnn.neighbors.nothing")


@pytest.mark.parametrize("name", ROOMS)
def test_a_short_name_is_the_module_in_its_room(name):
    there = import_module(f"gpnn.{ROOMS[name]}")
    assert getattr(gpnn, name) is import_module(f"gpnn.{name}") is there
    assert there.__name__ == there.__spec__.name == f"gpnn.{ROOMS[name]}"


def test_members_by_short_names():
    from gpnn.neighbors import IVF, Flat, KDTree
    from gpnn.neighbors.cells import Rows

    assert {kind.__module__ for kind in (IVF, Flat, KDTree, Rows)} == {
        f"gpnn.engines.cpu.neighbors.{name}" for name in ("ivf", "flat", "kdtree", "cells")
    }
    assert pickle.loads(pickle.dumps(IVF)) is IVF


@pytest.mark.parametrize("order", ["short names first", "rooms first"])
def test_no_module_is_read_twice(order):
    short = [f"gpnn.{name}" for name in (*SUBMODULES, *ROOMS)]
    rooms = [f"gpnn.{place}" for place in ROOMS.values()]
    first, then = (short, rooms) if order == "short names first" else (rooms, short)
    in_a_new_process(
        f"import sys; from importlib import import_module; [import_module(name) for name in {first + then}]\n"
        "files = [m.__file__ for m in set(sys.modules.values()) if getattr(m, '__name__', '').startswith('gpnn')]\n"
        "assert len(files) == len(set(files)), files"
    )


def test_import_reads_only_what_the_estimators_need():
    in_a_new_process(
        "import sys, gpnn\n"
        "unasked = ('baselines', 'theory', 'judging', 'datasets', 'tables', 'files', 'cli')\n"
        "early = [name for name in sys.modules if name.startswith(tuple('gpnn.' + room for room in unasked))]\n"
        "assert not early, early\n"
        "assert not {'torch', 'matplotlib', 'numba', 'sklearn.linear_model'} & set(sys.modules)\n"
        "import gpnn.plots\n"
        "assert gpnn.plots is sys.modules['gpnn.judging.plots'] and 'gpnn.tables' not in sys.modules\n"
        "from gpnn import *\n"
        "assert simulation is sys.modules['gpnn.theory.simulation'] and 'gpnn.tables' not in sys.modules"
    )
