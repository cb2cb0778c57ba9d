"""gpnn report: can this model be trusted? One HTML page, to look at rather than to read."""

import argparse
import json
from itertools import chain
from pathlib import Path

from gpnn.cli.arguments import add_engine, add_missing, add_target, loaded
from gpnn.common.errors import InvalidInputError
from gpnn.files.whole import check_folder
from gpnn.judging import report
from gpnn.judging.diagnostics import diagnose_parts


def add_to(commands) -> None:
    parser = commands.add_parser("report", help="one HTML page of charts, warnings and cures, from test rows")
    add = parser.add_argument
    add("model", type=Path, help="what gpnn fit wrote")
    add("table", type=Path, help="test rows: other ones than those the model was fitted to")
    add("--out", type=Path, default=Path("report.html"), help="the page (default: report.html)")
    add_missing(parser)
    add_target(parser)
    add_engine(parser)
    add("--json", action="store_true", help="print all that was measured as JSON")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    check_folder(args.out)
    model = loaded(args)
    parts = iter((X, y) for X, y, _ in model.in_parts(args.table, args.missing))
    if (first := next(parts, None)) is None:
        raise InvalidInputError(f"{args.table} has no row with a known {model.target}. Give rows to test on.")
    found = diagnose_parts(model.regressor, chain([first], parts), model.targets[0])
    report.write(found, args.out)
    if args.json:
        print(json.dumps(found.as_dict()))
        return
    print(found.verdict.sentence)
    for finding in found.findings:
        print(f"{finding.severity}: {finding.title}. {finding.cure}")
    print(f"charts: {args.out}")
