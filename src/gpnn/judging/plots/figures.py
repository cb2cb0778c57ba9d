"""Where figures come from: matplotlib, which is asked for only when something is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpnn.common.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MISSING = "Figures need matplotlib. Install it with: pip install 'gpnn[plots]'"


def new_figure() -> Figure:
    """An empty figure that belongs to no window and leaves pyplot's state alone."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(_MISSING) from error
    return Figure(layout="constrained")


def axes_or_new(ax: Axes | None) -> Axes:
    """`ax` itself, or those of a new pyplot figure, which notebooks and plt.show() find."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingExtraError(_MISSING) from error
    return plt.subplots(layout="constrained")[1]
