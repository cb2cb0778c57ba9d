"""Imports point one way: a module uses those above it, never those below."""

import ast
from pathlib import Path

import gpnn

LAYERS = [
    {"_types", "errors", "_extras", "_files", "_provenance"},
    {"_compiled", "_parallel"},
    {"_container"},
    {"kernels", "metrics", "reliability"},
    {"whitening", "means", "shapes", "estimation", "neighbors", "solvers", "calibration"},
    {"holdout", "refinement", "selection"},
    {"_validation", "_contract", "theory"},
    {"regressor", "persistence", "calibrated", "baselines", "simulation"},
    {"datasets"},
    {"tables", "diagnostics"},
    {"plots", "report"},
    {"cli"},
]
ROOT = Path(gpnn.__file__).parent


def unit(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imported(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "gpnn":
                yield from (f"gpnn.{alias.name}" for alias in node.names)
            else:
                yield node.module


def test_imports_point_upwards():
    level = {name: number for number, names in enumerate(LAYERS) for name in names}
    wrong = []
    for path in ROOT.rglob("*.py"):
        here = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if here == "__init__":
            continue
        for module in imported(path):
            there = unit(module)
            if module.startswith("gpnn.") and there in level and there != here and level[there] > level[here]:
                wrong.append(f"{here} imports {module}")
    assert not wrong


def test_every_module_has_its_place():
    level = {name for names in LAYERS for name in names}
    modules = [path for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    found = {path.name.removesuffix(".py") for path in modules}
    assert found - {"__init__"} == level
