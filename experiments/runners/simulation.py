"""Algorithm 1 over ranges of assumed parameters: the figure "sim limits" and its grid. One job per true l and n."""

import numpy as np

from gpnn import Hyperparameters
from gpnn.cli import arguments
from gpnn.simulation import sweep
from protocol import fingerprint, section

NAME = "simulation"


def add_arguments(parser) -> None:
    parser.add_argument("--sizes", nargs="+", type=arguments.whole_number(1000), help="default: 1e4 … 1e12")


def jobs(args) -> list[dict]:
    settings = section(NAME, args.quick)
    return [
        {"n": n, "lengthscale": part["lengthscale"], "vary": part["vary"], "points": settings["points"],
         "n_queries": settings["n_queries"], "protocol": protocol()}
        for part in settings["sweeps"]
        for n in args.sizes or settings["sizes"]
    ]  # fmt: skip


def protocol() -> str:
    in_the_job = ("sizes", "sweeps", "points", "n_queries")
    return fingerprint({key: value for key, value in section(NAME).items() if key not in in_the_job})


def run(job: dict, store, args) -> dict:
    settings = section(NAME)
    true = Hyperparameters(job["lengthscale"], settings["kernel_variance"], settings["noise_variance"])
    assumed = Hyperparameters(
        job["lengthscale"], settings["assumed_kernel_variance"], settings["assumed_noise_variance"]
    )
    rows = sweep(
        [job["n"]],
        {name: np.geomspace(*settings["ranges"][name], job["points"]) for name in job["vary"]},
        settings["kernel"],
        true,
        settings["kernel"],
        assumed,
        d=settings["d"],
        n_queries=job["n_queries"],
        n_neighbors=settings["n_neighbors"],
        random_state=settings["seed"],
        n_jobs=args.jobs,
        progress=f"n = {job['n']:.0e}",
    )
    # What all rows share is kept once.
    common = {key: value for key, value in rows[0].items() if all(row[key] == value for row in rows)}
    return {"common": common, "rows": [{key: value for key, value in row.items() if key not in common} for row in rows]}


def rows_of(records: list[dict]) -> list[dict]:
    """The rows of `sweep` again."""
    return [record["result"]["common"] | row for record in records for row in record["result"]["rows"]]


def line(job: dict, result: dict) -> str:
    mse = [row["mse"] for row in rows_of([{"result": result}])]
    return f"MSE between {min(mse):.4f} and {max(mse):.4f} over {len(mse)} settings"
