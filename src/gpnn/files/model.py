"""A fitted model as one file, without pickle: `model.save(path)` and `GPnnRegressor.load(path)`.

An object is written as the name of its class and its fields, an array as a reference to where its numbers lie. Reading
looks the name up among the few classes below, holds every field against that class's annotations, and checks that the
arrays fit each other as compiled code needs them to. Nothing that a file says is imported or run. docs/model_file.md
describes the format, `files.container` is its bytes.
"""

from __future__ import annotations

import inspect
import json
import math
import numbers
import os
import types
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

import gpnn
from gpnn.common.errors import FileError, GPnnWarning, InvalidInputError, listed
from gpnn.common.kernels import get_kernel_or_sum
from gpnn.common.scales import TargetScale
from gpnn.common.types import Array, Broad, Hyperparameters
from gpnn.engines.cpu.neighbors import IVF, Flat, KDTree, NeighborIndex
from gpnn.engines.cpu.neighbors.cells import Rows, StoredIndex
from gpnn.engines.cpu.neighbors.shards import Shards
from gpnn.engines.local import Noise
from gpnn.files import container
from gpnn.files.whole import head_of
from gpnn.regressor import GPnnRegressor
from gpnn.stages.calibration import LocalScale
from gpnn.stages.ensemble import Companion, Ensemble
from gpnn.stages.far import LEVELS, Far, Member, Trend
from gpnn.stages.forest import Forest
from gpnn.stages.living import Recent
from gpnn.stages.mean import Constant, Linear
from gpnn.stages.mixing import Mixture
from gpnn.stages.recalibration import UNCHANGED
from gpnn.stages.rims import Rim
from gpnn.stages.shapes import Shape
from gpnn.stages.trees import Trees
from gpnn.stages.validation import check_settings
from gpnn.stages.weighing import Weighing
from gpnn.stages.whitening import Ranks, Whitener
from gpnn.stages.widths import Widths

_CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        Hyperparameters, Whitener, Ranks, Rows, KDTree, Flat, IVF, LocalScale, Shape, Constant, Linear, Far, Member,
        Mixture, Rim, Trend, Noise, Recent, TargetScale, Broad, Ensemble, Companion, Weighing,
        Trees, Forest, Widths,
    )
}  # fmt: skip
"""All that a file may name."""

_ONLY_FOR_FITTING = ("holdout", "random_state")
"""Settings that may be objects of other libraries, and that a fitted model does without."""

_NOT_KEPT = ("engine", "solver")
"""Where the work runs is a matter of the machine, not of the model: a loaded one begins with the default. Files written
before there were engines name a solver."""

_LEARNED: dict[str, Any] = {
    "n_features_in_": int, "mean_": Constant | Linear, "_y_scale": tuple[float, float], "kernel_": str,
    "n_neighbors_": int, "whitener_": Whitener, "params_": Hyperparameters, "index_": NeighborIndex, "_y": Array,
    "_set_aside": NDArray[np.integer], "alpha_": float, "alpha_interval_": tuple[float, float], "floor_": float,
    "_scale": LocalScale | None, "shape_": Shape, "calibration_rows_": NDArray[np.integer], "fit_report_": dict,
}  # fmt: skip
"""Without these there is no prediction. What else `fit` leaves is kept too, as it is."""

_LATER: dict[str, Any] = {
    "_far": Far | None,
    "_factors": tuple[float, float],
    "_row_means": Array | None,
    "_noise": Noise | None,
    "_recent": Recent | None,
    "_n_seen": int,
    "_typical_noise": float | None,
    "target_scale_": TargetScale,
    "columns_": NDArray[np.integer] | None,
    "_ranges": Array | None,
    "_ensemble": Ensemble | None,
    "_trees": Trees | None,
    "_widths": Widths | None,
}
_BEFORE = {
    "_far": None,
    "_factors": UNCHANGED,
    "_row_means": None,
    "_noise": None,
    "_typical_noise": None,
    "_recent": None,
    "target_scale_": TargetScale(),
    "columns_": None,
    "_ranges": None,
    "_ensemble": None,
    "_trees": None,
    "_widths": None,
}
"""Files of earlier versions are without these; what their models do instead."""

_DEEPEST = 50


class Stored(NamedTuple):
    """What a file holds: the model, and what the table layer noted of its columns."""

    regressor: GPnnRegressor
    schema: dict | None


def write(path: str | os.PathLike, regressor: GPnnRegressor, schema: dict | None = None) -> None:
    """The fitted model, and a `schema` of plain JSON, as the file `path`: complete, or not there. A model in shards
    becomes a folder (`files.shards`)."""
    check_is_fitted(regressor)
    if isinstance(regressor.__dict__.get("index_"), Shards):
        from gpnn.files import shards

        shards.copy(Path(path), regressor, schema)
    else:
        write_one(Path(path), regressor, schema)


def write_one(path: Path, regressor: GPnnRegressor, schema: dict | None, beside: dict | None = None) -> None:
    """One file; of a model in shards, all but these. `beside`: what else the header says."""
    if type(regressor) is not GPnnRegressor:
        raise InvalidInputError(
            f"A model file holds a GPnnRegressor, not a {type(regressor).__name__}. Keep other estimators with "
            "joblib.dump or skops.io.dump."
        )
    arrays: dict[str, NDArray] = {}
    content = {
        "gpnn": gpnn.__version__,
        **_encode_model(regressor, "", arrays),
        "schema": _plain(schema),
        **(beside or {}),
    }
    if targets := getattr(regressor, "targets_", ()):
        content["targets"] = [_encode_model(one, f"targets_.{j}.", arrays) for j, one in enumerate(targets)]
    try:
        _restored(content, arrays, _rows_in_shards(regressor))  # what could not be read is not written
    except container.MALFORMED as error:
        raise InvalidInputError(
            f"The model cannot be kept in a model file: {error}. Was it changed by hand?"
        ) from error
    container.write(path, content, arrays, "save" if regressor.verbose else None)


def read(path: str | os.PathLike, verify: bool = True) -> Stored:
    """What `write` wrote; predictions are the same, bit for bit.

    The arrays are read-only views of one mapping of the file, which processes share. `verify=False` leaves their
    checksums out; header, sizes and whatever could lead compiled code astray are checked all the same.
    """
    path = Path(path)
    if path.is_dir():
        from gpnn.files import shards

        return shards.read(path, verify)
    return restored(path, *container.read(path, verify))


def restored(path: Path, content: dict, arrays: dict[str, NDArray], rows: dict | None = None) -> Stored:
    """rows: index and targets, where they are in shards."""
    try:
        return Stored(_restored(content, arrays, rows), content["schema"])
    except container.MALFORMED as error:
        raise FileError(
            f"{path} holds no model that gpnn {gpnn.__version__} can use ({error}); it was written by gpnn "
            f"{content.get('gpnn')!r:.40}. Check whether that is a newer version and install it, or fit and save again."
        ) from error


def describe(path: str | os.PathLike) -> dict:
    """What the header tells of a model, the arrays untouched: plain JSON, arrays as their type and shape."""
    path = Path(path)
    header = container.read_header(head_of(path))
    content = header.content
    try:
        table = {name: {key: entry[key] for key in ("dtype", "shape")} for name, entry in content["arrays"].items()}
        shown = content | (content["targets"][0] if "targets" in content else {})  # the first of several targets
        settings, learned = (
            {name: _summary(node, table) for name, node in shown[part].items()} for part in ("settings", "learned")
        )
        n_bytes = sum(file.stat().st_size for file in path.iterdir()) if path.is_dir() else header.length
        return {
            "format": container.VERSION, "gpnn": content["gpnn"], "bytes": n_bytes, "settings": settings,
            "learned": learned, "arrays": table, "schema": content["schema"],
        }  # fmt: skip
    except container.MALFORMED as error:
        raise container.damaged(path, f"its header lacks what belongs there ({error})") from error


# --- from objects to JSON ---------------------------------------------------------------------------------------------


def _encode_model(regressor: GPnnRegressor, place: str, arrays: dict[str, NDArray]) -> dict:
    regressor._consolidate()
    elsewhere = ("targets_", *(_rows_in_shards(regressor) or ()))
    learned = {
        name: encode(value, place + name, arrays)
        for name, value in vars(regressor).items()
        if _is_learned(name) and name not in elsewhere
    }
    return {"settings": _settings(regressor, arrays), "learned": learned}


def _rows_in_shards(regressor: GPnnRegressor) -> dict | None:
    if not isinstance(regressor.__dict__.get("index_"), Shards):
        return None
    return {"index_": regressor.index_, "_y": regressor._y}


def _settings(regressor: GPnnRegressor, arrays: dict[str, NDArray]) -> dict:
    kept = {}
    for name, value in regressor.get_params(deep=False).items():
        if name in _NOT_KEPT:
            continue
        try:
            kept[name] = encode(value, name, arrays)
        except InvalidInputError:
            if name not in _ONLY_FOR_FITTING:
                raise
            default = inspect.signature(GPnnRegressor).parameters[name].default
            warnings.warn(
                f"{name} = {value!r} cannot be kept in a model file. Predictions do not need it; the loaded model has "
                f"the default, {default!r}. Set {name} again before you fit that one.",
                GPnnWarning,
                stacklevel=6,
            )
    return kept


def encode(value, place: str, arrays: dict[str, NDArray]):
    """`value` as JSON. Numbers and texts stand for themselves, all else is {"type": …, "value": …}."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"type": "float", "value": str(float(value))}
    if isinstance(value, np.ndarray | np.generic):
        return _encode_array(np.asarray(value), place, arrays)
    if isinstance(value, list | tuple):
        items = [encode(item, f"{place}.{k}", arrays) for k, item in enumerate(value)]
        return items if isinstance(value, list) else {"type": "tuple", "value": items}
    if isinstance(value, dict):
        kind, fields = "dict", value
    elif type(value) is _CLASSES.get(type(value).__name__):
        kind, fields = type(value).__name__, vars(value)
    else:
        raise _not_ours(value, place)
    if not all(isinstance(name, str) for name in fields):
        raise InvalidInputError(f"{place} has keys that are not text; a model file cannot hold those.")
    return {"type": kind, "value": {name: encode(fields[name], f"{place}.{name}", arrays) for name in fields}}


def _encode_array(array: NDArray, place: str, arrays: dict[str, NDArray]) -> dict:
    if array.dtype.kind in "OU" and array.ndim == 1 and all(isinstance(text, str) for text in array):
        return {"type": "texts", "value": array.tolist()}
    stored = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
    if stored.dtype.str not in container.DTYPES:
        raise _not_ours(array, place)
    for known, other in arrays.items():
        if stored.size and _same_memory(other, stored):  # targets share their rows
            return {"type": "array", "value": known}
    name = place if place not in arrays else f"{place} ({len(arrays)})"  # keys may have dots in them
    arrays[name] = stored
    return {"type": "array", "value": name}


def _same_memory(one: NDArray, other: NDArray) -> bool:
    return (one.ctypes.data, one.shape, one.dtype) == (other.ctypes.data, other.shape, other.dtype)


def _not_ours(value, place: str) -> InvalidInputError:
    what = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__qualname__}"
    return InvalidInputError(
        f"{place} is {what}, and a model file holds numbers and gpnn's own classes only: loading another's would mean "
        "running its code. Fit with one of gpnn's own (mean='linear', index='auto'), or keep this model with "
        "joblib.dump or skops.io.dump."
    )


def _plain(schema: dict | None) -> dict | None:
    try:
        return json.loads(json.dumps(schema, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"The schema must be plain JSON, finite numbers only: {error}.") from error


# --- and back ---------------------------------------------------------------------------------------------------------


def decode(node, arrays: dict[str, NDArray], depth: int = 0):
    if depth > _DEEPEST:
        raise ValueError(f"more than {_DEEPEST} levels")
    if node is None or isinstance(node, bool | int | float | str):
        return node
    if isinstance(node, list):
        return [decode(item, arrays, depth + 1) for item in node]
    kind, value = node["type"], node["value"]
    if kind == "array":
        array = arrays[value]
        return array if array.ndim else array[()]
    if kind == "float" and value in ("inf", "-inf", "nan"):
        return float(value)
    if kind == "texts":
        return np.array([str(text) for text in value], dtype=object)
    if kind == "tuple":
        return tuple(decode(item, arrays, depth + 1) for item in value)
    if kind != "dict" and kind not in _CLASSES:
        raise ValueError(f"{kind!r:.40} is no class of gpnn")
    fields = {name: decode(field, arrays, depth + 1) for name, field in value.items()}
    return fields if kind == "dict" else _made(_CLASSES[kind], fields)


def _made(cls: type, fields: dict):
    """An object of one of our classes: made by its constructor, then given what that does not take."""
    arguments, attributes = _annotations(cls)
    _check_types(cls.__name__, fields, attributes | arguments)
    made = cls(**{name: value for name, value in fields.items() if name in arguments})
    made.__dict__.update({name: value for name, value in fields.items() if name not in arguments})
    if isinstance(made, Rows) or (isinstance(made, StoredIndex) and "_rows" in fields):
        made.check()
    return made


@cache
def _annotations(cls: type) -> tuple[dict, dict]:
    """Of a class's constructor, and of its body and those it comes from."""
    return get_type_hints(cls.__init__), get_type_hints(cls)  # type: ignore[misc]


def _restored(content: dict, arrays: dict[str, NDArray], rows: dict | None = None) -> GPnnRegressor:
    if "targets" in content:
        return _restored_targets(content, arrays)
    settings, learned = (
        {name: decode(node, arrays) for name, node in content[part].items()} for part in ("settings", "learned")
    )
    model = GPnnRegressor(**{name: value for name, value in settings.items() if name not in _NOT_KEPT})
    check_settings(model)
    if (seen := learned.pop("_tree_columns", None)) is not None:  # earlier files number the columns that trees saw
        learned["_trees"] = _seeing_all_columns(learned.get("_trees"), seen)
    needed = _LEARNED.keys() - (rows or {}).keys()
    wrong, missing = [name for name in learned if not _is_learned(name)], sorted(needed - learned.keys())
    if wrong or missing:
        raise ValueError(f"what fit leaves is without {listed(missing)}" if missing else f"{wrong[0]:.40} is unknown")
    learned |= {name: value for name, value in _BEFORE.items() if name not in learned}
    _check_types("GPnnRegressor", learned, dict.fromkeys(learned, Any) | _LEARNED | _LATER)
    model.__dict__.update(learned | (rows or {}))
    model.__dict__.setdefault("_n_seen", int(len(model._y) + len(model._set_aside)))
    _check_sizes(model)
    return model


def _restored_targets(content: dict, arrays: dict[str, NDArray]) -> GPnnRegressor:
    """A model of several targets: those, and how they share their rows."""
    settings, learned = (
        {name: decode(node, arrays) for name, node in content[part].items()} for part in ("settings", "learned")
    )
    model = GPnnRegressor(**{name: value for name, value in settings.items() if name not in _NOT_KEPT})
    check_settings(model)
    targets = [
        _restored({"settings": one["settings"], "learned": one["learned"]}, arrays) for one in content["targets"]
    ]
    wrong = learned.keys() - {"target_groups_", "n_features_in_", "feature_names_in_", "fit_report_"}
    groups = learned["target_groups_"]
    if wrong or sorted(j for group in groups for j in group) != list(range(len(targets))):
        raise ValueError(f"targets in groups {groups!r:.40}")
    if {one.n_features_in_ for one in targets} != {learned["n_features_in_"]}:
        raise ValueError("targets of different columns")
    for first, *others in groups:
        for j in others:
            leader, own = (targets[k].index_ for k in (first, j))
            if type(own) is type(leader) and own._rows.strips is leader._rows.strips and own.order is leader.order:
                targets[j].index_ = leader
    model.__dict__.update(learned, targets_=targets)
    return model


def _is_learned(name: str) -> bool:
    """Whether an attribute may be something that `fit` left: named like it, and no method nor property of the class."""
    like_it = name.isidentifier() and (name[0] == "_" or name[-1] == "_") and not name.startswith("__")
    return like_it and not hasattr(inspect.getattr_static(GPnnRegressor, name, None), "__get__")


def _check_types(owner: str, fields: dict, hints: dict) -> None:
    for name, value in fields.items():
        if name not in hints:
            raise ValueError(f"{owner} has no {name:.40}")
        if not _fits(value, hints[name]):
            raise TypeError(f"{name} of {owner} is a {type(value).__name__}")


def _fits(value, hint) -> bool:
    """Whether a value is what an annotation says."""
    kind, parts = get_origin(hint), get_args(hint)
    if hasattr(kind or hint, "__value__"):  # an alias in Python 3.12's manner, as newer versions of numpy have them
        meant = (kind or hint).__value__
        return _fits(value, meant[parts] if parts else meant)
    if kind in (Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if kind is np.ndarray:
        (scalar,) = get_args(parts[1])
        return isinstance(value, np.ndarray) and issubclass(value.dtype.type, get_origin(scalar) or scalar)
    if kind is tuple:
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(_fits, value, parts))
    if hint is Any:
        return True
    if hint is NeighborIndex:
        return isinstance(value, StoredIndex)
    if hint in (int, float):
        return isinstance(value, (int, np.integer) if hint is int else numbers.Real) and not isinstance(value, bool)
    return isinstance(value, hint)


def _check_sizes(model: GPnnRegressor) -> None:
    """Whatever compiled code takes on trust: all parts speak of the same rows and columns."""
    d = _n_used(model)
    _check_metric(model.whitener_, model.kernel_, model.params_, d)
    _check_rows(model.index_, model._y, d, model.n_neighbors_, model._noise)
    if model._far is not None:
        _check_far(model._far, d)
    if model._ensemble is not None:
        _check_ensemble(model._ensemble, d)
    if model._trees is not None:
        _check_trees(model._trees, model.n_features_in_)
    if model._widths is not None:
        _check_forest(model._widths.forest, model.n_features_in_ + 2)


def _check_metric(whitener: Whitener, kernel: str, params: Hyperparameters, d: int) -> None:
    _check_whitener(whitener, d)
    for part in (params,) if params.broad is None else (params, params.broad):
        if np.size(part.lengthscale) not in (1, d):
            raise ValueError(f"{d} columns, but {np.size(part.lengthscale)} lengthscales")
    if (params.broad is None) is not (get_kernel_or_sum(kernel).broad is None):
        raise ValueError(f"a kernel {kernel} with parameters of another")


def _n_used(model: GPnnRegressor) -> int:
    """How many columns count."""
    d, columns, ranges = model.n_features_in_, model.columns_, model._ranges
    if columns is None:
        return d
    if _n_of(columns, d) >= d or ranges is None or ranges.shape != (3, d):
        raise ValueError(f"{len(columns)} of {d} columns, and no ranges of all")
    return len(columns)


def _n_of(columns: NDArray[np.integer], d: int) -> int:
    if columns.ndim != 1 or len(columns) == 0 or columns.min() < 0 or columns.max() >= d:
        raise ValueError(f"columns of the shape {columns.shape} of {d}")
    return len(columns)


def _check_whitener(whitener: Whitener, d: int) -> None:
    columns = [*whitener.x_mean.shape, *whitener.x_map.shape]
    if whitener.ranks is not None:
        columns += [len(whitener.ranks.knots), *whitener.ranks.reach.shape]
        knots = whitener.ranks.knots
        if knots.ndim != 2 or knots.shape[1] < 2 or not (np.diff(knots) >= 0).all():  # false for NaN too
            raise ValueError(f"knots {knots.shape} that are not in order")
    if set(columns) != {d} or whitener.x_mean.ndim != 1:
        raise ValueError(f"{d} columns, but parts for {columns}")


def _check_rows(index: NeighborIndex, y: Array, d: int, n_neighbors: int, noise: Noise | None = None) -> None:
    assert isinstance(index, StoredIndex | Shards)  # as its type was checked to be
    n, width = len(index.order), index.d if isinstance(index, Shards) else index._rows.d
    if width != d:
        raise ValueError(f"{d} columns, but rows of {width}")
    if y.shape != (n,) or not 1 <= n_neighbors <= n:
        raise ValueError(f"{n} rows, but targets {y.shape} and {n_neighbors} neighbours")
    if noise is not None and not noise.share.shape == noise.known.shape == (n,):
        raise ValueError(f"{n} rows, but noise of {noise.share.shape} and {noise.known.shape}")


def _check_far(far: Far, d: int) -> None:
    _check_whitener(far.whitener, d)
    vectors = [far.trend.weights, far.trend.low, far.trend.high]
    for member in far.members:
        if not isinstance(member, Member):
            raise TypeError(f"a member is a {type(member).__name__}")
        _check_rows(member.index, member.y, d, 1, member.noise)
        if far.rows is not None and far.rows.shape != member.y.shape:
            raise ValueError(f"{far.rows.shape} row numbers for {member.y.shape} rows")
        vectors.append(member.lengthscale)
    if {vector.shape for vector in vectors} != {(d,)} or not far.members:
        raise ValueError(f"{d} columns, but parts for {[vector.shape for vector in vectors]}")
    mixture = far.mixture
    terms = mixture.near, mixture.members, mixture.lowest, mixture.common
    if [part.shape for part in terms] != [(3,), (2,), (2,), (2,)] or far.claimed.shape != LEVELS.shape:
        raise ValueError("curves of another length")
    if far.rim is not None:
        _check_rim(far.rim)


def _check_rim(rim: Rim) -> None:
    k = rim.limits.shape[-1]
    shapes = (2, k), (2, k * (k + 3) // 2), (k * (k + 3) // 2,), LEVELS.shape, (2,)
    if tuple(part.shape for part in (rim.limits, rim.moments, rim.weights, rim.random, rim.edges)) != shapes:
        raise ValueError("parts of a rim that do not fit")


def _check_ensemble(ensemble: Ensemble, d: int) -> None:
    for one in ensemble.companions:
        if not isinstance(one, Companion):
            raise TypeError(f"a companion is a {type(one).__name__}")
        _check_metric(one.whitener, one.kernel, one.params, d)
        _check_rows(one.index, one.y, d, one.n_neighbors, one.noise)
    if ensemble.weighing.weights.shape != (1 + len(ensemble.companions),):
        raise ValueError(f"{ensemble.weighing.weights.shape} weights for {len(ensemble.companions)} companions")


def _seeing_all_columns(trees: object, seen: object) -> Trees:
    """Trees of the columns `seen`, told of all of them."""
    if not isinstance(trees, Trees) or not isinstance(seen, np.ndarray) or trees.forest.column.max() >= len(seen):
        raise ValueError("columns for trees, and no trees for them")
    column = trees.forest.column
    in_table = np.where(column < 0, column, seen[column]).astype(column.dtype)
    return replace(trees, forest=replace(trees.forest, column=in_table))


def _check_trees(trees: Trees, d: int) -> None:
    if trees.weighing.weights.shape != (2,):
        raise ValueError(f"weights {trees.weighing.weights.shape} of trees beside the process")
    _check_forest(trees.forest, d)


def _check_forest(forest: Forest, d: int) -> None:
    """Every way from a root ends in a leaf."""
    n = len(forest.column)
    parts = {part.shape for part in (forest.column, forest.value, forest.left)}
    if parts != {(n,)} or forest.roots.ndim != 1:
        raise ValueError(f"trees in parts of {parts}")
    inner = np.flatnonzero(forest.column >= 0)
    left = forest.left[inner]
    if (forest.column >= d).any() or (left <= inner).any() or (left + 1 >= n).any():
        raise ValueError(f"{d} columns and {n} nodes, but splits or children beyond them")
    if forest.line is not None and (forest.line.centre.shape, forest.line.weights.shape) != ((d,), (d,)):
        raise ValueError(f"{d} columns, and a line for trees in {len(forest.line.weights)}")
    if (forest.roots < 0).any() or (forest.roots >= n).any():
        raise ValueError(f"{n} nodes, but roots beyond them")


def _summary(node, table: dict, depth: int = 0):
    """A node of the header for people to read."""
    if depth > _DEEPEST:
        raise ValueError(f"more than {_DEEPEST} levels")
    if isinstance(node, list):
        return [_summary(item, table, depth + 1) for item in node]
    if not isinstance(node, dict):
        return node
    kind, value = node["type"], node["value"]
    if kind == "array":
        return table[value]
    if isinstance(value, list):
        return _summary(value, table, depth + 1)
    if isinstance(value, dict):
        fields = {name: _summary(field, table, depth + 1) for name, field in value.items()}
        return fields if kind == "dict" else {"type": kind, **fields}
    return value
