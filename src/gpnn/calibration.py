"""Phase 2 (Algorithm 2): one factor on the variances of any Gaussian predictor."""

from dataclasses import replace

import numpy as np

from gpnn import metrics
from gpnn._types import Array, Prediction
from gpnn.errors import InvalidInputError


def variance_factor(y: Array, prediction: Prediction) -> float:
    """α = mean of (y* − μ*)²/σ*² over rows that were not used to make the prediction (Alg. 2, step 2)."""
    if len(prediction) == 0:
        raise InvalidInputError("Calibration needs at least one held-out row; got none.")
    alpha = metrics.calibration(y, prediction)
    if not (np.isfinite(alpha) and alpha > 0):
        raise InvalidInputError(
            f"Calibration gave α = {alpha}: every held-out row was predicted exactly, or a variance is zero. "
            "Check for rows that stand in the data twice; calibration_size=0 leaves this step out."
        )
    return alpha


def calibrate(prediction: Prediction, alpha: float) -> Prediction:
    """The same means, variances times α (Alg. 2's output, seen from the prediction)."""
    return replace(prediction, variance=alpha * prediction.variance)
