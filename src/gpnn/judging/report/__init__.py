"""A diagnosis as one HTML page that needs nothing else: no network, no script, no matplotlib."""

from pathlib import Path

from gpnn.files.whole import whole_or_nothing
from gpnn.judging.diagnostics import Diagnostics
from gpnn.judging.report.page import html

__all__ = ["html", "write"]


def write(diagnostics: Diagnostics, path: str | Path) -> None:
    """The page at `path`, whole or not at all: `write(diagnose(model, X_test, y_test), "report.html")`."""
    with whole_or_nothing(Path(path)) as unfinished:
        unfinished.write_text(html(diagnostics), encoding="utf-8")
