"""The command line: a thin skin over the library. Results to stdout, everything else to stderr."""

import argparse
import sys

from gpnn import __version__
from gpnn.cli import datasets, demo, simulate
from gpnn.errors import InvalidInputError, MissingExtraError

_COMMANDS = (demo, simulate, datasets)  # each has add_to(commands), which sets the function to run


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gpnn", description=__doc__)
    parser.add_argument("--version", action="version", version=f"gpnn {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for command in _COMMANDS:
        command.add_to(commands)
    args = parser.parse_args(argv)
    try:
        args.run(args)
    except (InvalidInputError, MissingExtraError, OSError) as error:
        print(f"gpnn: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gpnn: interrupted", file=sys.stderr)
        return 130
    return 0
