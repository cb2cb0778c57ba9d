"""gpnn fit: learn a column of a table from the others, and keep the model in a file."""

import argparse
from pathlib import Path

from gpnn.cli import inspect
from gpnn.cli.arguments import add_engine, add_missing, period, seed, whole_number
from gpnn.common.kernels import KERNELS
from gpnn.common.scales import SCALES
from gpnn.files.whole import HEAD, check_folder, check_place
from gpnn.regressor import GPnnRegressor


def add_to(commands) -> None:
    parser = commands.add_parser(
        "fit",
        help="learn a column of a table from the others",
        description="Learn a column of a table (.csv, .csv.gz, .tsv, .parquet, .feather or .npy) from the others. "
        "Numbers are taken as they are; booleans, dates and categories are encoded by a rule that the model keeps.",
    )
    add = parser.add_argument
    add("table", type=Path, nargs="+", help="the training rows: a file, several, a folder, or a pattern")
    add("--target", required=True, action="append", metavar="COLUMN", help="what to predict; again for several")
    add("--out", required=True, type=Path, metavar="FILE", help="where the model goes, such as model.gpnn")
    columns = parser.add_mutually_exclusive_group()
    columns.add_argument("--features", nargs="+", metavar="COLUMN", help="learn from these only")
    columns.add_argument("--ignore", nargs="+", metavar="COLUMN", help="learn from all but these")
    add("--categories", nargs="+", metavar="COLUMN", help="columns that are categories though they look like numbers")
    add("--coordinates", nargs=2, metavar=("LATITUDE", "LONGITUDE"), help="columns in degrees: places on the globe")
    add("--periodic", nargs="+", type=period, metavar="COLUMN=PERIOD",
        help="columns whose values come round again, as hour=24 wind=360")  # fmt: skip
    to_come = parser.add_mutually_exclusive_group()
    to_come.add_argument("--group", metavar="COLUMN",
        help="if new rows will be of groups that no training row has, such as new patients: their label")  # fmt: skip
    to_come.add_argument("--time", metavar="COLUMN", help="if new rows will be later than the training rows: when")
    add("--noise", metavar="COLUMN", help="what is known of the target's noise: a column of variances, in its units²")
    add("--weight", metavar="COLUMN", help="weights of the rows: w is as w rows with the same target")
    add("--memory", metavar="SIZE",
        help="for tables larger than memory: hold no more than this, such as 4GiB; the model is a folder")  # fmt: skip
    add("--paper", action="store_true", help="the published recipe: exponential kernel, m = 400, one lengthscale")
    known = f"{', '.join(KERNELS)}, or a sum such as matern32+exponential"
    add("--kernel", metavar="NAME", help=f"{known} (default: chosen on held-out rows)")
    add("--neighbors", type=whole_number(1), metavar="M", help="rows per prediction (default: chosen on held-out rows)")
    add("--target-scale", choices=["auto", *SCALES], help="what of the target is learned (default: auto)")
    add("--holdout", choices=["random", "patches"], help="patches: if new rows will lie in gaps between the old ones")
    add("--max-levels", type=whole_number(1), default=20, metavar="N",
        help="categories with more levels become mean targets (default: 20)")  # fmt: skip
    add("--seed", type=seed, default=0, help="a whole number from 0 to 2³² − 1")
    add_missing(parser)
    add_engine(parser)
    add("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    from gpnn.tables import TableModel

    check_folder(args.out) if args.memory is None else check_place(args.out, HEAD)
    asked = {"engine": args.engine, "kernel": args.kernel, "n_neighbors": args.neighbors, "holdout": args.holdout}
    asked["target_scale"] = args.target_scale
    settings = {name: value for name, value in asked.items() if value is not None}
    recipe = GPnnRegressor.paper if args.paper else GPnnRegressor
    regressor = recipe(**settings, n_jobs=args.jobs, random_state=args.seed, verbose=1)
    model = TableModel.fit(
        args.table if len(args.table) > 1 else args.table[0],
        args.target,
        regressor=regressor,
        features=args.features,
        ignore=args.ignore,
        categories=args.categories,
        missing=args.missing or "error",
        max_levels=args.max_levels,
        group=args.group,
        time=args.time,
        noise=args.noise,
        weight=args.weight,
        coordinates=args.coordinates,
        periodic=dict(args.periodic) if args.periodic else None,
        memory=args.memory,
        out=args.out,
    )
    if args.memory is None:
        model.save(args.out)
    inspect.show(args.out, args.json)
