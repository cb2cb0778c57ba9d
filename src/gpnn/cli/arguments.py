"""How the commands read their arguments."""

import argparse
from collections.abc import Callable


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
