"""The command line: a thin skin over the library. Results to stdout, everything else to stderr."""

import argparse
import json
import sys
import warnings
from pathlib import Path
from time import perf_counter

import numpy as np
from tqdm import tqdm

from gpnn import GPnnRegressor, __version__, datasets
from gpnn._parallel import n_threads
from gpnn.datasets import oakley_ohagan
from gpnn.datasets.export import check_export, export
from gpnn.datasets.sources import find
from gpnn.errors import DatasetError, GPnnWarning, InvalidInputError, MissingExtraError
from gpnn.kernels import KERNELS
from gpnn.neighbors import IVF
from gpnn.theory import limits

_TEST_ROWS = 10_000
_NOISE_VARIANCE = 6.0  # a tenth of the function's own variance


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gpnn", description=__doc__)
    parser.add_argument("--version", action="version", version=f"gpnn {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="fit and predict the noisy Oakley–O'Hagan function, beside theory's limits")
    demo.add_argument("--rows", type=_whole_number, default=1_000_000, help="training rows (default: one million)")
    demo.add_argument("--kernel", choices=list(KERNELS), default="exponential")
    demo.add_argument("--seed", type=_seed, default=0, help="a whole number from 0 to 2³² − 1")
    demo.set_defaults(run=_demo)
    _add_datasets(commands)
    args = parser.parse_args(argv)
    try:
        args.run(args)
    except (InvalidInputError, DatasetError, MissingExtraError) as error:
        print(f"gpnn: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gpnn: interrupted", file=sys.stderr)
        return 130
    return 0


def _whole_number(text: str) -> int:
    """An integer, also as 1e6 or 1_000_000."""
    value = float(text)
    if not value.is_integer() or value < 10:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of rows, at least 10")
    return int(value)


def _seed(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 2³² − 1")
    return value


def _compile(kernel: str, X, y) -> None:
    """A fit and a prediction on a few rows, so that the figures below are of the work and not of the compiler."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPnnWarning)
        GPnnRegressor(kernel=kernel, n_neighbors=50, index=IVF(n_cells=8), random_state=0).fit(X, y).predict(X[:10])


def _demo(args: argparse.Namespace) -> None:
    def say(text: str) -> None:
        tqdm.write(text, file=sys.stderr)

    say(f"gpnn {__version__}: {args.rows:,} rows of the Oakley–O'Hagan function (15 inputs) with Laplace noise, "
        f"{args.kernel} kernel, {n_threads(None)} threads")  # fmt: skip
    start = perf_counter()
    X, y = oakley_ohagan(args.rows + _TEST_ROWS, _NOISE_VARIANCE, "laplace", args.seed)
    X_test, y_test, X, y = X[-_TEST_ROWS:], y[-_TEST_ROWS:], X[:-_TEST_ROWS], y[:-_TEST_ROWS]
    seconds = {"make the data": perf_counter() - start}

    start = perf_counter()
    _compile(args.kernel, X[:4000], y[:4000])
    if perf_counter() - start > 1:
        say(f"compiled in {perf_counter() - start:.1f} s (only the first time on a machine)")

    model = GPnnRegressor(kernel=args.kernel, random_state=args.seed, verbose=1).fit(X, y)
    seconds.update(model.fit_report_["seconds"])
    start = perf_counter()
    scores = model.evaluate(X_test, y_test)
    seconds[f"predict {_TEST_ROWS:,} rows"] = perf_counter() - start

    m = model.n_neighbors_
    noise = _NOISE_VARIANCE / model.whitener_.y_std**2  # in whitened units, as every figure below
    limit = limits(noise, noise, m)
    widest = np.sqrt(1 + 1 / m) * 1.6448536
    laplace_coverage = 1 - np.exp(-np.sqrt(2) * widest)
    rows = [
        ("RMSE", scores["rmse"], limit.rmse, "√(σξ²(1 + 1/m))"),
        ("NLL", scores["nll"], limit.nll, "½(log 2πσξ²(1 + 1/m) + 1)"),
        ("calibration", scores["calibration"], limit.calibration, "1 when variances are right"),
        ("90 % coverage", scores["coverage_90"], laplace_coverage, "of Laplace noise by Gaussian intervals"),
    ]
    print(f"\n{'stage':24s}{'seconds':>10s}")
    for name, value in seconds.items():
        print(f"{name:24s}{value:10.2f}")
    print(f"{'fit, all stages':24s}{sum(model.fit_report_['seconds'].values()):10.2f}")
    print(
        f"\n{'on ' + format(_TEST_ROWS, ',') + ' new rows':24s}{'measured':>10s}{'limit':>10s}   as n → ∞ (Theorem 1)"
    )
    for name, measured, limiting, formula in rows:
        print(f"{name:24s}{measured:10.4f}{limiting:10.4f}   {formula}")
    report = model.fit_report_
    print(f"\nm = {m} neighbours, index {report['index']} with recall {report['recall']:.3f}, α = {model.alpha_:.3f}; "
          f"y scaled to variance 1, of which noise is {noise:.3f}")  # fmt: skip


# --- gpnn datasets ----------------------------------------------------------------------------------------------------

_FACTS = (
    "name", "title", "kind", "n", "d", "preparation", "licence", "citation", "page",
    "url", "sha256", "parquet", "parquet_sha256", "tried",
)  # fmt: skip


def _add_datasets(commands) -> None:
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


if __name__ == "__main__":
    sys.exit(main())
