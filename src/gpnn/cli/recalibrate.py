"""gpnn recalibrate: variances and intervals corrected by rows whose target is known now, and nothing else changed."""

import argparse
import json
import math
import sqlite3
from pathlib import Path
from urllib.parse import quote

from gpnn.cli.arguments import add_engine, add_missing
from gpnn.common.errors import FileError, InvalidInputError, listed
from gpnn.files.whole import check_folder

_MEANINGS = {
    "rows": "whose target is known",
    "outside": "of them, outside the support",
    "factor": "on the variances within the support",
    "factor_outside": "on those outside",
    "z_squared": "mean of (y − mean)²/variance before: 1 when variances are right",
    "interval": "where it lies with probability 95 %",
    "alarm": "whether it is farther from 1 than chance explains",
}
_ROWS = "SELECT y, inputs FROM observations WHERE version = ? ORDER BY id"
_OTHERS = "SELECT model, version, COUNT(*) FROM observations GROUP BY model, version ORDER BY MAX(id) DESC"


def add_to(commands) -> None:
    parser = commands.add_parser(
        "recalibrate",
        help="correct variances and intervals by newly labelled rows",
        description="A new model file, whose variances and intervals are corrected by rows whose target is known by "
        "now: a table, or the log of outcomes that gpnn serve keeps. Nothing is learned anew, and means stay.",
    )
    add = parser.add_argument
    add("model", type=Path, help="what gpnn fit wrote")
    add("table", type=Path, nargs="?", help="labelled rows: other ones than those the model was fitted to")
    add("--log", type=Path, metavar="FILE", help="in place of a table: the log of gpnn serve --log")
    add("--out", required=True, type=Path, metavar="FILE", help="where the new model goes")
    add_missing(parser)
    add_engine(parser)
    add("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    from gpnn.tables import TableModel

    if (args.table is None) == (args.log is None):
        raise InvalidInputError("Give the labelled rows as a table, or as --log FILE: one of them.")
    check_folder(args.out)
    model = TableModel.load(args.model)
    settings = {name: getattr(model.regressor, name) for name in ("n_jobs", "verbose")}
    model.regressor.set_params(engine=args.engine, n_jobs=args.jobs, verbose=1)
    table = args.table if args.log is None else _logged(args.log, args.model, model)
    model.recalibrate(table, args.missing)
    model.regressor.set_params(**settings)  # the others were for this run
    model.save(args.out)
    changes = {
        target: {name: _plain(value) for name, value in model.of(target).regressor.recalibration_.items()}
        for target in model.targets
    }
    one = len(changes) == 1
    if args.json:
        print(json.dumps({"out": str(args.out), **(changes[model.targets[0]] if one else changes)}))
        return
    for target, of_target in changes.items():
        if not one:
            print(target)
        for name, value in of_target.items():
            print(f"{name:16s}{_text(value):>16s}   {_MEANINGS.get(name, '')}".rstrip())


def _logged(path: Path, model_path: Path, model):
    """A table of what the log holds of this very model file: inputs as clients sent them, and what happened."""
    import pyarrow as pa

    from gpnn.serve.models import arrow_of, version_of

    version = version_of(model_path)
    if not path.is_file():
        raise FileError(f"There is no log {path}. Check the name and the folder ({Path.cwd()}).")
    try:
        connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
        try:
            rows = connection.execute(_ROWS, (version,)).fetchall()
            others = [] if rows else connection.execute(_OTHERS).fetchall()
        finally:
            connection.close()
        inputs = [json.loads(text) for _, text in rows]
        values = {name: [row[name] for row in inputs] for name in model.encoder.inputs}
    except (sqlite3.Error, ValueError, LookupError, TypeError) as error:
        raise FileError(
            f"{path} cannot be read as a log of outcomes: {error}. Check that it is what gpnn serve --log wrote, and "
            "that nothing has locked it."
        ) from error
    if not rows:
        held = listed([f"{name} {other} ({count:,} rows)" for name, other, count in others]) or "nothing"
        raise InvalidInputError(
            f"{path} has no outcome of {model_path.name} as it is (version {version}). It holds: {held}. Outcomes of "
            "other versions do not count; give the file that was served then, or a table of labelled rows."
        )
    columns = {name: arrow_of(column, name) for name, column in values.items()}
    return pa.table({**columns, model.target: [y for y, _ in rows]})


def _plain(value):
    """As JSON takes it: of one row, the interval has no upper end."""
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _text(value) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " – ".join(map(_text, value))
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)
