"""The methods by name: GPnn and its rivals, with the settings of protocol.toml.

Rivals are looked up in `gpnn.baselines` when they are built, so a method that is not installed can be named in a table.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module

from gpnn import GPnnRegressor
from gpnn.errors import InvalidInputError
from protocol import PROTOCOL

DISTRIBUTED = ("poe", "gpoe", "bcm", "rbcm", "grbcm")


@dataclass(frozen=True)
class Method:
    label: str
    """In tables."""
    settings: str
    """Its section of protocol.toml."""
    estimator: str | None = None
    """Its class in gpnn.baselines; None for GPnn."""
    extra: str | None = None
    """A package that it needs beside ours."""


METHODS = {
    "gpnn": Method("GPnn", "gpnn"),
    "poe": Method("PoE", "distributed", "PoE"),
    "gpoe": Method("gPoE", "distributed", "GPoE"),
    "bcm": Method("BCM", "distributed", "BCM"),
    "rbcm": Method("rBCM", "distributed", "RBCM"),
    "grbcm": Method("GRBCM", "distributed", "GRBCM"),
    "svgp": Method("SVGP", "svgp", "SVGP", extra="gpytorch"),
    "exact": Method("exact GP", "exact", "ExactGP"),
    "subset": Method("subset of data", "subset", "SubsetOfData"),
    "vnngp": Method("VNNGP", "vnngp", "VNNGP", extra="gpytorch"),
    "conjugate": Method("conjugate NNGP", "conjugate", "ConjugateNNGP"),
}


def get(name: str) -> Method:
    if name not in METHODS:
        near = get_close_matches(name.lower(), METHODS, n=3, cutoff=0.5)
        hint = f"Near it are: {', '.join(near)}. " if near else ""
        raise InvalidInputError(f"There is no method {name!r}. {hint}All names: {', '.join(METHODS)}.")
    return METHODS[name]


def settings(name: str) -> dict:
    """All that protocol.toml says of a method."""
    return PROTOCOL[get(name).settings]


def kernels(name: str) -> list[str]:
    """Those that the paper ran it with."""
    get(name)
    return PROTOCOL["kernels"].get(name, PROTOCOL["kernels"]["default"])


def missing(name: str) -> str | None:
    """Why a method cannot be run here; None if it can."""
    method = get(name)
    if method.estimator is None:
        return None
    try:
        if not hasattr(import_module("gpnn.baselines"), method.estimator):
            return f"this gpnn has no baselines.{method.estimator}"
        if method.extra:
            import_module(method.extra)
    except ImportError as error:
        return str(error)
    return None


def paper_gpnn(kernel: str, seed: int, **others) -> GPnnRegressor:
    """GPnn with the paper's settings."""
    return GPnnRegressor.paper(kernel=kernel, random_state=seed, **(_arguments("gpnn") | others))


def build(name: str, kernel: str, seed: int, *, n_jobs: int | None = None, verbose: int = 0, **others):
    """An estimator with `fit` and `evaluate`; `others` override the protocol."""
    if reason := missing(name):
        raise InvalidInputError(f"{name} is not available here: {reason}.")
    if name == "gpnn":
        return paper_gpnn(kernel, seed, n_jobs=n_jobs, verbose=verbose, **others)
    estimator = getattr(import_module("gpnn.baselines"), METHODS[name].estimator)
    model = estimator(kernel=kernel, random_state=seed, verbose=verbose, **(_arguments(name) | others))
    return model.set_params(n_jobs=n_jobs) if "n_jobs" in model.get_params() else model


def _arguments(name: str) -> dict:
    return {key: value for key, value in settings(name).items() if key != "fixed"}
