#!/usr/bin/env bash
# Wheel and sdist: built into dist/, installed into a fresh environment, tried from another folder. The wheel serves every
# platform and compiles when it is first used; the sdist brings machine code for the machine that it is installed on.
# Usage: tests/packaging/check.sh PYTHON, where PYTHON has the package `build`. Called by `make package`.
set -euo pipefail
python=$(realpath --no-symlinks "${1:?which python?}")
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

rm -rf "$root/dist"
HATCH_BUILD_NO_HOOKS=1 "$python" -m build --outdir "$root/dist" "$root" > "$work/build.log" 2>&1 || { tail -40 "$work/build.log"; exit 1; }
wheel=$(echo "$root"/dist/*.whl) sdist=$(echo "$root"/dist/*.tar.gz)

"$python" -m venv "$work/fresh"
# For what builds, too (newer versions of pip have a name of their own for that): other versions' code would be passed over.
export PIP_CONSTRAINT="$root/constraints.txt" PIP_BUILD_CONSTRAINT="$root/constraints.txt"
install=("$work/fresh/bin/python" -m pip install --quiet --disable-pip-version-check)
for package in "$wheel" "$sdist"; do
  "${install[@]}" "$package" # what it depends on is kept from one to the other
  (cd "$work" && fresh/bin/gpnn --version && fresh/bin/python -W error -I "$root/tests/packaging/try_it.py")
  echo "$(basename "$package"): installs, imports, fits"
  [ "$package" = "$wheel" ] || (cd "$work" && fresh/bin/python -W error -I "$root/tests/packaging/first_answer.py")
  "$work/fresh/bin/python" -m pip uninstall --quiet --yes gpnn
done
"$python" "$root/tests/packaging/contents.py" "$wheel" "$sdist"
