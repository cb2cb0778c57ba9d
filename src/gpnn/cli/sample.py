"""gpnn sample: draws of all rows of a table together."""

import argparse
import json
import sys
from pathlib import Path

from gpnn.cli.arguments import add_engine, add_target, loaded, seed, whole_number


def add_to(commands) -> None:
    parser = commands.add_parser(
        "sample",
        help="draw what a table's rows might come out as, all together",
        description="A column for each draw, a row for every row of the table, in the same order. Rows that are near "
        "each other vary as one, so that sums, differences and largest values of draws have the right spread.",
    )
    add = parser.add_argument
    add("model", type=Path, help="what gpnn fit wrote")
    add("table", type=Path, help="the new rows")
    add("--draws", type=whole_number(1), default=100, metavar="N", help="how many (default: 100)")
    add("--no-noise", action="store_true", help="draw what underlies the target, without the noise of each row's own")
    add("--out", type=Path, metavar="FILE", help=".csv or .parquet (default: CSV to standard output)")
    add("--keep", nargs="+", default=[], metavar="COLUMN", help="columns of the table to put before the draws")
    add("--seed", type=seed, default=0, help="a whole number from 0 to 2³² − 1")
    add_target(parser)
    add_engine(parser)
    add("--json", action="store_true", help="with --out: print JSON about the file written")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    model = loaded(args)
    n_rows = model.sample_file(args.table, args.out, args.draws, args.seed, not args.no_noise, args.keep)
    if args.out is not None and args.json:
        print(json.dumps({"out": str(args.out), "rows": n_rows, "draws": args.draws}))
    else:
        print(f"gpnn: {args.draws:,} draws of {n_rows:,} rows", file=sys.stderr)
