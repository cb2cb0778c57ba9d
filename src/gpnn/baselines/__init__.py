"""The rivals of the paper, under the contract of `GPnnRegressor`: fit, predict, predict_distribution, evaluate."""

from gpnn.baselines.conjugate import ConjugateNNGP
from gpnn.baselines.exact import ExactGP, SubsetOfData
from gpnn.baselines.experts import BCM, GRBCM, RBCM, GPoE, PoE
from gpnn.baselines.variational import SVGP, VNNGP

__all__ = ["BCM", "GRBCM", "RBCM", "SVGP", "VNNGP", "ConjugateNNGP", "ExactGP", "GPoE", "PoE", "SubsetOfData"]
