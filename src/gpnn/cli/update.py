"""gpnn update: rows that came since, learned without a refit, and old ones forgotten."""

import argparse
import json
from pathlib import Path

from gpnn.cli.arguments import add_engine, add_missing, whole_number
from gpnn.files.whole import check_folder


def add_to(commands) -> None:
    parser = commands.add_parser(
        "update",
        help="learn new rows without a refit",
        description="A new model file that predicts from the rows of a table too. Kernel and metric stay what they "
        "were; each new row is predicted before it is learned, and intervals follow how that went.",
    )
    add = parser.add_argument
    add("model", type=Path, help="what gpnn fit wrote")
    add("table", type=Path, help="the new rows, with their target")
    add("--out", required=True, type=Path, metavar="FILE", help="where the new model goes; may be the old one")
    add("--window", type=whole_number(1), metavar="N", help="keep the newest N rows, and forget all others")
    add_missing(parser)
    add_engine(parser)
    add("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    from gpnn.tables import TableModel

    check_folder(args.out)
    model = TableModel.load(args.model)
    regressor = model.regressor
    each = getattr(regressor, "targets_", [regressor])
    settings = {name: getattr(regressor, name) for name in ("n_jobs", "verbose")}
    before = each[0]._n_seen
    regressor.set_params(engine=args.engine, n_jobs=args.jobs, verbose=1)
    model.partial_fit(args.table, args.missing, args.window)
    regressor.set_params(**settings)  # the others were for this run
    model.save(args.out)
    factors = [one._factors[0] for one in each]
    found = {
        "out": str(args.out), "new": each[0]._n_seen - before, "rows": max(one._n_left for one in each),
        "factor": factors[0] if len(factors) == 1 else dict(zip(model.targets, factors, strict=True)),
        "alarm": regressor.alarm_,
    }  # fmt: skip
    if args.json:
        print(json.dumps(found))
        return
    now = " and ".join(f"{factor:.3g}" for factor in factors)
    print(f"{found['new']:,} rows learned, {found['rows']:,} in all; variances are now {now} times those")
    print("of the fit. " + ("Errors have outgrown it: fit again." if found["alarm"] else "No alarm."))
