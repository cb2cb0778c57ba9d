"""The paper's rivals, each an estimator with the contract of GPnnRegressor."""

from gpnn.baselines.variational import SVGP, VNNGP

__all__ = ["SVGP", "VNNGP"]
