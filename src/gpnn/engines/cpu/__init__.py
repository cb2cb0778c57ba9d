"""On the processor: indexes that find neighbours, and a solver for their systems, compiled."""

from gpnn.engines.cpu.engine import CPU

__all__ = ["CPU"]
