"""gpnn explain: which training rows decided each prediction, with what weights, and which columns told them apart."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from gpnn.cli.arguments import add_engine, add_missing, add_target, loaded, whole_number
from gpnn.common.errors import InvalidInputError


def add_to(commands) -> None:
    parser = commands.add_parser(
        "explain",
        help="which training rows decided a prediction",
        description="Of each row of the table: its prediction, the training rows with the largest weights in it, and "
        "the columns that their distances come from. A weight is what the mean moves by when that row's target moves "
        "by one.",
    )
    add = parser.add_argument
    add("model", type=Path, help="what gpnn fit wrote")
    add("table", type=Path, help="the rows to explain")
    add("--rows", type=whole_number(1), default=10, metavar="N", help="explain the first N of them (default: 10)")
    add("--top", type=whole_number(1), default=5, metavar="K", help="training rows to show of each (default: 5)")
    add_missing(parser)
    add_target(parser)
    add_engine(parser)
    add("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    from gpnn.judging.diagnostics import reasons

    model = loaded(args, verbose=0)
    X = model.read_inputs(args.table, args.missing)[: args.rows]
    if len(X) == 0:
        raise InvalidInputError(f"{args.table} has no row to explain. Check that it is the right file.")
    law = model.regressor.predict_distribution(X)
    found = reasons(model.regressor, X.to_numpy(), law, range(len(X)), k=args.top)
    if args.json:
        print(json.dumps([asdict(one) for one in found]))
        return
    scale = model.regressor.target_scale_
    if not scale.plain:
        print(f"{model.target} was learned on the scale {scale.kind!r}: weights are of that, not of {model.target}")
    for one in found:
        support = "" if one.support is None else f", support {one.support:.2g}"
        print(f"row {one.row}: {model.target} = {one.predicted:.5g} ± {one.sd:.2g}{support}; these rows decided:")
        print(f"{'training row':>16s}{'weight':>10s}{model.target:>14s}")
        for row in one.decisive:
            print(f"{row['row']:>16,d}{row['weight']:>10.3f}{row['y']:>14.5g}")
        shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in one.columns.items())
        print(f"  as if {one.effective:.1f} rows had weighed alike; distances are of {shares}")
