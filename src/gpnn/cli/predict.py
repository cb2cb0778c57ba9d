"""gpnn predict: mean, standard deviation and interval for every row of a table, in a stream."""

import argparse
import json
import sys
from pathlib import Path

from gpnn.cli.arguments import add_engine, add_missing, loaded


def add_to(commands) -> None:
    parser = commands.add_parser(
        "predict",
        help="predict the rows of a table",
        description="A row of mean, sd, lower and upper for every row of the table, in the same order. Tables larger "
        "than memory go through in a stream; the file is whole or not there.",
    )
    add = parser.add_argument
    add("model", type=Path, help="what gpnn fit wrote")
    add("table", type=Path, help="the new rows")
    add("--out", type=Path, metavar="FILE", help=".csv or .parquet (default: CSV to standard output)")
    add("--coverage", type=float, default=0.9, help="probability that y lies between lower and upper (default: 0.9)")
    add("--keep", nargs="+", default=[], metavar="COLUMN", help="columns of the table to put before the predictions")
    add_missing(parser)
    add_engine(parser)
    add("--json", action="store_true", help="with --out: print JSON about the file written")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    model = loaded(args, verbose=0)  # one bar for all rows, not one per batch
    n_rows = model.predict_file(args.table, args.out, args.coverage, args.keep, args.missing, progress="predict")
    if args.out is not None and args.json:
        print(json.dumps({"out": str(args.out), "rows": n_rows, "coverage": args.coverage}))
    else:
        print(f"gpnn: predicted {n_rows:,} rows", file=sys.stderr)
