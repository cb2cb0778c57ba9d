"""How good a prediction is. Each function takes the observed `y` and a `Prediction`, Gaussian or Student-t.

`mse`, `rmse`, `nll` and `calibration` are the paper's (section 3), `nll` for Gaussian laws only; `log_score`,
`coverage`, `pit` and `crps` look at the whole law, whichever it is.
"""

import numpy as np
from scipy.special import betaln, ndtr, ndtri, stdtr, stdtrit

from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Array, Prediction

__all__ = ["calibration", "coverage", "crps", "log_score", "mse", "nll", "observed", "pit", "rmse", "z_squared"]

_CRPS_LEVELS = (np.arange(200) + 0.5) / 200


def mse(y: Array, prediction: Prediction) -> float:
    """Mean of e* = (y* − μ*)²."""
    return float(np.mean((observed(y, prediction) - prediction.mean) ** 2))


def rmse(y: Array, prediction: Prediction) -> float:
    return float(np.sqrt(mse(y, prediction)))


def z_squared(y: Array, prediction: Prediction) -> Array:
    """z* = (y* − μ*)²/σ*², one per row; on the scale on which the law is Gaussian."""
    if prediction.inner is not None:
        return _standardised(y, prediction)[0] ** 2
    return (observed(y, prediction) - prediction.mean) ** 2 / prediction.variance


def nll(y: Array, prediction: Prediction) -> float:
    """Mean of l* = ½(log σ*² + z* + log 2π), the negative log density of a Gaussian law."""
    if prediction.degrees_of_freedom is not None:
        raise InvalidInputError(
            f"nll is that of a Gaussian law, but this one is Student-t ({prediction.degrees_of_freedom:g} degrees of "
            "freedom): it would score a law that was not predicted. Use metrics.log_score, the same score for any law."
        )
    return log_score(y, prediction)


def log_score(y: Array, prediction: Prediction) -> float:
    """Mean negative log density of the law itself; for a Gaussian one it is `nll`."""
    z, scale = _standardised(y, prediction)
    return float(np.mean(np.log(scale) - _log_density(z, prediction)))


def calibration(y: Array, prediction: Prediction) -> float:
    """Mean of z*: 1 when the variances are right on average ("weak calibration"), above 1 when too small."""
    return float(np.mean(z_squared(y, prediction)))


def coverage(y: Array, prediction: Prediction, level: float = 0.9) -> float:
    """The share of rows inside their central interval of probability `level`."""
    if not 0 < level < 1:
        raise InvalidInputError(f"coverage: level = {level} must lie strictly between 0 and 1, such as 0.9.")
    nu = prediction.degrees_of_freedom
    farthest = ndtri(0.5 + level / 2) if nu is None else stdtrit(nu, 0.5 + level / 2)
    return float(np.mean(np.abs(_standardised(y, prediction)[0]) <= farthest))


def pit(y: Array, prediction: Prediction) -> Array:
    """Probability integral transform F((y* − μ*)/scale), one per row: uniform when the law is right."""
    return _distribution(_standardised(y, prediction)[0], prediction)


def crps(y: Array, prediction: Prediction) -> float:
    """Continuous ranked probability score, mean over rows, in the units of y."""
    if prediction.inner is not None:
        return _crps_of_quantiles(y, prediction)
    z, scale = _standardised(y, prediction)
    nu = prediction.degrees_of_freedom
    tails, spread = np.ones_like(z), 1 / np.sqrt(np.pi)
    if nu is not None:
        tails = (nu + z**2) / (nu - 1)
        spread = 2 * np.sqrt(nu) / (nu - 1) * np.exp(betaln(0.5, nu - 0.5) - 2 * betaln(0.5, nu / 2))
    inside = 2 * _distribution(z, prediction) - 1
    return float(np.mean(scale * (z * inside + 2 * tails * np.exp(_log_density(z, prediction)) - spread)))


def _crps_of_quantiles(y: Array, prediction: Prediction) -> float:
    """Twice the mean pinball loss over many levels."""
    assert prediction.inner is not None
    assert prediction.scale is not None
    y, law, total = observed(y, prediction), prediction.inner, 0.0
    for level in _CRPS_LEVELS:
        excess = y - prediction.scale.back(law.mean + law.std * ndtri(level))
        total += float(np.mean(np.maximum(level * excess, (level - 1) * excess)))
    return 2 * total / len(_CRPS_LEVELS)


# --- the two standard laws --------------------------------------------------------------------------------------------


def _standardised(y: Array, prediction: Prediction) -> tuple[Array, Array]:
    """(y* − μ*)/scale and the scale: σ*, or σ*√((ν − 2)/ν) for Student-t, whose standard law has variance ν/(ν − 2)."""
    if prediction.inner is not None and prediction.scale is not None:  # densities of T(y) times T's slope
        y, law, map_to = observed(y, prediction), prediction.inner, prediction.scale
        return (map_to(y) - law.mean) / law.std, law.std * np.exp(-map_to.log_slope(y))
    nu = prediction.degrees_of_freedom
    scale = prediction.std if nu is None else prediction.std * np.sqrt((nu - 2) / nu)
    return (observed(y, prediction) - prediction.mean) / scale, scale


def _log_density(z: Array, prediction: Prediction) -> Array:
    nu = prediction.degrees_of_freedom
    if nu is None:
        return -0.5 * (z**2 + np.log(2 * np.pi))
    return -0.5 * ((nu + 1) * np.log1p(z**2 / nu) + np.log(nu)) - betaln(0.5, nu / 2)


def _distribution(z: Array, prediction: Prediction) -> Array:
    nu = prediction.degrees_of_freedom
    return ndtr(z) if nu is None else stdtr(nu, z)


def observed(y: Array, prediction: Prediction) -> Array:
    """y as floats, if it can be scored: one finite number for each row that was predicted."""
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
