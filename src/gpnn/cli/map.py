"""gpnn map: mean, standard deviation, quantiles and draws on a grid."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from gpnn.cli.arguments import add_engine, add_target, loaded, seed, whole_number
from gpnn.common.errors import InvalidInputError


def add_to(commands) -> None:
    parser = commands.add_parser(
        "map",
        help="predict on a grid, with coordinates",
        description="Mean, sd and quantiles (and draws) of every cell of a grid, as NetCDF or GeoTIFF, or "
        "as a row for each cell in CSV or Parquet. Needs gpnn[maps].",
    )
    add = parser.add_argument
    add("model", type=Path, help="what gpnn fit wrote")
    add("--axis", dest="axes", action="append", required=True, metavar="COLUMN=FROM:TO:CELLS",
        help="an input that varies, such as lat=50:59:200; once for each, rows of the map first")  # fmt: skip
    add("--fix", dest="fixed", action="append", default=[], metavar="COLUMN=VALUE", help="any other input")
    add("--out", required=True, type=Path, metavar="FILE", help=".nc, .tif, .csv or .parquet")
    add("--coverage", type=float, default=0.9, help="of the interval between the two quantiles (default: 0.9)")
    add("--draws", type=whole_number(0), default=0, metavar="N", help="draws of the whole map (default: none)")
    add("--noise", action="store_true", help="draws with the noise of single measurements")
    add("--units", help="of the target, to be noted in the file")
    add("--seed", type=seed, default=0, help="a whole number from 0 to 2³² − 1")
    add_target(parser)
    add_engine(parser)
    add("--json", action="store_true", help="print JSON about the file written")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    from gpnn.files.whole import check_folder
    from gpnn.tables.joint import MAPS, write_map

    check_folder(args.out, MAPS)
    if not 0 < args.coverage < 1:
        raise InvalidInputError(f"coverage = {args.coverage} must lie strictly between 0 and 1, such as 0.9.")
    axes = dict(_axis(text) for text in args.axes)
    model = loaded(args)
    found = model.predict_grid(
        axes, dict(map(_fixed, args.fixed)), [0.5 - args.coverage / 2, 0.5 + args.coverage / 2], args.draws, args.seed,
        args.noise, args.units,
    )  # fmt: skip
    write_map(found, args.out)
    cells = int(np.prod([len(values) for values in axes.values()]))
    if args.json:
        print(json.dumps({"out": str(args.out), "cells": cells, "draws": args.draws}))
    else:
        print(f"gpnn: a map of {cells:,} cells", file=sys.stderr)


def _axis(text: str) -> tuple[str, np.ndarray]:
    name, _, rest = text.partition("=")
    try:
        first, last, cells = rest.split(":")
        return name, np.linspace(float(first), float(last), int(cells))
    except ValueError as error:
        raise InvalidInputError(
            f"--axis {text} cannot be read. Write COLUMN=FROM:TO:CELLS, as lat=50:59:200."
        ) from error


def _fixed(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidInputError(f"--fix {text} cannot be read. Write COLUMN=VALUE, as hour=12.")
    try:
        return name, float(value)
    except ValueError:
        return name, value
