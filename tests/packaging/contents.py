"""What wheel and sdist hold, and what they must not: python tests/packaging/contents.py WHEEL SDIST"""

import sys
import tarfile
import zipfile

with zipfile.ZipFile(sys.argv[1]) as archive:
    wheel = set(archive.namelist())
with tarfile.open(sys.argv[2]) as source:
    sdist = {name.partition("/")[2] for name in source.getnames()}

strays = {name for name in wheel if not name.startswith("gpnn") or "__pycache__" in name}
assert not strays, f"in the wheel, but not part of the package: {sorted(strays)[:10]}"
assert {"gpnn/py.typed", "gpnn/regressor/__init__.py", "gpnn/cli/__main__.py"} <= wheel
assert any(name.endswith("licenses/LICENSE") for name in wheel)

assert {"src/gpnn/py.typed", "tests/test_docs.py", "docs/conf.py", "docs/index.md", "examples/README.rst", "Makefile",
        "CHANGELOG.md", "CITATION.cff", "LICENSE", "hatch_build.py"} <= sdist  # fmt: skip
built = {name for name in sdist if name.startswith(("docs/_build", "docs/gallery", ".venv")) or "__pycache__" in name}
assert not built, f"in the sdist, but made by a build: {sorted(built)[:10]}"
print(f"wheel: {len(wheel)} files; sdist: {len(sdist)}")
