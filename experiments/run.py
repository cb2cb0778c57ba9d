"""Run the paper's experiments. A run that was stopped continues: what is in experiments/results is not done again.

python experiments/run.py real                                     # the paper's data sets and methods, three seeds
python experiments/run.py real --datasets bike --methods gpnn grbcm --seeds 0 --max-test 2000
python experiments/run.py prediction                               # how long one prediction takes
python experiments/run.py oakley --kernel exponential --sizes 1e4 1e5 1e6 1e7 5e7
python experiments/run.py simulation                               # Algorithm 1
--quick with any of them: a small version (see protocol.toml, [quick]).
"""

import argparse
import json
import os
import sys
from pathlib import Path

from tqdm.auto import tqdm

from gpnn import __version__
from gpnn.common import provenance
from gpnn.engines.parallel import progress_bar
from gpnn.errors import InvalidInputError, MissingExtraError
from runners import RUNNERS, oakley
from store import RESULTS, Store


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["--one"]:  # a size of Oakley, in a process of its own
        print(json.dumps(oakley.measure(json.loads(argv[1]), int(argv[2]) or None), default=float))
        return 0
    args = _parse(argv)
    runner = RUNNERS[args.kind]
    try:
        return work_through(runner, runner.jobs(args), args)
    except (InvalidInputError, MissingExtraError, OSError) as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("run.py: interrupted. Results so far are kept; the same command goes on from here.", file=sys.stderr)
        return 130


def work_through(runner, jobs: list[dict], args) -> int:
    """Do the jobs that have no result yet; 1 if some could not be done. One that fails does not stop the others."""
    store = Store(args.results / f"{runner.NAME}.jsonl")
    failed = 0
    with progress_bar(len(jobs), runner.NAME) as bar:
        for job in jobs:
            name = " ".join(str(value) for key, value in job.items() if key != "protocol" and value is not None)
            if job in store:
                tqdm.write(f"{name}: there already")
            else:
                bar.set_postfix_str(name)
                try:
                    result = runner.run(job, store, args)
                except (InvalidInputError, MissingExtraError, OSError, MemoryError) as error:
                    tqdm.write(f"{name}: not done. {error}", file=sys.stderr)
                    failed += 1
                else:
                    store.append({"job": job, "result": result, "made": _made()})
                    tqdm.write(f"{name}: {runner.line(job, result)}")
            bar.update()
    return int(failed > 0)


def _made() -> dict:
    return {
        "time": provenance.now(),
        "machine": provenance.machine(),
        "load": os.getloadavg()[0],  # processes that were running or waiting: times on a busy machine are long
        "versions": {"gpnn": __version__} | provenance.versions("torch", "gpytorch"),
    }


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for name, runner in RUNNERS.items():
        kind = kinds.add_parser(name, help=runner.__doc__.split(":")[0], description=runner.__doc__)
        runner.add_arguments(kind)
        kind.add_argument("--quick", action="store_true", help="a small version")
        kind.add_argument("--jobs", type=int, help="threads; default: every core")
        kind.add_argument("--results", type=Path, default=RESULTS, help="folder of the result files")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
