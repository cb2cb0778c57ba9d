"""gpnn simulate: Algorithm 1 over a range of assumed parameters and of n, as a table and a figure."""

import argparse
import csv
import json
import sys
from pathlib import Path

import numpy as np

from gpnn.cli.arguments import seed, whole_number
from gpnn.common.errors import InvalidInputError
from gpnn.common.kernels import KERNELS
from gpnn.common.types import Hyperparameters
from gpnn.files.whole import check_folder, whole_or_nothing
from gpnn.judging.plots import FIGURE_2, new_figure, simulation_figure
from gpnn.theory.simulation import SAMPLERS, sweep
from gpnn.theory.simulation.laws import FIELDS, NOISES
from gpnn.theory.simulation.sweeps import METRICS, PARAMETERS

_SIZES = [10**4, 10**5, 10**6, 10**7, 10**9, 10**12]
_RANGES = {"lengthscale": (0.1, 5.0), "kernel_variance": (0.1, 5.0), "noise_variance": (0.01, 1.0)}
_PAPER: dict[str, dict[float, tuple[str, ...]]] = {  # true lengthscale → what is varied
    "figure2": {0.5: ("noise_variance",), 1.0: ("lengthscale",)},
    "grid": {0.5: PARAMETERS},
}


def add_to(commands) -> None:
    parser = commands.add_parser(
        "simulate",
        help="how MSE, calibration and NLL depend on n and on wrong parameters (Algorithm 1)",
        description="Simulate GPnn on n rows x ~ N(0, I/d), for any n, while one assumed parameter varies and the "
        "others are as given. Without options: the paper's setting, lengthscale varied.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--paper", choices=list(_PAPER), help="the paper's figure 2 or its appendix grid; sets --vary, --lengthscale")
    add("--vary", nargs="+", choices=PARAMETERS, default=["lengthscale"], help="assumed parameters, one at a time")
    add("--range", nargs=2, type=float, metavar=("LOW", "HIGH"), help="of the varied parameter (default: as the paper)")
    add("--points", type=whole_number(2), default=40, help="values in that range")
    add(
        "--n",
        nargs="+",
        type=whole_number(1),
        default=[10**4, 10**5, 10**6, 10**7, 10**9, 10**12],
        help="training rows",
    )
    add("--dimension", type=whole_number(1), default=20, help="columns d")
    add("--queries", type=whole_number(2), default=1000, help="test points")
    add("--neighbors", type=whole_number(1), default=400, help="m")
    add("--kernel", choices=list(KERNELS), default="rbf", help="covariance of the true field")
    add("--lengthscale", type=float, default=1.0, help="true l")
    add("--kernel-variance", type=float, default=0.9, help="true σ_f²")
    add("--noise-variance", type=float, default=0.1, help="true σ_ξ²")
    add("--assumed-kernel", choices=list(KERNELS), help="(default: the true one)")
    add("--assumed-lengthscale", type=float, help="(default: the true one)")
    add("--assumed-kernel-variance", type=float, default=0.8)
    add("--assumed-noise-variance", type=float, default=0.2)
    add("--noise", choices=list(NOISES), default="gaussian", help="law of the noise")
    add("--field", choices=list(FIELDS), default="gaussian", help="law of the field")
    add("--sampler", choices=list(SAMPLERS), default="direct", help="how neighbours are drawn")
    add("--seed", type=seed, default=0)
    add("--out", type=Path, help="write the table here, as CSV")
    add("--figure", type=Path, help="draw it here: .png, .svg or .pdf (needs gpnn[plots])")
    add("--json", action="store_true", help="the table to stdout as JSON, not as text")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    for path in (args.out, args.figure):
        if path is not None:
            check_folder(path)
    if args.figure is not None:
        new_figure()  # complain of a missing matplotlib now, not after minutes of work
    plan = _PAPER[args.paper] if args.paper else {args.lengthscale: tuple(args.vary)}
    rows = [row for true_lengthscale, varied in plan.items() for row in _sweep(args, true_lengthscale, varied)]
    if args.out is not None:
        with whole_or_nothing(args.out) as path, open(path, "w", newline="") as file:
            table = csv.DictWriter(file, fieldnames=list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    if args.figure is not None:
        figure = simulation_figure(rows, FIGURE_2 if args.paper == "figure2" else None)
        with whole_or_nothing(args.figure) as path:
            figure.savefig(path, dpi=150)
    if args.json:
        json.dump(rows, sys.stdout, indent=1)
        print()
    else:
        _print_table(rows)


def _sweep(args: argparse.Namespace, true_lengthscale: float, varied: tuple[str, ...]) -> list[dict]:
    def values(name: str):
        low, high = args.range or _RANGES[name]
        if not 0 < low < high < np.inf:
            raise InvalidInputError(f"--range {low:g} {high:g} must be two positive numbers, the lower one first.")
        return np.geomspace(low, high, args.points)

    assumed_lengthscale = true_lengthscale if args.assumed_lengthscale is None else args.assumed_lengthscale
    return sweep(
        args.n,
        {name: values(name) for name in varied},
        args.kernel,
        Hyperparameters(true_lengthscale, args.kernel_variance, args.noise_variance),
        args.assumed_kernel or args.kernel,
        Hyperparameters(assumed_lengthscale, args.assumed_kernel_variance, args.assumed_noise_variance),
        d=args.dimension,
        n_queries=args.queries,
        n_neighbors=args.neighbors,
        noise=args.noise,
        field=args.field,
        sampler=args.sampler,
        random_state=args.seed,
        progress="simulate",
    )


def _print_table(rows: list[dict]) -> None:
    """The extremes over each sweep, and the value nearest to the truth: how much a wrong parameter costs at each n."""
    headings = ("metric", "lowest", "highest", "at truth", "± se", "limit")
    print(f"{'varied':16s}{'n':>7s}" + "".join(f"{heading:>12s}" for heading in headings))
    for varied, n in dict.fromkeys((row["varied"], row["n"]) for row in rows):
        group = [row for row in rows if (row["varied"], row["n"]) == (varied, n)]
        nearest = min(group, key=lambda row: abs(row[f"assumed_{varied}"] - row[varied]))
        for metric in METRICS:
            column = [row[metric] for row in group]
            figures = (min(column), max(column), nearest[metric], nearest[f"{metric}_se"], nearest[f"limit_{metric}"])
            print(f"{varied:16s}{n:7.0e}{metric:>12s}" + "".join(f"{figure:12.4f}" for figure in figures))
