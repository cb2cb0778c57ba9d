"""What renderers read: our results, averaged over seeds, and the published numbers."""

import csv
import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import methods
from gpnn import datasets
from gpnn.datasets.sources import find
from runners import oakley, prediction, real, simulation
from store import RESULTS, Store

PUBLISHED = Path(__file__).parents[1] / "published.csv"


@dataclass(frozen=True)
class Number:
    value: float
    spread: float | None = None
    """Standard deviation over runs; None where there was one run, or none was printed."""
    printed: str | None = None
    """As the paper prints it."""

    @classmethod
    def over(cls, values: list[float]) -> "Number":
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


@dataclass(frozen=True)
class Summary:
    """One method with one kernel on one data set, over its seeds."""

    metrics: dict[str, Number]
    """rmse, nll, calibration, …, and fit_seconds, evaluate_seconds."""
    calibrate_seconds: float
    """Of fit_seconds, GPnn's phase 2."""
    seeds: int
    max_test: int | None
    n_train: int
    d: int


@dataclass(frozen=True)
class Evidence:
    real: dict[tuple[str, str, str], Summary]
    """By data set, method, kernel."""
    published: dict[tuple[str, str, str, str, str], Number]
    """By table, data set, method, kernel, metric."""
    prediction: list[dict]
    oakley: list[dict]
    simulation: list[dict]
    made: dict[str, list[dict]]
    """By kind, where and when each result was made."""

    @classmethod
    def load(cls, folder: Path = RESULTS) -> "Evidence":
        current = {
            "real": _current(folder, real, lambda job: real.protocol_of(job["method"])),
            "prediction": _current(folder, prediction, lambda job: prediction.protocol_of(job["method"])),
            "oakley": _current(folder, oakley, lambda job: oakley.protocol()),
            "simulation": _current(folder, simulation, lambda job: simulation.protocol()),
        }
        made = {kind: [record["made"] for record in records] for kind, records in current.items()}
        return cls(**(current | {"real": summarise(current["real"])}), published=read_published(), made=made)

    def datasets(self) -> list[str]:
        """The paper's, then the others that were run."""
        paper, run = datasets.names("paper"), {dataset for dataset, _, _ in self.real}
        return paper + [name for name in datasets.names() if name in run and name not in paper]

    def best_distributed(self, dataset: str, kernel: str = "rbf") -> str | None:
        """Of the five, the one with the lowest RMSE here, as the paper's Table 1 takes it."""
        run = [name for name in methods.DISTRIBUTED if (dataset, name, kernel) in self.real]
        return min(run, key=lambda name: self.real[dataset, name, kernel].metrics["rmse"].value, default=None)


def absent(dataset: str, method: str) -> str:
    """Why there is no result."""
    family = methods.DISTRIBUTED if method == "distributed" else (method,)
    here = find(datasets.info(dataset)) is not None and not all(methods.missing(name) for name in family)
    return "not run" if here else "not available here"


def finest(records: list[dict]) -> list[dict]:
    """Simulations of one fineness, the best there is: a quick run is not mixed with a whole one."""
    fineness = [(record["job"]["n_queries"], record["job"]["points"]) for record in records]
    return [record for record, fine in zip(records, fineness, strict=True) if fine == max(fineness)]


def summarise(records: list[dict]) -> dict[tuple[str, str, str], Summary]:
    """Means and standard deviations over seeds. Test sets are whole, or all cut at the same row: never mixed."""
    groups: dict[tuple, dict] = defaultdict(lambda: defaultdict(list))
    for record in records:
        job = record["job"]
        groups[job["dataset"], job["method"], job["kernel"]][job["max_test"]].append(record["result"])
    return {key: _summary(*max(by_cap.items(), key=_largest)) for key, by_cap in groups.items()}


def read_published(path: Path = PUBLISHED) -> dict[tuple[str, str, str, str, str], Number]:
    with open(path, newline="") as file:
        return {
            (row["table"], row["dataset"], row["method"], row["kernel"], row["metric"]): Number(
                float(row["value"]),
                float(row["spread"]) if row["spread"] else None,
                f"{row['value']} ± {row['spread']}" if row["spread"] else row["value"],
            )
            for row in csv.DictReader(file)
        }


def _summary(max_test: int | None, results: list[dict]) -> Summary:
    columns: dict[str, list[float]] = defaultdict(list)
    for result in results:
        for name, value in result["metrics"].items():
            columns[name].append(value)
        for name in ("fit_seconds", "evaluate_seconds"):
            columns[name].append(result[name])
    return Summary(
        {name: Number.over(values) for name, values in columns.items()},
        statistics.fmean(result["stages"].get("calibrate", 0.0) for result in results),
        len(results),
        max_test,
        results[0]["n_train"],
        results[0]["d"],
    )


def _largest(item: tuple[int | None, list]) -> float:
    return float("inf") if item[0] is None else item[0]


def _current(folder: Path, runner, protocol_of) -> list[dict]:
    """Results that were made with the settings that protocol.toml has now."""
    records = Store(folder / f"{runner.NAME}.jsonl").records()
    current = [record for record in records if record["job"]["protocol"] == protocol_of(record["job"])]
    if len(current) < len(records):
        print(f"{runner.NAME}: {len(records) - len(current)} results of another protocol are left out", file=sys.stderr)
    return current
