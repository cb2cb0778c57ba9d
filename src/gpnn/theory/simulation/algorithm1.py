"""Algorithm 1, phases A and B."""

from dataclasses import dataclass

import numpy as np
from numpy.random import default_rng
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from gpnn.common.errors import InvalidInputError
from gpnn.common.kernels import Kernel, get_kernel
from gpnn.common.types import Array, Hyperparameters
from gpnn.engines.local import make_solver
from gpnn.engines.parallel import for_each_block
from gpnn.engines.reference import covariances, factor
from gpnn.stages.validation import check_integer
from gpnn.theory import Performance, expected
from gpnn.theory.simulation.laws import FIELDS, NOISES
from gpnn.theory.simulation.samplers import SAMPLERS

_QUERIES = 16


@dataclass(frozen=True)
class Draws:
    """Phase A's result: for each of q queries, where its m nearest rows lie and what was observed there and at x*."""

    n: int
    kernel: str
    params: Hyperparameters
    X_star: Array
    """(q, d)"""
    offsets: NDArray[np.float32]
    """x − x* of the neighbours, nearest first: (q, m, d)."""
    y_neighbors: Array
    """(q, m)"""
    y_star: Array
    """(q,)"""


def draw(
    n: int,
    d: int,
    n_queries: int,
    n_neighbors: int,
    kernel: str,
    params: Hyperparameters,
    noise: str = "gaussian",
    sampler: str = "direct",
    random_state=None,
    *,
    field: str = "gaussian",
    n_jobs: int | None = None,
    progress: str | None = None,
) -> Draws:
    """Phase A: n rows x ~ N(0, I/d), of which only each query's neighbours are kept, and y = f(x) + ξ there.

    Parameters
    ----------
    n, d : training rows (up to 10¹² and beyond with sampler="direct") and their columns
    n_queries, n_neighbors : test points n* and neighbours m of each
    kernel, params : covariance function of f and θ; the names that `GPnnRegressor` knows
    noise : law of ξ: "gaussian", "laplace" or "student_t"
    sampler : how neighbours are found. "direct": without a sample, in no time for any n; "sample": among n rows in
        memory; "stream": among the same rows, generated and forgotten block by block
    field : law of f: "gaussian", or "student_t", a Gaussian field times one random scale per query, which has the same
        covariance but heavy tails
    progress : name of a progress bar; None for none
    """
    for name, size, lowest in (("n", n, 1), ("d", d, 1), ("n_neighbors", n_neighbors, 1), ("n_queries", n_queries, 2)):
        check_integer(name, size, lowest)  # two queries, because one has no standard error
    if n_neighbors > n:
        raise InvalidInputError(f"n_neighbors = {n_neighbors} is more than n = {n}: there are no such neighbours.")
    if np.size(params.lengthscale) not in (1, d):
        raise InvalidInputError(f"params has {np.size(params.lengthscale)} lengthscales; give one, or d = {d}.")
    generative = get_kernel(kernel)
    for name, value, known in (("noise", noise, NOISES), ("sampler", sampler, SAMPLERS), ("field", field, FIELDS)):
        if value not in known:
            raise InvalidInputError(f"{name} = {value!r} is unknown. Choose one of: {', '.join(known)}.")

    seeds = check_random_state(random_state).randint(2**31, size=3)
    X_star = (default_rng(seeds[0]).standard_normal((n_queries, d)) / np.sqrt(d)).astype(np.float32)
    offsets = SAMPLERS[sampler](n, X_star, n_neighbors, int(seeds[1]), n_jobs, progress)  # A1, A2
    y = np.empty((n_queries, n_neighbors + 1))

    def observe(part: slice) -> None:
        rng = default_rng([seeds[2], part.start])
        for q in range(part.start, part.stop):
            f = _field(rng, offsets[q], generative, params) * FIELDS[field](rng, 1)
            y[q] = f + np.sqrt(params.noise_variance) * NOISES[noise](rng, len(f))  # A3

    for_each_block(observe, n_queries, _QUERIES, n_jobs, progress)
    return Draws(n, kernel, params, X_star, offsets, y_neighbors=y[:, :-1], y_star=y[:, -1])


def evaluate(
    draws: Draws,
    kernel: str,
    params: Hyperparameters,
    *,
    solver: str = "auto",
    n_jobs: int | None = None,
    progress: str | None = None,
) -> dict[str, float]:
    """Phase B: "mse", "calibration" and "nll" of GPnn that assumes this kernel and these parameters.

    Each with its Monte-Carlo standard error, "mse_se", "calibration_se" and "nll_se".
    """
    assumed, solve = get_kernel(kernel), make_solver(solver)
    squared_errors, variances = np.empty((2, len(draws.y_star)))

    def predict(part: slice) -> None:
        at_origin = np.zeros_like(draws.X_star[part])
        solution = solve(at_origin, draws.offsets[part], draws.y_neighbors[part], assumed, params)  # B1
        squared_errors[part] = (draws.y_star[part] - solution.mean) ** 2
        variances[part] = solution.variance

    for_each_block(predict, len(draws.y_star), _QUERIES, n_jobs, progress)
    return _averages(Performance.of(squared_errors, variances))  # B2


def expect(
    draws: Draws, kernel: str, params: Hyperparameters, *, n_jobs: int | None = None, progress: str | None = None
) -> dict[str, float]:
    """Phase B without the noise of y: expectations given each neighbour set (`theory.expected`), averaged over queries.

    The same figures as `evaluate` gives, with standard errors many times smaller, for several times the work.
    """
    get_kernel(kernel)
    metrics = np.empty((3, len(draws.y_star)))

    def work(part: slice) -> None:
        at_origin = np.zeros_like(draws.X_star[part])
        given = expected(at_origin, draws.offsets[part], draws.kernel, draws.params, kernel, params)
        metrics[:, part] = given.mse, given.calibration, given.nll

    for_each_block(work, len(draws.y_star), _QUERIES, n_jobs, progress)
    return _averages(Performance(*metrics))


def _field(rng, offsets: Array, kernel: Kernel, params: Hyperparameters) -> Array:
    """f at the neighbours and, last, at x*: one Gaussian sample (m + 1,)."""
    points = np.concatenate([offsets, np.zeros_like(offsets[:1])])
    noiseless = Hyperparameters(params.lengthscale, params.kernel_variance, 0.0)
    C, _ = covariances(points[-1], points, kernel, noiseless)
    (lower, _), _ = factor(C, params.kernel_variance)  # jitter, if any, is below what y could show
    return np.tril(lower) @ rng.standard_normal(len(points))


def _averages(performance: Performance) -> dict[str, float]:
    result = {}
    for name, values in vars(performance).items():
        result[name] = float(np.mean(values))
        result[f"{name}_se"] = float(np.std(values, ddof=1) / np.sqrt(len(values)))
    return result
