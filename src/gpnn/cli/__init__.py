"""The command line: a thin skin over the library. Results to stdout, everything else to stderr."""

import argparse
import os
import sys
import warnings
from functools import cache

from gpnn import __version__
from gpnn.cli import (
    datasets,
    demo,
    evaluate,
    explain,
    fit,
    inspect,
    map,
    predict,
    recalibrate,
    report,
    sample,
    serve,
    simulate,
    update,
)
from gpnn.common.errors import DeviceError, GPnnWarning, InvalidInputError, MissingExtraError

# Each has add_to(commands), which sets the function to run.
_COMMANDS = (
    fit, predict, sample, map, evaluate, explain, report, recalibrate, update, inspect, serve, demo,
    simulate, datasets,
)  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    with warnings.catch_warnings():
        warnings.simplefilter("always", GPnnWarning)
        warnings.showwarning = _show_warning
        return _run(args)


@cache
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpnn", description=__doc__)
    parser.add_argument("--version", action="version", version=f"gpnn {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for command in _COMMANDS:
        command.add_to(commands)
    return parser


def _run(args: argparse.Namespace) -> int:
    try:
        args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that Python's own last flush is silent
        return 141
    except (DeviceError, InvalidInputError, MissingExtraError, OSError) as error:
        _say(str(error))
        return 2
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    return 0


def _show_warning(message, *_, **__) -> None:
    _say(f"warning: {message}")


def _say(text: str) -> None:
    """One line on stderr, whatever a file has put into it."""
    line = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in " ".join(text.split()))
    print(f"gpnn: {line}", file=sys.stderr)
