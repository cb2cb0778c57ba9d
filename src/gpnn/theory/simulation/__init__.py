"""Algorithm 1: how GPnn performs on n rows, for n far beyond what could be generated, stored or searched.

A prediction at x* uses only its m nearest rows, so only those need to exist. Phase A (`draw`) draws them for many
queries, with values of a random field; phase B (`evaluate`) predicts with any assumed kernel and parameters. One
phase A serves any number of phases B; `sweep` runs both over a range of parameters and of n.
"""

from gpnn.theory.simulation.algorithm1 import Draws, draw, evaluate, expect
from gpnn.theory.simulation.samplers import SAMPLERS
from gpnn.theory.simulation.sweeps import sweep

__all__ = ["SAMPLERS", "Draws", "draw", "evaluate", "expect", "sweep"]
