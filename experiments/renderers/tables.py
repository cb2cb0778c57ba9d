"""The paper's tables as Markdown: ours, published, and the difference."""

import math
from collections.abc import Callable, Iterable
from itertools import product

import methods
from gpnn import datasets
from gpnn.kernels import KERNELS
from protocol import section
from renderers.evidence import Evidence, Number, Summary, absent, finest
from runners.real import n_train
from runners.simulation import rows_of

_METRICS = {"calibration": "calibration", "nll": "NLL", "rmse": "RMSE"}
_KERNELS = {"rbf": "RBF", "matern32": "Matérn 3/2", "matern52": "Matérn 5/2", "exponential": "exponential"}
_LENGTHSCALES = (0.3, 0.7, 1.0, 2.0, 5.0)
_BOLD = "Differences of more than twice the spread (of ours and published together) are bold."


def table1(evidence: Evidence) -> str:
    """RMSE and NLL of the best distributed method, GPnn and SVGP."""
    rows = [("distributed", "rbf"), ("gpnn", "rbf"), ("svgp", "rbf")]
    return _comparison(evidence, "table1", rows, ("rmse", "nll"))


def all_metrics(evidence: Evidence) -> str:
    """Every method on every metric, RBF; also methods and data sets that the paper does not have, if they were run."""
    return _comparison(evidence, "all_metrics", [(name, "rbf") for name in methods.METHODS], tuple(_METRICS))


def kernels(evidence: Evidence) -> str:
    """GPnn with each kernel, beside the best distributed method and SVGP."""
    rows = [("gpnn", name) for name in KERNELS] + [("distributed", "rbf"), ("svgp", "rbf")]
    return _comparison(evidence, "kernels", rows, tuple(_METRICS))


def train_times(evidence: Evidence) -> str:
    """Seconds of training, and how many times longer the paper's took on its machines."""
    rows = []
    for dataset in evidence.datasets():
        for method in ("distributed", "gpnn", "svgp"):
            summary, label = _found(evidence, dataset, method, "rbf")
            printed = evidence.published.get(("train_times", dataset, method, "rbf", "fit_seconds"))
            if summary is None and printed is None:
                continue
            ours = summary.metrics["fit_seconds"] if summary else None
            ratio = f"{printed.value / ours.value:.1f}" if ours and printed else "–"
            size = [f"{n_train(datasets.info(dataset).n):,}", str(datasets.info(dataset).d)]
            rows.append([_title(dataset), *size, label, _ours(ours, dataset, method), _published(printed), ratio])
    return _markdown(["data set", "n", "d", "method", "seconds", "published", "published/ours"], rows)


def prediction_times(evidence: Evidence) -> str:
    """Seconds a prediction takes alone, and in a call of many."""
    found = {(record["job"]["data"], record["job"]["method"]): record["result"] for record in evidence.prediction}
    rows = []
    for data, method in product(section("prediction")["data"], section("prediction")["methods"]):
        result = found.get((data["name"], method))
        printed = evidence.published["prediction_times", data["name"], method, "rbf", "predict_seconds"]
        alone, ratio = "not available here" if methods.missing(method) else "not run", "–"
        together = source = "–"
        if result:
            alone, ratio = _digits(result["single_seconds"]), f"{printed.value / result['single_seconds']:.1f}"
            together, source = _digits(result["batch_seconds"] / result["batch"]), result["rows"]
        size = [f"{data['n']:,}", str(data["d"])]
        rows.append([*size, source, methods.get(method).label, alone, _published(printed), ratio, together])
    headings = ["n", "d", "rows", "method", "one query, s", "published", "published/ours", "a query of many, s"]
    return _markdown(headings, rows)


def oakley(evidence: Evidence) -> str:
    """Oakley and O'Hagan's function: the approach to the limit, and what it costs."""
    rows = []
    for record in sorted(evidence.oakley, key=lambda record: (record["job"]["kernel"], record["job"]["n"])):
        job, result = record["job"], record["result"]
        pairs = [f"{_digits(result['metrics'][name])} ({_digits(result['limits'][name])})" for name in ("rmse", "nll")]
        size = [f"{job['n']:,}", _KERNELS[job["kernel"]], *pairs, _digits(result["metrics"]["calibration"])]
        cost = [f"{result['fit_seconds']:.0f}", f"{result['evaluate_seconds']:.0f}", f"{result['peak_gib']:.2f}"]
        rows.append([*size, *cost, f"{result['table_gib']:.3f}"])
    headings = ["n", "kernel", "RMSE (limit)", "NLL (limit)", "calibration", "fit, s", "test rows, s",
                "peak, GiB", "of which table"]  # fmt: skip
    return _markdown(headings, rows) if rows else "Not run."


def simulation(evidence: Evidence) -> str:
    """MSE for several assumed lengthscales (true l = 1), and the most by which NLL exceeds its limit (l = 0.5)."""
    records, rows = finest(evidence.simulation), []
    for n in sorted({record["job"]["n"] for record in records}):
        here = rows_of([record for record in records if record["job"]["n"] == n])
        over_l = {row["assumed_lengthscale"]: row["mse"] for row in here if row["lengthscale"] == 1}
        over_noise = [row for row in here if row["lengthscale"] == 0.5 and row["varied"] == "noise_variance"]
        if over_l and over_noise:
            nearest = [min(over_l, key=lambda at, wanted=wanted: abs(at - wanted)) for wanted in _LENGTHSCALES]
            excess = max(row["nll"] - row["limit_nll"] for row in over_noise)
            rows.append([_power(n), *(f"{_digits(over_l[at])} ({at:.2f})" for at in nearest), _digits(excess)])
    headings = ["n", *(f"MSE at l̂ ≈ {wanted:g}" for wanted in _LENGTHSCALES), "NLL above its limit, at most"]
    return _markdown(headings, rows) if rows else "Not run."


def runs(evidence: Evidence) -> str:
    """Where and when the results were made."""
    rows = []
    for kind, made in evidence.made.items():
        if made:
            days = sorted({entry["time"][:10] for entry in made})
            machines = sorted({entry["machine"] for entry in made})
            versions = made[-1]["versions"]
            packages = ", ".join(f"{name} {versions[name]}" for name in ("gpnn", "numpy", "numba") if name in versions)
            span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
            rows.append([kind, str(len(made)), span, "; ".join(machines), packages])
    headings = ["kind", "results", "days", "machine", "versions (of the last)"]
    return _markdown(headings, rows) if rows else "Nothing was run."


TABLES: dict[str, Callable[[Evidence], str]] = {
    function.__name__: function
    for function in (table1, train_times, all_metrics, kernels, prediction_times, oakley, simulation, runs)
}


# --- the comparison that three tables are -----------------------------------------------------------------------------


def _comparison(evidence: Evidence, table: str, entries: Iterable[tuple[str, str]], metrics: tuple[str, ...]) -> str:
    rows, notes = [], {}
    for dataset in evidence.datasets():
        for method, kernel in entries:
            summary, label = _found(evidence, dataset, method, kernel)
            printed = {name: evidence.published.get((table, dataset, method, kernel, name)) for name in metrics}
            if summary is None and not any(printed.values()):
                continue
            if summary and summary.max_test:
                notes[_title(dataset)] = f"{_title(dataset)}: the first {summary.max_test:,} rows of each test set."
            if len({k for m, k in entries if m == method}) > 1:
                label = f"{label}, {_KERNELS[kernel]}"
            cells = [_title(dataset), label]
            for name in metrics:
                ours = summary.metrics.get(name) if summary else None
                refused = summary is not None and ours is None  # a Student-t law has no Gaussian NLL
                cells += ["–" if refused else _ours(ours, dataset, method), _published(printed[name])]
                cells += [_difference(name, ours, printed[name])]
            rows.append(cells)
    headings = ["data set", "method"]
    for name in metrics:
        headings += [_METRICS[name], "published", "difference"]
    return _markdown(headings, rows) + "\n\n" + " ".join([_BOLD, *notes.values()])


def _found(evidence: Evidence, dataset: str, method: str, kernel: str) -> tuple[Summary | None, str]:
    """Our result and what to call it; "distributed" is the best of the five."""
    if method != "distributed":
        return evidence.real.get((dataset, method, kernel)), methods.get(method).label
    best = evidence.best_distributed(dataset, kernel)
    if best is None:
        return None, "best distributed"
    return evidence.real[dataset, best, kernel], f"best distributed ({methods.get(best).label})"


def _title(dataset: str) -> str:
    return {"houseelectric": "House Electric", "road3d": "Road3D", "ctslice": "CTSlice"}.get(
        dataset, dataset.replace("_", " ").capitalize()
    )


# --- cells ------------------------------------------------------------------------------------------------------------


def _ours(number: Number | None, dataset: str, method: str) -> str:
    if number is None:
        return absent(dataset, method)
    spread = "" if number.spread is None else f" ± {_digits(number.spread, 2)}"
    return _digits(number.value) + spread


def _published(number: Number | None) -> str:
    return "–" if number is None else number.printed.replace("-", "−", 1) if number.value < 0 else number.printed


def _difference(metric: str, ours: Number | None, published: Number | None) -> str:
    """Of RMSE in per cent, of others as it is."""
    if ours is None or published is None:
        return "–"
    gap = ours.value - published.value
    text = f"{100 * gap / published.value:+.1f} %" if metric == "rmse" else f"{gap:+.3f}"
    clear = ours.spread is not None and abs(gap) > 2 * math.hypot(ours.spread, published.spread or 0)
    text = text.replace("-", "−")
    return f"**{text}**" if clear else text


def _power(n: int) -> str:
    return f"{n:.0e}".replace("e+0", "e").replace("e+", "e")


def _digits(value: float, count: int = 3) -> str:
    """Three significant digits, trailing zeros kept, no exponent where it can be helped."""
    if value == 0 or not math.isfinite(value):
        return str(value)
    places = max(0, count - 1 - math.floor(math.log10(abs(value))))
    return (f"{value:.{places}f}" if places < 7 else f"{value:.{count - 1}e}").replace("-", "−", 1 if value < 0 else 0)


def _markdown(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
