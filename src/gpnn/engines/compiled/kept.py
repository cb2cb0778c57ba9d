"""Where machine code is kept from one process to the next, so that a new one answers at once.

What predictions need is made when the package is installed (`hatch_build.py`) and lies in INSTALLED, which is only
read; what is compiled later goes to numba's own folders. Code from either is used only if it was made from these very
sources by the same versions of Python, numba, llvmlite and numpy (STAMP), for a CPU of the same name and features
(numba's key). Whatever differs, or cannot be read, is compiled anew.
"""

import hashlib
import sys
from contextlib import suppress
from pathlib import Path

import llvmlite
import numba
import numpy as np
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator
from numba.core.runtime import rtsys

PACKAGE = Path(__file__).parents[2]
ROOMS = ("common", "engines")  # all compiled functions are in engines, which imports from these alone
INSTALLED = Path(__file__).with_name("machine_code")


def _stamp() -> str:
    """Of all that is compiled: numba looks at one file, and functions of several are compiled into each other."""
    versions = (sys.version, numba.__version__, llvmlite.__version__, np.__version__)
    digest = hashlib.sha256("\n".join(versions).encode())
    for path in sorted(path for room in ROOMS for path in (PACKAGE / room).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


STAMP = _stamp()


class _Unwritable(_CacheLocator):
    """Where numba finds no folder to write to: what it compiles then serves this process alone."""

    def __init__(self, function, path):
        self._line = function.__code__.co_firstlineno

    from_function = classmethod(lambda cls, function, path: cls(function, path))

    def get_cache_path(self):
        return str(INSTALLED)

    def get_source_stamp(self):
        return STAMP

    def get_disambiguator(self):
        return str(self._line)


class _Folders(CompileResultCacheImpl):
    _locator_classes = [*CompileResultCacheImpl._locator_classes, _Unwritable]  # noqa: RUF012


class KeptCode(FunctionCache):
    """What numba asks for a function's machine code before it compiles, and gives it to afterwards."""

    _impl_class = _Folders

    def __init__(self, function):
        super().__init__(function)
        self._cache_file._source_stamp = STAMP
        self._installed = IndexDataCacheFile(str(INSTALLED), self._impl.filename_base, STAMP)

    def load_overload(self, sig, target_context):
        for files in (self._installed, self._cache_file):
            with suppress(Exception):  # damaged files can fail in any way, and there is always the compiler
                rtsys.initialize(target_context)  # all that code needs to run; a refresh is for the compiler, and slow
                found = files.load(self._index_key(sig, target_context.codegen()))
                if found is not None:
                    return self._impl.rebuild(target_context, found)
        return None

    def save_overload(self, sig, data):
        with suppress(Exception):  # a full disk, say, or one that may not be written to
            super().save_overload(sig, data)
