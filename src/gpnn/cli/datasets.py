"""gpnn datasets: list them, describe one, fetch one."""

import argparse
import json
from pathlib import Path

from gpnn import datasets
from gpnn.datasets.export import check_export, export
from gpnn.datasets.sources import find

_FACTS = (
    "name", "title", "kind", "n", "d", "preparation", "licence", "citation", "page",
    "url", "sha256", "parquet", "parquet_sha256", "tried",
)  # fmt: skip


def add_to(commands) -> None:
    parser = commands.add_parser("datasets", help="the data sets of the paper: list them, describe one, fetch one")
    actions = parser.add_subparsers(dest="action", required=True)
    listing = actions.add_parser("list", help="every data set, its size, and where it would come from")
    listing.set_defaults(run=_list_datasets)
    about = actions.add_parser("info", help="preparation, source, licence and citation of one")
    about.set_defaults(run=_describe_dataset)
    get = actions.add_parser("get", help="find or download one, and print the path of its file")
    get.set_defaults(run=_get_dataset)
    get.add_argument(
        "--out", type=Path, metavar="FILE", help="write the prepared table as .parquet, .csv or .npz instead"
    )
    for action in (about, get):
        action.add_argument("name")
    for action in (listing, about, get):
        action.add_argument("--json", action="store_true", help="print JSON")


def _facts(name: str) -> dict:
    dataset = datasets.info(name)
    path = find(dataset)
    return {fact: getattr(dataset, fact) for fact in _FACTS} | {"path": None if path is None else str(path)}


def _list_datasets(args: argparse.Namespace) -> None:
    rows = [_facts(name) for name in datasets.names()]
    if args.json:
        print(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    print(f"{'name':18s}{'kind':10s}{'rows':>10s}{'inputs':>8s}  file")
    for row in rows:
        place = row["path"] or ("to download" if row["url"] else "not here, see info")
        print(f"{row['name']:18s}{row['kind']:10s}{row['n']:10,}{row['d']:8d}  {place}")


def _describe_dataset(args: argparse.Namespace) -> None:
    facts = _facts(args.name)
    if args.json:
        print(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    for fact, value in facts.items():
        print(f"{fact:15s}{'–' if value is None else value}")


def _get_dataset(args: argparse.Namespace) -> None:
    if args.out is None:
        path = datasets.path(args.name)
    else:
        path = args.out
        check_export(path)
        export(*datasets.load(args.name, as_frame=True), path)
    print(json.dumps({"name": args.name, "path": str(path)}) if args.json else path)
