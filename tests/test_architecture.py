"""Rooms: few enough to read at a glance, each importing only from those before it."""

import ast
from pathlib import Path

import gpnn
from gpnn.engines.compiled import kept

ROOMS = [
    {"common"},
    {"engines"},
    {"stages"},
    {"regressor", "files"},  # a model saves itself, and a file holds a model
    {"calibrated", "baselines", "theory", "dask"},
    {"datasets", "tables", "judging"},
    {"serve"},
    {"cli"},
]
LEVEL = {room: number for number, rooms in enumerate(ROOMS) for room in rooms}
ROOT = Path(gpnn.__file__).parent


def imported(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "gpnn":
            yield from (f"gpnn.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "."


def test_a_room_imports_from_those_before_it_alone():
    wrong = []
    for path in ROOT.rglob("*.py"):
        here = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for module in imported(path):
            package, _, rest = module.partition(".")
            there = rest.partition(".")[0]
            if here == "__init__" or package != "gpnn" or there in ("", "__version__", here):
                continue
            if there not in LEVEL:
                wrong.append(f"{path.relative_to(ROOT)} imports {module} by its public name, not from its room")
            elif LEVEL[there] >= LEVEL[here] and {here, there} != {"regressor", "files"}:
                wrong.append(f"{path.relative_to(ROOT)} imports {module}, which does not come before it")
    assert not wrong


def test_every_room_has_its_place_and_they_are_few():
    entries = {path.name for path in ROOT.iterdir()} - {"__pycache__"}
    assert {name.removesuffix(".py") for name in entries} - {"__init__", "py.typed"} == set(LEVEL)
    assert len(entries) <= 16


def test_compiled_code_is_made_anew_when_anything_it_may_contain_changes():
    assert kept.PACKAGE == ROOT
    can_be_imported = {room for room, level in LEVEL.items() if level <= LEVEL["engines"]}
    assert set(kept.ROOMS) == can_be_imported
    elsewhere = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in kept.ROOMS]
    compiling = {"numba", "gpnn.engines.compiled"}
    assert not [path for path in elsewhere if compiling & set(imported(path))]
