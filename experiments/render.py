"""Draw the paper's tables and figures from experiments/results and published.csv into experiments/output.

python experiments/render.py                       # all of them
python experiments/render.py table1 figure_oakley  # some
python experiments/render.py --docs                # all, and the tables of docs/reproduction.md
"""

import argparse
import sys
from difflib import get_close_matches
from pathlib import Path

from gpnn.errors import InvalidInputError, MissingExtraError
from gpnn.files.whole import whole_or_nothing
from renderers.document import rewrite
from renderers.evidence import Evidence
from renderers.figures import FIGURES
from renderers.tables import TABLES
from store import RESULTS

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "reproduction.md"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of: {', '.join((*TABLES, *FIGURES))}")
    parser.add_argument("--docs", action="store_true", help="also rewrite the tables of docs/reproduction.md")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the result files")
    parser.add_argument("--output", type=Path, default=HERE / "output", help="folder to write into")
    args = parser.parse_args(argv)
    try:
        render(args.names or [*TABLES, *FIGURES], Evidence.load(args.results), args.output)
        if args.docs:
            evidence = Evidence.load(args.results)
            rewrite(PAGE, {name: table(evidence) for name, table in TABLES.items()})
            print(PAGE)
    except (InvalidInputError, MissingExtraError, OSError) as error:
        print(f"render.py: {error}", file=sys.stderr)
        return 2
    return 0


def render(names: list[str], evidence: Evidence, output: Path) -> None:
    for name in names:
        if name not in TABLES and name not in FIGURES:
            near = get_close_matches(name, [*TABLES, *FIGURES], n=3, cutoff=0.4)
            hint = f"Near it are: {', '.join(near)}. " if near else ""
            raise InvalidInputError(
                f"There is no table or figure {name!r}. {hint}All names: {', '.join((*TABLES, *FIGURES))}."
            )
    output.mkdir(parents=True, exist_ok=True)
    for name in names:
        if name in TABLES:
            with whole_or_nothing(output / f"{name}.md") as path:
                path.write_text(f"{_caption(TABLES[name])}\n\n{TABLES[name](evidence)}\n")
            print(output / f"{name}.md")
            continue
        figure = FIGURES[name](evidence)
        if figure is None:
            print(f"{name}: not run yet, nothing to draw")
            continue
        for ending in ("png", "svg"):
            with whole_or_nothing(output / f"{name}.{ending}") as path:
                figure.savefig(path, dpi=150)
            print(output / f"{name}.{ending}")


def _caption(function) -> str:
    return " ".join(function.__doc__.split())


if __name__ == "__main__":
    sys.exit(main())
