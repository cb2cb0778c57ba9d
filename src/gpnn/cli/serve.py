"""gpnn serve: a fitted model behind an address."""

import argparse
from pathlib import Path

from gpnn.cli.arguments import add_engine, whole_number
from gpnn.common.extras import import_pandas, import_uvicorn


def add_to(commands) -> None:
    parser = commands.add_parser(
        "serve",
        help="answer over HTTP, with a page to ask at",
        description="Answer predictions over HTTP (JSON, CSV, Arrow), with a page to ask at /, what can be asked at "
        "/docs and counts at /metrics. Files that are replaced are picked up; SIGTERM lets requests under way finish.",
    )
    add = parser.add_argument
    add("models", nargs="+", type=Path, metavar="model", help="what gpnn fit or GPnnRegressor.save wrote")
    add("--host", default="127.0.0.1", help="address to listen at (default: 127.0.0.1, this machine alone)")
    add("--port", type=whole_number(0), default=8000, help="(default: 8000; 0: any that is free)")
    add("--workers", type=whole_number(1), default=1, metavar="N", help="processes (default: 1)")
    add("--token-file", type=Path, metavar="FILE", help="answer only those who send one of these tokens, one a line")
    add("--max-rows", type=whole_number(1), default=1_000_000, metavar="N", help="of a request (default: 1,000,000)")
    add("--max-bytes", type=whole_number(1), default=256 << 20, metavar="N", help="of a body (default: 256 MiB)")
    add("--max-waiting", type=whole_number(1), default=1024, metavar="N",
        help="requests that may wait; more get 429 (default: 1024)")  # fmt: skip
    add("--timeout", type=_seconds, default=30.0, metavar="SECONDS", help="for reading and answering (default: 30)")
    add("--log", type=Path, metavar="FILE", help="keep outcomes that clients POST to /observe here (SQLite)")
    add_engine(parser, "of each process (default: cores / workers)")
    parser.set_defaults(run=_run)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value


def _run(args: argparse.Namespace) -> None:
    import_uvicorn()
    import_pandas()
    from gpnn.serve.app import Settings
    from gpnn.serve.server import serve, tokens_of

    settings = Settings(
        paths=tuple(args.models),
        tokens=tokens_of(args.token_file),
        max_rows=args.max_rows,
        max_bytes=args.max_bytes,
        max_waiting=args.max_waiting,
        timeout=args.timeout,
        n_jobs=args.jobs,
        engine=args.engine,
        log=args.log,
    )
    serve(settings, args.host, args.port, args.workers)
