"""Machine code made elsewhere, earlier or of something else is never used; without any, there is the compiler."""

import shutil

import numba
import numpy as np
import pytest
from numba.core import config
from numba.core.registry import cpu_target

from gpnn.engines.compiled import jit, kept


def double(x):
    return 2 * x


@pytest.fixture
def first_call(tmp_path, monkeypatch):
    """Compiles, or finds, `double` in the folder of that name, and says whether it was found."""

    def call(folder: str) -> bool:
        monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / folder))
        function = jit(double)
        assert function(1.5) == 3.0
        return bool(function.stats.cache_hits)

    return call


@pytest.fixture
def installed(first_call, tmp_path, monkeypatch):
    """The code of `double`, as the wheel brings it."""
    folder = tmp_path / "installed"
    monkeypatch.setattr(kept, "INSTALLED", folder)
    assert not first_call("at build time")
    folder.mkdir()
    for file in (tmp_path / "at build time").rglob("*.nb[ci]"):
        shutil.copy(file, folder)
    return folder


def test_what_was_installed_is_used_and_nothing_is_written(installed, first_call, tmp_path):
    assert first_call("empty")
    assert not list((tmp_path / "empty").rglob("*.nb*"))


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setattr(kept, "STAMP", "of other sources"),
        lambda patch: patch.setattr(numba, "__version__", "0.0"),
        lambda patch: patch.setattr(type(cpu_target.target_context.codegen()), "magic_tuple", lambda self: "other CPU"),
    ],
    ids=["sources", "numba", "CPU"],
)
def test_what_was_made_of_or_for_something_else_is_not(installed, first_call, monkeypatch, change):
    with monkeypatch.context() as patch:
        change(patch)
        assert not first_call("empty")
        assert first_call("empty")  # compiled anew, and kept
    assert first_call("another")


@pytest.mark.parametrize("module", [np, kept.llvmlite], ids=["numpy", "llvmlite"])
def test_versions_are_part_of_the_stamp(monkeypatch, module):
    monkeypatch.setattr(module, "__version__", "0.0")
    assert kept._stamp() != kept.STAMP


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_damaged_files_are_passed_over(installed, first_call, suffix):
    for file in installed.glob(f"*.{suffix}"):
        file.write_bytes(file.read_bytes()[:50])
    assert not first_call("empty")
    assert first_call("empty")


def test_damaged_files_of_numbas_own_are_written_anew(first_call, tmp_path):
    first_call("own")
    for file in (tmp_path / "own").rglob("*.nbc"):
        file.write_bytes(b"")
    assert not first_call("own")
    assert first_call("own")


def test_where_nothing_can_be_written_code_is_compiled_and_forgotten(first_call, tmp_path, monkeypatch):
    monkeypatch.setattr(kept._Folders, "_locator_classes", (kept._Unwritable,))
    monkeypatch.setattr(kept, "INSTALLED", tmp_path / "file" / "folder")
    (tmp_path / "file").touch()
    assert not first_call("unused")
    assert not first_call("unused")
