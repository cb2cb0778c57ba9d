"""gpnn demo: the whole method on a function whose limits are known."""

import argparse
import sys
import warnings
from time import perf_counter

from tqdm import tqdm

from gpnn import __version__
from gpnn.cli.arguments import seed, whole_number
from gpnn.common.errors import GPnnWarning
from gpnn.common.kernels import KERNELS
from gpnn.datasets import oakley_ohagan
from gpnn.engines.cpu.neighbors import IVF
from gpnn.engines.parallel import n_threads
from gpnn.regressor import GPnnRegressor
from gpnn.theory import limits

_TEST_ROWS = 10_000
_NOISE_VARIANCE = 6.0  # a tenth of the function's own variance


def add_to(commands) -> None:
    parser = commands.add_parser("demo", help="fit and predict a noisy function, beside theory's limits")
    parser.add_argument("--rows", type=whole_number(10), default=1_000_000, help="training rows (default: one million)")
    parser.add_argument("--kernel", choices=["auto", *KERNELS], default="auto", help="auto: chosen on held-out rows")
    parser.add_argument("--seed", type=seed, default=0, help="a whole number from 0 to 2³² − 1")
    parser.set_defaults(run=_run)


def _compile(kernel: str, X, y) -> None:
    """A fit and a prediction on a few rows, so that the figures below are of the work and not of the compiler."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPnnWarning)
        GPnnRegressor(kernel=kernel, index=IVF(n_cells=8), random_state=0).fit(X, y).predict(X[:10])


def _run(args: argparse.Namespace) -> None:
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
    rows = [
        ("RMSE", scores["rmse"], limit.rmse, "√(σξ²(1 + 1/m))"),
        ("NLL", scores["nll"], limit.nll, "½(log 2πσξ²(1 + 1/m) + 1)"),
        ("calibration", scores["calibration"], limit.calibration, "1 when variances are right"),
        ("90 % coverage", scores["coverage_90"], 0.9, "intervals shaped by held-out errors"),
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
    print(f"\nchosen: {model.kernel_} kernel, {report['whitening']} whitening, m = {m} neighbours")
    print(f"index {report['index']} with recall {report['recall']:.3f}, α = {model.alpha_:.3f}; "
          f"y scaled to variance 1, of which noise is {noise:.3f}")  # fmt: skip
