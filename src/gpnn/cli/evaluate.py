"""gpnn evaluate: how good the predictions are on rows whose target is known."""

import argparse
import json
from pathlib import Path

from gpnn.cli.arguments import add_engine, add_missing, loaded

_MEANINGS = {
    "rows": "",
    "rmse": "root mean squared error of the mean",
    "nll": "mean negative log density: lower is better",
    "calibration": "mean squared error in units of the variance: 1 when variances are right",
    "coverage_90": "share of rows inside their 90 % interval",
    "crps": "mean distance between the law and what happened",
    "outside_support": "share of rows farther from the training rows than 99 of 100 of these are from each other",
}


def add_to(commands) -> None:
    parser = commands.add_parser("evaluate", help="score predictions on a table whose target is known")
    add = parser.add_argument
    add("model", type=Path, help="what gpnn fit wrote")
    add("table", type=Path, help="test rows: other ones than those the model was fitted to")
    add("--units", choices=["y", "whitened"], default="y",
        help="whitened: target scaled to variance 1 by the training rows, as in the paper")  # fmt: skip
    add_missing(parser)
    add_engine(parser)
    add("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    model = loaded(args)
    scores = model.evaluate(args.table, args.missing, args.units)
    if args.json:
        print(json.dumps(scores))
        return
    for target in model.targets:
        if len(model.targets) > 1:
            print(target)
        for name, value in (scores if len(model.targets) == 1 else scores[target]).items():
            text = "–" if value is None else f"{value:,}" if name == "rows" else f"{value:.5g}"
            print(f"{name:16s}{text:>9s}   {_MEANINGS[name]}".rstrip())
