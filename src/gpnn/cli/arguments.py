"""How the commands read their arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpnn.tables import TableModel


def whole_number(lowest: int) -> Callable[[str], int]:
    """A reader of integers from `lowest` on, also as 1e6 or 1_000_000."""

    def read(text: str) -> int:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not value.is_integer() or value < lowest:
            raise argparse.ArgumentTypeError(f"{text} is not a whole number, at least {lowest}")
        return int(value)

    return read


def seed(text: str) -> int:
    value = whole_number(0)(text)
    if value >= 2**32:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 2³² − 1")
    return value


def period(text: str) -> tuple[str, float]:
    """COLUMN=PERIOD."""
    name, _, value = text.rpartition("=")
    try:
        return name, float(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} is not COLUMN=PERIOD, as hour=24") from error


def add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", metavar="COLUMN", help="which one, if the model has several")


def loaded(args: argparse.Namespace, verbose: int = 1) -> TableModel:
    """The model that the command was given, to run where it says; of its targets the one that it names, if it can."""
    from gpnn.tables import TableModel

    model = TableModel.load(args.model)
    if hasattr(args, "target"):
        model = model.of(args.target)
    model.regressor.set_params(engine=args.engine, n_jobs=args.jobs, verbose=verbose)
    return model


def add_missing(parser: argparse.ArgumentParser) -> None:
    """What to do about missing values: args.missing is None, "impute" or "drop"."""
    choice = parser.add_mutually_exclusive_group()
    add = choice.add_argument
    add("--impute", dest="missing", action="store_const", const="impute",
        help="fill missing inputs with the median or the most frequent level of the training rows")  # fmt: skip
    add("--drop-missing", dest="missing", action="store_const", const="drop",
        help="leave out rows with missing values; predict gives empty predictions for them")  # fmt: skip


def add_engine(parser: argparse.ArgumentParser, whose: str = "(default: every core)") -> None:
    """Where the work runs: args.engine and args.jobs."""
    add = parser.add_argument
    add("--engine", choices=["cpu", "gpu"], default="cpu", help="gpu: an NVIDIA one, with gpnn[gpu] (default: cpu)")
    add("--jobs", type=whole_number(1), metavar="N", help=f"threads {whose}")
