"""The charts of the report, each drawn from a diagnosis: a title, how to read it, and a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gpnn.common.reliability import sampling_error
from gpnn.judging.diagnostics import Diagnostics, FitRecord, Map, Support
from gpnn.judging.report.markup import Markup, joined
from gpnn.judging.report.numbers import number, percent, seconds
from gpnn.judging.report.svg import Bar, Plane, Scale, bar_list

_SHADES = 5  # of the cells of a cloud
_MAP_SHADES = 12
_MOST_COLUMNS = 12
AT_FLOOR = 1.15
"""RMSE over the noise floor, up to which the error is called "at the floor"."""


@dataclass(frozen=True)
class Chart:
    name: str
    """Its id in the page."""
    title: str
    reading: str
    picture: Markup


def charts(found: Diagnostics) -> Iterator[Chart]:
    """Those of the predictions, and those of the fit where there is a record of it."""
    yield _coverage(found)
    yield _predicted(found)
    yield _pit(found)
    yield _spread(found)
    yield _coverage_by_sd(found)
    if found.support is not None:
        yield _by_support(found, found.support)
    if found.map is not None:
        yield from _maps(found, found.map)
    if found.fit is not None:
        yield _floor(found, found.fit)
        yield _metric(found.fit)
        if len(found.fit.m_curve) > 1:
            yield _neighbors(found.fit)


def candidate_chart(fit: FitRecord) -> Markup:
    """The best of each whitening and kernel."""
    best: dict[str, float] = {}
    for row in fit.candidates:
        pair = f"{row['kernel']}, {row['whitening']}"
        best[pair] = min(best.get(pair, math.inf), row["nll"] + math.log(max(row["rmse"], 1e-12)))
    lead = min(best.values())
    used = f"{fit.kernel}, {fit.whitening}"
    bars = [
        Bar(pair, score - lead, f"+{score - lead:.2f}" if score > lead else "best", "one" if pair == used else "two")
        for pair, score in sorted(best.items(), key=lambda item: item[1])
    ]
    return bar_list("Candidates tried", f"Used: {used}.", bars)


def time_chart(found: Diagnostics, fit: FitRecord) -> Markup:
    bars = [Bar(stage, value, seconds(value)) for stage, value in fit.seconds.items()]
    bars.append(Bar("predict test rows", found.predict_seconds, seconds(found.predict_seconds), "two"))
    return bar_list("Time of each stage", f"Fit in {seconds(sum(fit.seconds.values()))}.", bars)


def _coverage(found: Diagnostics) -> Chart:
    reliability = found.reliability
    plane = Plane(Scale(0, 1), Scale(0, 1))
    levels = [0.0, *reliability.levels, 1.0]
    chance = [sampling_error(level, found.n_rows) for level in levels]
    points = list(zip(reliability.levels, reliability.coverage, strict=True))
    percents = [(at / 5, f"{20 * at} %") for at in range(6)]
    marks = (
        plane.band(
            [(level, level - error) for level, error in zip(levels, chance, strict=True)],
            [(level, level + error) for level, error in zip(levels, chance, strict=True)],
        ),
        plane.line([(0, 0), (1, 1)], "right"),
        plane.line([(0, 0), *points, (1, 1)], "one"),
        plane.dots(points, "one", [f"{percent(a, 0)} intervals hold {percent(b)}" for a, b in points], 3),
        plane.label(0.62, 0.4, "above: too wide", class_="note"),
        plane.label(0.62, 0.33, "below: too narrow", class_="note"),
    )
    held = percent(reliability.coverage_90)
    return Chart(
        "coverage",
        "Do intervals hold what they promise?",
        "Each dot is a level of intervals. On the line, they hold the share of rows that they should; the grey band is "
        "what chance allows.",
        plane.drawn(
            "Coverage curve", f"90 % intervals hold {held} of the rows.",
            "level of the intervals", "rows inside", *marks, x_ticks=percents, y_ticks=percents,
        ),
    )  # fmt: skip


def _predicted(found: Diagnostics) -> Chart:
    cloud = found.cloud
    scale = Scale.around([*cloud.observed, *cloud.predicted])
    plane = Plane(scale, scale)
    points = list(zip(cloud.predicted, cloud.observed, strict=True))
    if cloud.cell is None:
        marks = plane.specks(points, "one")
        how = "Each point is a row."
    else:
        by_shade: dict[int, list[tuple[float, float]]] = {}
        top = math.log(max(cloud.counts)) or 1.0
        for point, count in zip(points, cloud.counts, strict=True):
            by_shade.setdefault(min(int(_SHADES * math.log(count) / top), _SHADES - 1), []).append(point)
        marks = joined(*(plane.cells(of, cloud.cell, f"shade{shade}") for shade, of in sorted(by_shade.items())))
        how = f"All {found.n_rows:,} rows; the darker a square, the more of them."
    return Chart(
        "predicted",
        "How close are predictions?",
        f"{how} On the line, prediction and observation agree. RMSE {number(found.scores['rmse'])}.",
        plane.drawn(
            "Observed against predicted", f"R² is {number(found.explained, 4)}.", f"predicted {found.target}",
            f"observed {found.target}", marks, plane.line([(scale.low, scale.low), (scale.high, scale.high)], "right"),
        ),
    )  # fmt: skip


def _maps(found: Diagnostics, grid: Map) -> Iterator[Chart]:
    """The mean, and how sure it is: the darker a cell, the higher."""
    sides = [(axis[-1] - axis[0]) / max(len(axis) - 1, 1) or 1.0 for axis in (grid.x, grid.y)]
    scales = [
        Scale(axis[0] - side / 2, axis[-1] + side / 2) for axis, side in zip((grid.x, grid.y), sides, strict=True)
    ]
    plane = Plane(*scales)
    points = [(x, y) for y in grid.y for x in grid.x]
    for name, title, what, values in (
        ("map", "What does it predict where?", "mean", grid.mean),
        ("map-sd", "And how sure is it there?", "standard deviation", grid.std),
    ):
        ranked = sorted(values)
        low, high = (ranked[round(share * (len(ranked) - 1))] for share in (0.02, 0.98))
        by_shade: dict[int, list[tuple[float, float]]] = {}
        for point, value in zip(points, values, strict=True):
            shade = int(_MAP_SHADES * (value - low) / ((high - low) or 1.0))
            by_shade.setdefault(min(max(shade, 0), _MAP_SHADES - 1), []).append(point)
        marks = joined(
            *(
                plane.tiles(of, (sides[0], sides[1]), f"{0.04 + 0.96 * shade / (_MAP_SHADES - 1):.2f}")
                for shade, of in sorted(by_shade.items())
            )
        )
        yield Chart(
            name,
            title,
            f"The {what} of {found.target}: the darker, the higher, from {number(low)} to {number(high)}.",
            plane.drawn(title, f"From {number(low)} to {number(high)}.", grid.names[0], grid.names[1], marks),
        )


def _pit(found: Diagnostics) -> Chart:
    shares = found.reliability.pit
    bins = len(shares)
    chance = sampling_error(1 / bins, found.n_rows)
    plane = Plane(Scale(0, 1), Scale(0, max(1.15 * max(shares), 1.6 / bins)))
    marks = [
        plane.bar((at / bins, (at + 1) / bins), share, "one", f"{percent(share)} of rows, expected {percent(1 / bins)}")
        for at, share in enumerate(shares)
    ]
    edges = [(0.0, 1 / bins - chance), (1.0, 1 / bins - chance)], [(0.0, 1 / bins + chance), (1.0, 1 / bins + chance)]
    ticks = [(tick, percent(tick, 0)) for tick in plane.y.ticks(4)]
    return Chart(
        "pit",
        "Has the law the right shape?",
        "Where observed values fall in their predicted laws (PIT). Flat is right; high ends mean too narrow, a hump "
        "too wide, a slope too high or too low.",
        plane.drawn(
            "PIT histogram", f"Shares of rows between {percent(min(shares))} and {percent(max(shares))}.",
            "place of y in its predicted law", "rows", *marks, plane.band(*edges, class_="band over"),
            plane.line([(0, 1 / bins), (1, 1 / bins)], "right"), y_ticks=ticks,
        ),
    )  # fmt: skip


def _spread(found: Diagnostics) -> Chart:
    points = [(tenth.sd, tenth.error) for tenth in found.reliability.tenths if tenth.sd > 0 and tenth.error > 0]
    values = [value for point in points for value in point]
    scale = Scale.around(values, "log" if values and max(values) > 3 * min(values) else "linear", 0.06)
    plane = Plane(scale, scale)
    titles = [f"predicted {number(sd)}, measured {number(error)}" for sd, error in points]
    marks = (
        plane.line([(scale.low, scale.low), (scale.high, scale.high)], "right"),
        plane.line(points, "one"),
        plane.dots(points, "one", titles, 4),
    )
    return Chart(
        "spread",
        "Does it know where it is unsure?",
        "Each dot is a tenth of the rows, from the surest to the least sure. On the line, errors are as large as "
        "predicted; the farther the dots reach, the more the model tells rows apart.",
        plane.drawn(
            "Size of errors against predicted standard deviation",
            "; ".join(titles), f"predicted sd of {found.target}", "RMS error", *marks,
        ),
    )  # fmt: skip


def _coverage_by_sd(found: Diagnostics) -> Chart:
    tenths = found.reliability.tenths
    errors = [sampling_error(0.9, tenth.n_rows) for tenth in tenths]
    lowest = min([0.8, *(tenth.coverage - 0.02 for tenth in tenths), *(0.9 - error for error in errors)])
    plane = Plane(Scale(0.5, len(tenths) + 0.5), Scale(max(lowest, 0.0), 1.0))
    points = [(float(place), tenth.coverage) for place, tenth in enumerate(tenths, start=1)]
    ends = 0.5, len(tenths) + 0.5
    error = max(errors)
    marks = (
        plane.band([(x, 0.9 - error) for x in ends], [(x, min(0.9 + error, 1.0)) for x in ends]),
        plane.line([(x, 0.9) for x in ends], "right"),
        plane.line(points, "one"),
        plane.dots(points, "one", [f"{percent(share)} inside" for _, share in points], 4),
    )
    ticks = [(tick, percent(tick, 0)) for tick in plane.y.ticks(4)]
    return Chart(
        "coverage-by-sd",
        "Are sure and unsure rows treated alike?",
        "Rows inside their 90 % intervals, by tenth of the rows. Inside the grey band all is well; low on the right "
        "means that hard rows are harder than the model thinks.",
        plane.drawn(
            "Coverage of 90 % intervals by predicted standard deviation",
            ", ".join(percent(share) for _, share in points), "tenths of the rows, surest first", "rows inside",
            *marks, x_ticks=[(x, f"{x:g}") for x, _ in points], y_ticks=ticks,
        ),
    )  # fmt: skip


def _by_support(found: Diagnostics, support: Support) -> Chart:
    parts = support.parts
    errors = [sampling_error(0.9, part.n_rows) if part.n_rows else 0.0 for part in parts]
    points = [(float(place), part.coverage) for place, part in enumerate(parts, start=1) if part.n_rows]
    lowest = min([0.8, *(share - 0.02 for _, share in points)])
    plane = Plane(Scale(0.5, len(parts) + 0.5), Scale(max(lowest, 0.0), 1.0))
    ends = [(place - 0.5, place + 0.5, error) for place, error in enumerate(errors, start=1)]
    chance = [
        plane.band([(left, 0.9 - error), (right, 0.9 - error)], [(left, 0.9 + error), (right, 0.9 + error)])
        for left, right, error in ends
        if error
    ]
    titles = [
        f"{part.n_rows:,} rows, {percent(part.coverage)} inside, mean z² {part.z_squared:.2f}"
        for part in parts
        if part.n_rows
    ]
    marks = (
        *chance,
        plane.line([(0.5, 0.9), (len(parts) + 0.5, 0.9)], "right"),
        plane.line(points, "one"),
        plane.dots(points, "one", titles, 4),
    )
    names = [f"{percent(part.low, 0)[:-2]}–{percent(part.high, 0)}" for part in parts[1:]]
    ticks = [(float(place), name) for place, name in enumerate(["outside", *names], start=1)]
    outside, inside = support.outside, support.inside
    fare = f"{percent(support.share_outside)} of the test rows are outside the support"
    if outside.n_rows:
        fare += f": {percent(outside.coverage)} of them are inside their intervals, mean z² {outside.z_squared:.2f}"
    if inside.n_rows:
        fare += f"; of the others {percent(inside.coverage)}, mean z² {inside.z_squared:.2f}"
    return Chart(
        "support",
        "Do intervals hold far from the data?",
        f"Rows inside their 90 % intervals, by the share of random rows that lie as far. {fare}. Grey: what "
        "chance explains.",
        plane.drawn(
            "Coverage of 90 % intervals by support", f"{fare}.", "random rows that lie as far", "rows inside", *marks,
            x_ticks=ticks, y_ticks=[(tick, percent(tick, 0)) for tick in plane.y.ticks(4)],
        ),
    )  # fmt: skip


def _floor(found: Diagnostics, fit: FitRecord) -> Chart:
    rmse = found.scores["rmse"]
    bars = [
        Bar("always the mean", found.spread, number(found.spread), "two"),
        Bar("this model", rmse, number(rmse)),
        Bar("noise floor", fit.noise_floor, number(fit.noise_floor), "three"),
    ]
    times = rmse / fit.noise_floor if fit.noise_floor > 0 else math.inf
    where = (
        f"The error is {times:.2g} times the floor: more rows or better columns can still lower it."
        if times > AT_FLOOR
        else "The error is at the floor: no more rows of these columns will lower it much."
    )
    return Chart(
        "floor",
        "How far down is the noise?",
        f"RMSE in the units of {found.target}. The floor is what theory leaves with endless rows, for the noise that "
        f"the model sees: σξ√(1 + 1/m). {where}",
        bar_list("Distance to the noise floor", f"{number(rmse)} against {number(fit.noise_floor)}.", bars),
    )


def _metric(fit: FitRecord) -> Chart:
    shown = fit.columns[:_MOST_COLUMNS]
    more = len(fit.columns) - len(shown)
    rest = f" {more} more columns matter less." if more else ""
    alone = " The columns were decorrelated first, which mixes them: equal bars do not mean equal worth." * (
        fit.whitening == "full"
    )
    bars = [Bar(column.name, column.importance, number(column.importance, 2)) for column in shown]
    return Chart(
        "metric",
        "Which columns make rows near?",
        "Lengthscales that one standard deviation of the column moves a row by. Long bars decide who is a neighbour; "
        f"columns near zero are ignored. Bar lengths are square roots.{alone}{rest}",
        bar_list("Learned metric by column", f"{shown[0].name} matters most.", bars, root=True),
    )


def _neighbors(fit: FitRecord) -> Chart:
    losses = fit.m_losses
    plane = Plane(
        Scale.around([m for m, _, _ in losses], "log"), Scale.around([max(a, b) for _, a, b in losses] + [2.0], "root")
    )
    rmse, nll = [(m, loss) for m, loss, _ in losses], [(m, loss) for m, _, loss in losses]
    m = fit.n_neighbors
    right = plane.x.share(m) > 0.7
    marks = (
        plane.line([(plane.x.low, 0.5), (plane.x.high, 0.5)], "right"),
        plane.line([(m, 0), (m, plane.y.high)], "right"),
        plane.line(nll, "three dashed"),
        plane.dots(nll, "three", [f"m = {m}: {loss:.1f} hundredths of a nat above" for m, loss in nll], 3.5),
        plane.line(rmse, "one"),
        plane.dots(rmse, "one", [f"m = {m}: {loss:.1f} % above" for m, loss in rmse], 3.5),
        plane.label(m * (0.96 if right else 1.04), 0.96 * plane.y.high, f"m = {m}", "end" if right else "start"),
    )
    ticks = [(float(size), str(size)) for size in (16, 32, 64, 100, 200, 400) if plane.x.low <= size <= plane.x.high]
    return Chart(
        "neighbors",
        "How many neighbours are enough?",
        "Held-out RMSE (blue, %) and NLL (orange, dotted, hundredths of a nat) above their best. The fewest "
        "neighbours with both under the line at 0.5 are used.",
        plane.drawn(
            "The m-curve", f"{m} neighbours are used.", "neighbours m", "above the best", *marks, x_ticks=ticks or None
        ),
    )
