"""gpnn inspect: what a model file holds, from its header alone."""

import json
from pathlib import Path

from gpnn.files import model as model_file


def add_to(commands) -> None:
    parser = commands.add_parser("inspect", help="what a model file holds")
    parser.add_argument("model", type=Path, help="what gpnn fit or GPnnRegressor.save wrote")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=lambda args: show(args.model, args.json))


def show(path: Path, as_json: bool) -> None:
    """Print the facts of a model file."""
    facts = _facts(path)
    if as_json:
        print(json.dumps(facts, ensure_ascii=False))
        return
    for name, value in facts.items():
        if isinstance(value, dict) and value:
            width = max(16, *map(len, value))
            print(name, *(f"  {key:{width}s}  {_text(entry)}" for key, entry in value.items()), sep="\n")
        else:
            print(f"{name:20s}{_text(value)}")


def _facts(path: Path) -> dict:
    content = model_file.describe(path)
    learned, schema = content["learned"], content["schema"] or {}
    report, encoder = learned["fit_report_"], schema.get("encoder", {})
    return {
        "model": str(path),
        "bytes": content["bytes"],
        "gpnn": content["gpnn"],
        "target": schema.get("target"),
        "columns": {column["name"]: _rule(column) for column in encoder.get("columns", [])},
        "missing": schema.get("missing"),
        "group": schema.get("group"),
        "time": schema.get("time"),
        "rows": report["n"],
        "left_out": report.get("left_out", 0),  # files from before they were looked for do not say
        "inputs": report["d"],
        "kernel": learned["kernel_"],
        "whitening": report["whitening"],
        "neighbors": learned["n_neighbors_"],
        "target_scale": report.get("target_scale", "identity"),  # files from before there were others do not say
        "held_out_whitened": _held_out(report, learned["n_neighbors_"]),
        "index": report["index"],
        "recall": report["recall"],
        "alpha": learned["alpha_"],
        "alpha_interval": learned["alpha_interval_"],
        "engine": report.get("engine", "cpu"),  # files from before there were others do not say
        "seconds": report["seconds"],
    }


def _held_out(report: dict, n_neighbors: int) -> dict[str, float] | None:
    """Scores on held-out training rows, target scaled to variance 1, as they were when m was chosen."""
    curve = {point["n_neighbors"]: point for point in report.get("m_curve", ())}
    point = curve.get(n_neighbors)
    return None if point is None else {name: point[name] for name in ("rmse", "nll")}


def _rule(column: dict) -> str:
    """What becomes of a column, in a few words."""
    match column["kind"]:
        case "date":
            return f"date: {', '.join(column['parts'])}"
        case "circle":
            return f"circle of period {column['period']:g}"
        case "place":
            return f"latitude, with {column['longitude']}: kilometres {'on a plane' if column['flat'] else 'in space'}"
        case "one-hot" | "target mean":
            return f"{column['kind']}, {len(column['levels'])} levels"
    return column["kind"]


def _text(value) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return " – ".join(_text(entry) for entry in value)
    return "–" if value is None else str(value)
