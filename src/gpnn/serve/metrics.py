"""Counts and times for Prometheus. Each process counts for itself and writes what it counted down now and then; whoever
is asked adds up what all of them wrote, so that it does not matter which of them is asked."""

from __future__ import annotations

import json
import os
from bisect import bisect_left
from collections import defaultdict
from pathlib import Path
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from gpnn.common.types import Array
from gpnn.files.whole import whole_or_nothing
from gpnn.serve.models import Rows, ServedModel

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 16_384)
_HALF_LIFE = 10_000  # rows after which an input counts half for the drift
_EVERY = 1.0  # seconds between two notes to the other processes

_HELP = {
    "gpnn_requests_total": ("counter", "Requests by path and status."),
    "gpnn_rejected_total": ("counter", "Requests turned away with 429: too much was waiting."),
    "gpnn_request_seconds": ("histogram", "From the first byte of a request to the last of its answer."),
    "gpnn_rows_total": ("counter", "Rows predicted."),
    "gpnn_batch_requests": ("histogram", "Requests answered by one call."),
    "gpnn_batch_rows": ("histogram", "Rows answered by one call."),
    "gpnn_unknown_levels_total": ("counter", "Values whose level the training rows did not have."),
    "gpnn_missing_values_total": ("counter", "Values that were missing."),
    "gpnn_outside_range_total": ("counter", "Values beyond the range of the training rows, or of a new level."),
    "gpnn_input_shift": ("gauge", "Mean of recent inputs less that of the training rows, in their sd."),
    "gpnn_waiting_requests": ("gauge", "Requests waiting to be answered."),
    "gpnn_model_reloads_total": ("counter", "Replaced files that were loaded."),
    "gpnn_model_reload_failures_total": ("counter", "Replaced files that could not be loaded."),
    "gpnn_model_stale": ("gauge", "1 where the file cannot be loaded and an older model is served."),
    "gpnn_observations_total": ("counter", "Outcomes in the log."),
    "gpnn_observed_coverage_90": ("gauge", "Share of recent outcomes inside their 90 % intervals."),
    "gpnn_observed_mean_z2": ("gauge", "Mean of recent z²: 1 when variances are right."),
    "gpnn_observed_mean_z2_low": ("gauge", "Where mean z² should lie: from."),
    "gpnn_observed_mean_z2_high": ("gauge", "Where mean z² should lie: to."),
    "gpnn_observed_alarm": ("gauge", "1 where mean z² or coverage have left the interval they should lie in."),
}

Key = tuple[str, tuple[tuple[str, str], ...]]


class Metrics:
    """Of one process."""

    def __init__(self, folder: Path | None = None):
        """`folder`: where the processes leave notes for each other; none where there is one process."""
        self._counts: dict[Key, float] = defaultdict(float)
        self._drift: dict[tuple[str, str], tuple[Array, float]] = {}
        self._folder, self._noted = folder, 0.0

    def add(self, name: str, amount: float = 1.0, **labels: str) -> None:
        self._counts[name, tuple(labels.items())] += amount

    def histogram(self, name: str, value: float, bounds: tuple[float, ...], **labels: str) -> None:
        place = bisect_left(bounds, value)
        end = "+Inf" if place == len(bounds) else f"{bounds[place]:g}"
        self._counts[f"{name}_bucket", (*labels.items(), ("le", end))] += 1
        self._counts[f"{name}_sum", tuple(labels.items())] += value

    def rows(self, model: ServedModel, rows: Rows, beyond: dict[str, NDArray[np.bool_]], drift: bool = True) -> None:
        """What is known of a question's rows: how many, and how they differ from the training rows.

        `drift=False`: they were tried out by somebody, and say nothing of what the world sends.
        """
        self.add("gpnn_rows_total", len(rows.whole), model=model.name)
        for column, count in rows.unknown.items():
            self.add("gpnn_unknown_levels_total", count, model=model.name, column=column)
        for column, count in rows.missing.items():
            self.add("gpnn_missing_values_total", count, model=model.name, column=column)
        for column, strange in beyond.items():
            self.add("gpnn_outside_range_total", int(strange.sum()), model=model.name, column=column)
        if drift and len(rows.X):
            key, k = (model.name, model.version), len(rows.X)
            total, weight = self._drift.get(key, (np.zeros(rows.X.shape[1]), 0.0))
            kept = 0.5 ** (k / _HALF_LIFE)
            self._drift[key] = (kept * total + model.standardised(rows.X).sum(axis=0), kept * weight + k)
            if len(self._drift) > 64:  # of models that were replaced long ago
                self._drift.pop(next(iter(self._drift)))

    def note(self, now: bool = False) -> None:
        """Tell the other processes, if there are any and some time has passed."""
        if self._folder is None or (not now and monotonic() - self._noted < _EVERY):
            return
        self._noted = monotonic()
        drift = [[*key, total.tolist(), weight] for key, (total, weight) in self._drift.items()]
        content = {"counts": [[name, labels, value] for (name, labels), value in self._counts.items()], "drift": drift}
        try:
            with whole_or_nothing(self._folder / f"{os.getpid()}.json") as path:
                path.write_text(json.dumps(content))
        except OSError:  # a full disk loses a note, never an answer
            pass

    def text(self, models: dict[str, ServedModel], gauges: dict[Key, float]) -> str:
        """Of all processes, as Prometheus reads it."""
        self.note(now=True)
        counts, drift = dict(self._counts), dict(self._drift)
        for path in [] if self._folder is None else self._folder.glob("*.json"):
            if path.stem != str(os.getpid()):
                _add_note(path, counts, drift)
        for model in models.values():
            gauges |= _shifts(model, drift.get((model.name, model.version)))
        return _rendered(counts | gauges)


def _add_note(path: Path, counts: dict, drift: dict) -> None:
    try:
        note = json.loads(path.read_text())
    except (OSError, ValueError):
        return
    for name, labels, value in note["counts"]:
        key = (name, tuple((str(label), str(text)) for label, text in labels))
        counts[key] = counts.get(key, 0.0) + value
    for name, version, total, weight in note["drift"]:
        mine, known = drift.get((name, version), (0.0, 0.0))
        drift[name, version] = (mine + np.array(total), known + weight)


def _shifts(model: ServedModel, seen: tuple[Array, float] | None) -> dict[Key, float]:
    """Of each encoded column, how far recent inputs lie from the training rows."""
    if seen is None:
        return {}
    return {
        ("gpnn_input_shift", (("model", model.name), ("column", column))): float(shift)
        for column, shift in zip(model.encoder.outputs, seen[0] / seen[1], strict=True)
    }


def _rendered(values: dict[Key, float]) -> str:
    series: dict[str, list[str]] = defaultdict(list)
    buckets: dict[tuple[str, tuple], dict[str, float]] = defaultdict(dict)
    for (name, labels), value in sorted(values.items()):
        if name.endswith("_bucket"):
            buckets[name.removesuffix("_bucket"), labels[:-1]][labels[-1][1]] = value
        else:
            series[name.removesuffix("_sum")].append(_line(name, labels, value))
    for (name, labels), counted in buckets.items():
        bounds = SECONDS if name == "gpnn_request_seconds" else SIZES
        total = 0.0
        for end in (*(f"{bound:g}" for bound in bounds), "+Inf"):
            total += counted.get(end, 0.0)
            series[name].append(_line(f"{name}_bucket", (*labels, ("le", end)), total))
        series[name].append(_line(f"{name}_count", labels, total))
    lines = []
    for name, (kind, meaning) in _HELP.items():
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *series.get(name, ())]
    return "\n".join(lines) + "\n"


def _line(name: str, labels: tuple, value: float) -> str:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    inside = ",".join(f'{label}="{escaped(text)}"' for label, text in labels)
    return f"{name}{{{inside}}} {value:.10g}" if inside else f"{name} {value:.10g}"
