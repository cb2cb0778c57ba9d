"""How good a prediction is. Each function takes the observed `y` and a Gaussian `Prediction`.

`mse`, `rmse`, `nll` and `calibration` are the paper's (section 3); `coverage`, `pit` and `crps` look at the whole law.
"""

import numpy as np
from scipy.special import ndtr, ndtri

from gpnn._types import Array, Prediction
from gpnn.errors import InvalidInputError


def mse(y: Array, prediction: Prediction) -> float:
    """Mean of e* = (y* − μ*)²."""
    return float(np.mean((_observed(y, prediction) - prediction.mean) ** 2))


def rmse(y: Array, prediction: Prediction) -> float:
    return float(np.sqrt(mse(y, prediction)))


def z_squared(y: Array, prediction: Prediction) -> Array:
    """z* = (y* − μ*)²/σ*², one per row."""
    return (_observed(y, prediction) - prediction.mean) ** 2 / prediction.variance


def nll(y: Array, prediction: Prediction) -> float:
    """Mean of l* = ½(log σ*² + z* + log 2π)."""
    return float(np.mean(0.5 * (np.log(prediction.variance) + z_squared(y, prediction) + np.log(2 * np.pi))))


def calibration(y: Array, prediction: Prediction) -> float:
    """Mean of z*: 1 when the variances are right on average ("weak calibration"), above 1 when too small."""
    return float(np.mean(z_squared(y, prediction)))


def coverage(y: Array, prediction: Prediction, level: float = 0.9) -> float:
    """The share of rows inside their central interval of probability `level`."""
    if not 0 < level < 1:
        raise InvalidInputError(f"coverage: level = {level} must lie strictly between 0 and 1, such as 0.9.")
    return float(np.mean(z_squared(y, prediction) <= ndtri(0.5 + level / 2) ** 2))


def pit(y: Array, prediction: Prediction) -> Array:
    """Probability integral transform Φ((y* − μ*)/σ*), one per row: uniform when the law is right."""
    return ndtr((_observed(y, prediction) - prediction.mean) / prediction.std)


def crps(y: Array, prediction: Prediction) -> float:
    """Continuous ranked probability score of the Gaussian law, mean over rows, in the units of y."""
    z = (_observed(y, prediction) - prediction.mean) / prediction.std
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return float(np.mean(prediction.std * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi))))


def _observed(y: Array, prediction: Prediction) -> Array:
    y = np.asarray(y, dtype=float)
    if y.shape != np.shape(prediction.mean):
        raise InvalidInputError(
            f"y has shape {y.shape} but the prediction has shape {np.shape(prediction.mean)}. "
            "Score the rows that were predicted, in the same order."
        )
    if y.size == 0 or not np.isfinite(y).all():
        raise InvalidInputError(
            f"y has {y.size} values, {int((~np.isfinite(y)).sum())} of them NaN or inf. "
            "A score needs at least one row, and only rows whose outcome is known."
        )
    return y
