"""What `TableModel.fit` is told, and what its files say: which columns are what, and whether they can be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpnn.common.errors import InvalidInputError, listed
from gpnn.regressor import GPnnRegressor
from gpnn.tables.reading import Table

POLICIES = ("error", "impute", "drop")
"""What to do where a value is missing. Whichever it is, a row without target is of no use to `fit`: "impute" and "drop"
leave it out."""


def named_once(target: str | Sequence[str]) -> tuple[str, ...]:
    targets = (target,) if isinstance(target, str) else tuple(target)
    if not targets or len(set(targets)) < len(targets):
        raise InvalidInputError(f"Name one target, or several that differ; got {listed(list(targets)) or 'none'}.")
    return targets


def named_in(target: Any, regressor: GPnnRegressor) -> str | tuple[str, ...]:
    """What a file calls the targets; empty if that cannot be."""
    several = getattr(regressor, "targets_", ())
    if not several:
        return target if isinstance(target, str) else ()
    fits = isinstance(target, list) and len(target) == len(several) and all(isinstance(name, str) for name in target)
    return tuple(target) if fits else ()


def choose(table: Table, targets: Sequence[str], features: list[str] | None, ignore: list[str]) -> list[str]:
    """The input columns, by name."""
    table.require(list(targets), "Name the target with --target.")
    table.require(ignore, "It was to be ignored.")
    if features is not None:
        table.require(features, "It was asked for as a feature.")
        for target in targets:
            if target in features:
                raise InvalidInputError(f"{target!r} is the target; it cannot be a feature too.")
    names = [name for name in dict.fromkeys(features or table.types) if name not in (*targets, *ignore)]
    if not names:
        raise InvalidInputError(
            f"{table.name} has no column to learn {listed(list(targets))} from. It has: {listed(list(table.types))}."
        )
    return names


def check_stream(out, told: dict[str, str | None]) -> None:
    if out is None:
        raise InvalidInputError("memory = … is for models that are written as they are made: say where with out=….")
    if said := [name for name, value in told.items() if value is not None]:
        raise InvalidInputError(
            f"{listed(said)}: not for a stream. Fit without memory (--memory), on a sample of the rows if all are too "
            "many."
        )


def check_policy(missing: str) -> None:
    if missing not in POLICIES:
        raise InvalidInputError(f"missing = {missing!r} is unknown. Choose one of: {', '.join(POLICIES)}.")
