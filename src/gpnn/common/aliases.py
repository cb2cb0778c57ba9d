"""Short names of modules: `import gpnn.plots` gives the module that lives in gpnn.judging.plots, not a second copy."""

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class Aliases(MetaPathFinder, Loader):
    """Finds modules below `package` by short names, and what lies within them; `places` says where each one lives."""

    def __init__(self, package: str, places: Mapping[str, str]) -> None:
        self.package, self.places = package, places

    def find_spec(self, fullname, path=None, target=None) -> ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        short, dot, inside = rest.partition(".")
        if package != self.package or short not in self.places:
            return None
        return ModuleSpec(fullname, self, origin=self.places[short] + dot + inside)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(str(spec.origin))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It ran where it lives; the import system has replaced its spec on the way here, which is taken back."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def install(package: str, places: Mapping[str, str]) -> None:
    """Before the finder of files, which would read the modules within a short-named package once more."""
    sys.meta_path.insert(0, Aliases(package, places))
