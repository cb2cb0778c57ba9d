"""Algorithm 1 over ranges: one assumed parameter at a time, for several n, beside the limits of Theorem 1."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Hyperparameters
from gpnn.engines.parallel import progress_bar
from gpnn.theory import limits
from gpnn.theory.simulation.algorithm1 import draw, evaluate

PARAMETERS = ("lengthscale", "kernel_variance", "noise_variance")
METRICS = ("mse", "calibration", "nll")


def sweep(
    n_values: Iterable[int],
    vary: Mapping[str, Iterable[float]],
    kernel: str,
    params: Hyperparameters,
    assumed_kernel: str,
    assumed_params: Hyperparameters,
    *,
    d: int = 20,
    n_queries: int = 1000,
    n_neighbors: int = 400,
    noise: str = "gaussian",
    field: str = "gaussian",
    sampler: str = "direct",
    random_state=0,
    n_jobs: int | None = None,
    progress: str | None = None,
) -> list[dict]:
    """One row per n and value: the setting, the metrics with standard errors, and their limits as n → ∞.

    `vary` maps names of assumed parameters to the values each takes while the others stay as in `assumed_params`.
    Phase A is run once per n, with the same random numbers for each.
    """
    unknown = [name for name in vary if name not in PARAMETERS]
    if unknown:
        raise InvalidInputError(f"Cannot vary {', '.join(unknown)}. Choose from: {', '.join(PARAMETERS)}.")
    n_values = list(n_values)
    assumptions = [
        (name, replace(assumed_params, **{name: float(value)}))  # type: ignore[arg-type]
        for name, values in vary.items()
        for value in values
    ]
    rows = []
    with progress_bar(len(n_values) * (1 + len(assumptions)), progress) as bar:
        for n in n_values:
            draws = draw(
                n, d, n_queries, n_neighbors, kernel, params, noise, sampler, random_state, field=field, n_jobs=n_jobs
            )
            bar.update()
            for varied, assumed in assumptions:
                limit = limits(params.noise_variance, assumed.noise_variance, n_neighbors)
                rows.append(
                    {"n": n, "d": d, "n_neighbors": n_neighbors, "n_queries": n_queries, "noise": noise, "field": field}
                    | {"kernel": kernel, **vars(params), "assumed_kernel": assumed_kernel, "varied": varied}
                    | {f"assumed_{name}": value for name, value in vars(assumed).items()}
                    | evaluate(draws, assumed_kernel, assumed, n_jobs=n_jobs)
                    | {f"limit_{name}": getattr(limit, name) for name in METRICS}
                )
                bar.update()
    return rows
