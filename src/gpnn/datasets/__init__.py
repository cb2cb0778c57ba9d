"""Data to try the method on."""

from gpnn.datasets.synthetic import oakley_ohagan

__all__ = ["oakley_ohagan"]
