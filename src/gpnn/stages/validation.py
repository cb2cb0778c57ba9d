"""What the estimators accept. Every refusal says what is wrong, where, and what to do about it."""

import numbers

import numpy as np
from sklearn.utils.validation import validate_data

from gpnn.common.errors import InvalidInputError, listed
from gpnn.common.kernels import get_kernel, get_kernel_or_sum
from gpnn.common.scales import SCALES
from gpnn.common.types import Hyperparameters
from gpnn.engines import check_engine
from gpnn.engines.parallel import blocks, n_threads
from gpnn.stages.estimation import OPTIMIZERS
from gpnn.stages.suspects import CHOICES
from gpnn.stages.whitening import WHITENINGS

_BLOCK = 65_536


_LOWEST = {
    "n_neighbors": 1,
    "n_blocks": 1,
    "block_size": 2,
    "calibration_size": 0,
    "batch_size": 1,
    "n_jobs": -1000,
    "max_rows": 2,
    "subset_size": 2,
    "expert_size": 2,
    "n_steps": 1,
    "n_folds": 2,
    "n_inducing": 1,
    "n_epochs": 1,
    "ensemble": 1,
}
_OPTIONAL = {"batch_size", "n_jobs"}
_CHOICES = {
    "optimizer": OPTIMIZERS,
    "whitening": WHITENINGS,
    "criterion": ("crps", "rmse"),
    "device": ("auto", "cpu", "cuda"),
    "calibration": ("local", "global"),
    "suspects": CHOICES,
    "target_scale": SCALES,
}


def check_settings(model) -> None:
    """Each setting by its name: whichever estimator has it, it means the same."""
    for name, value in model.get_params(deep=False).items():
        if isinstance(value, str) and value == "auto" and name in getattr(model, "_auto", ()):
            continue
        if name in _LOWEST and not (value is None and name in _OPTIONAL):
            check_integer(name, value, _LOWEST[name])
            if name == "n_jobs":
                n_threads(value)
        elif name in _CHOICES and value not in _CHOICES[name]:
            raise InvalidInputError(f"{name} = {value!r} is unknown. Choose one of: {', '.join(_CHOICES[name])}.")
        elif name == "mean" and isinstance(value, str) and value not in model._means:
            raise InvalidInputError(f"mean = {value!r} is unknown. Choose one of: {', '.join(model._means)}.")
        elif name == "shared_metric" and value not in (True, False, "auto"):
            raise InvalidInputError(f"shared_metric = {value!r} must be True, False or 'auto'.")
        elif name == "refine" and value not in (True, False, "columns"):
            raise InvalidInputError(f"refine = {value!r} must be True, False or 'columns'.")
        elif name == "target_limits":
            _check_limits(value)
        elif name in ("far", "screen_columns", "trees") and not isinstance(value, bool):
            raise InvalidInputError(f"{name} = {value!r} must be True or False.")
        elif name == "kernel":
            (get_kernel_or_sum if hasattr(model, "refine") else get_kernel)(value)
        elif name == "engine":
            check_engine(value)
        elif name == "index":
            from gpnn.engines.cpu.neighbors import make_index  # numba comes with it: not before it is needed

            make_index(value, n=1, d=1, n_neighbors=1)
        elif name == "params" and not (value is None or isinstance(value, Hyperparameters)):
            raise InvalidInputError(
                f"params = {value!r} must be None, or "
                "gpnn.Hyperparameters(lengthscale=…, kernel_variance=…, noise_variance=…)."
            )


def _check_sum(model, params: Hyperparameters | None) -> None:
    """A sum of kernels has parameters of its own, given or learned."""
    kernel = getattr(model, "kernel", "auto")
    is_sum = "+" in kernel
    if params is not None and (params.broad is not None) != is_sum:
        raise InvalidInputError(
            f"kernel = {kernel!r} and params do not go together: a sum such as 'matern32+exponential' needs "
            "params with broad=gpnn.Broad(share=…, lengthscale=…), any other kernel params without."
        )
    if is_sum and params is None and not model.refine:
        raise InvalidInputError(
            f"kernel = {kernel!r} is a sum, which is learned where predictions happen: leave refine at True, or give "
            "params."
        )


def _check_limits(value) -> None:
    if value is None or (isinstance(value, str) and value == "auto"):
        return
    numbers_or_none = isinstance(value, tuple | list) and all(
        end is None or (isinstance(end, numbers.Real) and end == end) for end in value
    )
    if not numbers_or_none or len(value) != 2 or (None not in value and not value[0] < value[1]):
        raise InvalidInputError(
            f"target_limits = {value!r} must be 'auto', None, or two numbers in order, such as (0, 1) or (0, None)."
        )


def check_integer(name: str, value, lowest: int) -> None:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < lowest:
        raise InvalidInputError(f"{name} = {value!r} must be a whole number, at least {lowest}.")


def check_training_data(model, X, y):
    """X as a float32 or float64 matrix (not copied if it is one) and y as float64, both finite, y not constant."""
    _check_columns_are_numbers(X)
    check_target(y)
    X, y = validate_data(
        model, X, y, dtype=[np.float64, np.float32], ensure_all_finite=False, ensure_min_samples=2, y_numeric=True
    )
    _check_finite(model, X)
    params = getattr(model, "params", None)  # not every estimator takes them
    for part in () if params is None else (params, params.broad or params):
        if np.size(part.lengthscale) not in (1, X.shape[1]):
            raise InvalidInputError(
                f"params has {np.size(part.lengthscale)} lengthscales, but X has {X.shape[1]} columns. "
                "Give one lengthscale, or one per column."
            )
    _check_sum(model, params)
    y = np.asarray(y, dtype=np.float64)
    if y.min() == y.max():
        raise InvalidInputError(
            f"y is constant: all {len(y)} values are {y[0]:g}. There is nothing to learn; check that y is the right "
            "column and was not lost in a join or a filter."
        )
    with np.errstate(over="ignore"):
        variance = np.var(y)
    if not np.isfinite(variance):
        raise InvalidInputError(
            f"y is too large: its variance overflows (values up to {np.abs(y).max():.0e}). Rescale."
        )
    if variance < np.finfo(float).tiny:
        raise InvalidInputError(
            f"y is too small: its variance underflows (values up to {np.abs(y).max():.0e}). Rescale."
        )
    return X, y


def check_new_rows(model, X):
    """X as a matrix with the columns that `fit` saw, finite. No rows at all are fine, and give an empty answer."""
    if not _is_plain(model, X):
        _check_columns_are_numbers(X)
        X = validate_data(
            model, X, dtype=[np.float64, np.float32], ensure_all_finite=False, reset=False, ensure_min_samples=0
        )
    _check_finite(model, X)
    return X


def _is_plain(model, X) -> bool:
    """Whether X is already what scikit-learn's checks would make of it; for one row they take as long as predicting."""
    return (
        type(X) is np.ndarray
        and X.dtype in (np.float64, np.float32)
        and X.shape[1:] == (model.n_features_in_,)
        and not hasattr(model, "feature_names_in_")
    )


def _check_columns_are_numbers(X) -> None:
    """Name the columns that hold text before scikit-learn stumbles over the first value."""
    names = getattr(X, "columns", None)
    if names is not None:
        text = [str(name) for name, kind in zip(names, X.dtypes, strict=True) if _is_text(kind, X[name])]
    elif isinstance(X, (np.ndarray, list, tuple)):
        text = _columns_of_text(X)
    else:
        return
    if text:
        raise InvalidInputError(
            f"{len(text)} columns hold text or dates, not numbers: {listed(text)}. gpnn.TableModel takes them as they "
            "are, in a data frame; or encode them first, for example with sklearn.preprocessing.OneHotEncoder in a "
            "ColumnTransformer, or drop them."
        )


def _columns_of_text(X) -> list[str]:
    try:
        values = np.asarray(X)
    except ValueError:  # rows of unequal length, which scikit-learn describes well
        return []
    if values.dtype.kind not in "OUS" or values.ndim != 2:
        return []

    def is_text(column) -> bool:
        try:
            column.astype(float)
        except ValueError:
            return True
        except TypeError:  # neither text nor numbers: scikit-learn says what
            pass
        return False

    return [f"column {k}" for k, column in enumerate(values.T) if is_text(column)]


def _is_text(kind, column) -> bool:
    """For pandas and polars types, by name, so that neither has to be installed; of objects the first value decides."""
    name = str(kind).lower()
    if name == "object":
        return len(column) > 0 and isinstance(next(iter(column)), str)
    return name in ("str", "category", "categorical", "date") or name.startswith(("string", "datetime", "enum", "utf8"))


def check_target(y) -> None:
    if y is None:
        raise InvalidInputError("requires y to be passed, but the target y is None. Call fit(X, y).")
    values = np.asarray(y)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        missing, infinite = int(np.isnan(values).sum()), int(np.isinf(values).sum())
        raise InvalidInputError(
            f"y contains NaN in {missing} rows and inf in {infinite} of {len(values)}. "
            "Drop those rows: a target that is not known cannot be learned from."
        )


def _check_finite(model, X) -> None:
    bad = np.zeros(X.shape[1], dtype=np.int64)
    rows = missing = 0
    for block in blocks(len(X), _BLOCK):
        part = X[block]
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(part.sum(dtype=np.float64)):  # no NaN nor infinity can hide in a finite sum
                continue
        wrong = ~np.isfinite(part)
        bad += wrong.sum(axis=0)
        rows += int(wrong.any(axis=1).sum())
        missing += int(np.isnan(part).sum())
    if rows:
        names = getattr(model, "feature_names_in_", None)
        columns = [str(names[k]) if names is not None else f"column {k}" for k in np.flatnonzero(bad)]
        what = "NaN" if missing == bad.sum() else "inf" if missing == 0 else "NaN and inf"
        raise InvalidInputError(
            f"X contains {what} in {rows} of {len(X)} rows, in {len(columns)} columns: {listed(columns)}. "
            "Drop those rows, or fill them first, for example with sklearn.impute.SimpleImputer in a Pipeline."
        )
