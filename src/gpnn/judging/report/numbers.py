"""Numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float, digits: int = 3) -> str:
    """To so many significant digits: 0.0213, −3.6, 38.2, 1,240, 2.1·10⁻⁷."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    if not -4 <= size < 9:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa}·10{str(int(exponent)).translate(_SUPERSCRIPTS)}".replace("-", "−")
    return f"{value:,.{max(0, digits - 1 - size)}f}".replace("-", "−")


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def digits_of(share: float, least: int) -> int:
    """As many as tell a share from 1, and at least so many: 3 for 0.955, 4 for 0.9996."""
    return next((digits for digits in range(least, 9) if share >= 1 or round(share, digits) < 1), 9)


def seconds(value: float) -> str:
    if value < 0.001:
        return "< 1 ms"
    if value < 1:
        return f"{1000 * value:.0f} ms"
    return f"{value:.1f} s" if value < 60 else f"{value / 60:.1f} min" if value < 3600 else f"{value / 3600:.1f} h"


def size(n_bytes: float) -> str:
    for unit in ("B", "kB", "MB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:,.3g} GB"


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Short, and all with the same decimals; thousands and millions as k and M."""
    largest = max((abs(tick) for tick in ticks), default=0.0)
    step = min((abs(b - a) for a, b in pairwise(ticks)), default=largest) or 1.0
    if largest != 0 and not 1e-4 <= largest < 1e9:
        return [number(tick, 2) for tick in ticks]
    unit, suffix = (1e6, "M") if largest >= 1e6 else (1e3, "k") if largest >= 1e4 else (1.0, "")
    if step < unit / 1000:
        unit, suffix = 1.0, ""
    exact = (k for k in range(9) if all(abs(round(tick / unit, k) - tick / unit) < 1e-6 * step for tick in ticks))
    decimals = next(exact, 9)
    return [f"{tick / unit:,.{decimals}f}{suffix if tick else ''}".replace("-", "−") for tick in ticks]
