"""The few marks that the charts are made of, on a plane with two scales. Colours are the style sheet's, by class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpnn.judging.report.markup import Markup, element, joined
from gpnn.judging.report.numbers import tick_labels

WIDTH, HEIGHT = 360, 290  # the width of a phone, so that text there is as large as it is drawn
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 30, 44
_ROW, _LETTER, _VALUE_WIDTH = 25, 7.2, 74  # of lists of bars
_LABEL_LETTERS = 21

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Scale:
    """From values between `low` and `high` to places along an axis."""

    low: float
    high: float
    kind: str = "linear"
    """"linear", "log", or "root", which shows small differences beside large ones, and zero."""

    @classmethod
    def around(cls, values: Sequence[float], kind: str = "linear", margin: float = 0.04) -> Scale:
        """One that shows all values, with a little room."""
        finite = [value for value in values if math.isfinite(value) and (kind != "log" or value > 0)] or [0.5, 1.0]
        low, high = min(finite), max(finite)
        if kind == "log":
            room = max((high / low) ** margin, 1.02)
            return cls(low / room, high * room, kind)
        if kind == "root":
            return cls(0.0, max(high, 1e-12) * (1 + margin), kind)
        room = margin * (high - low) or 0.05 * abs(high) or 1.0
        return cls(low - room, high + room, kind)

    def share(self, value: float) -> float:
        """0 at `low`, 1 at `high`; values beyond are put at the ends."""
        low, high, at = (self._bent(number) for number in (self.low, self.high, value))
        return min(max((at - low) / (high - low), 0.0), 1.0)

    def ticks(self, about: int = 5) -> list[float]:
        if self.kind == "root":
            candidates = [mantissa * 10.0**power for power in range(-2, 6) for mantissa in (1, 2, 5)]
            return [0.0, *_apart([t for t in candidates if t <= self.high], self, 0.13)]
        if self.kind == "log" and self.high > 4 * self.low:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for mantissas in ((1,), (1, 3), (1, 2, 5)):
                ticks = [mantissa * 10.0**power for power in powers for mantissa in mantissas]
                ticks = [tick for tick in ticks if self.low <= tick <= self.high]
                if len(ticks) >= 3:
                    return ticks[:: -(-len(ticks) // 7)]
            return ticks
        step = _nice((self.high - self.low) / about)
        first = math.ceil(self.low / step - 1e-9)
        return [round(number * step, 12) for number in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def _bent(self, value: float) -> float:
        if self.kind == "log":
            return math.log(max(value, self.low * 1e-9, 1e-300))
        return math.sqrt(max(value, 0.0)) if self.kind == "root" else value


def _nice(step: float) -> float:
    """About that: 1, 2, 2.5 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(mantissa * power for mantissa in (1, 2, 2.5, 5, 10) if mantissa * power >= 0.8 * step)


def _apart(ticks: list[float], scale: Scale, least: float) -> list[float]:
    """Those that are so far from each other along the axis, and from its low end."""
    kept: list[float] = []
    for tick in ticks:
        if scale.share(tick) - (scale.share(kept[-1]) if kept else 0.0) >= least:
            kept.append(tick)
    return kept


@dataclass(frozen=True)
class Plane:
    """The area between two axes."""

    x: Scale
    y: Scale

    def at(self, x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + self.x.share(x) * (WIDTH - _LEFT - _RIGHT),
            HEIGHT - _BOTTOM - self.y.share(y) * (HEIGHT - _TOP - _BOTTOM),
        )

    def line(self, points: Points, class_: str) -> Markup:
        return element("polyline", points=self._path(points), class_=f"line {class_}")

    def band(self, lower: Points, upper: Points, class_: str = "band") -> Markup:
        return element("polygon", points=self._path([*lower, *reversed(upper)]), class_=class_)

    def dots(self, points: Points, class_: str, titles: Sequence[str] = (), radius: float = 3.5) -> Markup:
        """Round marks; `titles` appear when one is pointed at."""
        return joined(
            *(
                element("circle", *titled(titles, number), cx=at[0], cy=at[1], r=radius, class_=f"dot {class_}")
                for number, at in enumerate(self.at(*point) for point in points)
            )
        )

    def specks(self, points: Points, class_: str) -> Markup:
        """Many small round marks, as one path."""
        path = "".join("M{:.1f} {:.1f}h0".format(*self.at(*point)) for point in points)
        return element("path", d=path, class_=f"speck {class_}")

    def cells(self, points: Points, side: float, class_: str) -> Markup:
        """Squares of `side` around the points, as one path."""
        path = []
        for x, y in points:
            (left, bottom), (right, top) = self.at(x - side / 2, y - side / 2), self.at(x + side / 2, y + side / 2)
            path.append(f"M{left:.1f} {top:.1f}H{right:.1f}V{bottom:.1f}H{left:.1f}z")
        return element("path", d="".join(path), class_=f"cell {class_}")

    def tiles(self, points: Points, sides: tuple[float, float], opacity: str) -> Markup:
        """Rectangles around the points, as one path."""
        path = []
        for x, y in points:
            left, bottom = self.at(x - sides[0] / 2, y - sides[1] / 2)
            right, top = self.at(x + sides[0] / 2, y + sides[1] / 2)
            path.append(f"M{left:.1f} {top:.1f}H{right:.1f}V{bottom:.1f}H{left:.1f}z")
        return element("path", d="".join(path), class_="cell", fill_opacity=opacity)

    def bar(self, x: tuple[float, float], height: float, class_: str, title: str) -> Markup:
        (left, top), (right, bottom) = self.at(x[0], height), self.at(x[1], self.y.low)
        return element(
            "rect", element("title", title), x=left + 0.8, y=top, width=right - left - 1.6, height=bottom - top,
            class_=class_,
        )  # fmt: skip

    def label(self, x: float, y: float, text: str, anchor: str = "start", class_: str = "note") -> Markup:
        left, top = self.at(x, y)
        return element("text", text, x=left, y=top, text_anchor=anchor, class_=class_)

    def drawn(
        self,
        title: str,
        description: str,
        x_label: str,
        y_label: str,
        *marks: Markup,
        x_ticks: Sequence[tuple[float, str]] | None = None,
        y_ticks: Sequence[tuple[float, str]] | None = None,
    ) -> Markup:
        """The chart: grid and ticks under the marks, and labels."""
        parts = []
        for value, text in y_ticks or _labelled(self.y):
            _, top = self.at(self.x.low, value)
            parts.append(element("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=top, y2=top, class_="rule"))
            parts.append(element("text", text, x=_LEFT - 6, y=top + 4, text_anchor="end", class_="tick"))
        for value, text in x_ticks or _labelled(self.x):
            left, bottom = self.at(value, self.y.low)
            parts.append(element("text", text, x=left, y=bottom + 16, text_anchor="middle", class_="tick"))
        base = HEIGHT - _BOTTOM
        parts.append(element("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=base, y2=base, class_="axis"))
        middle = (_LEFT + WIDTH - _RIGHT) / 2
        parts.append(element("text", x_label, x=middle, y=HEIGHT - 8, text_anchor="middle", class_="label"))
        parts.append(element("text", y_label, x=4, y=14, class_="label"))
        return picture(title, description, HEIGHT, *parts, *marks)

    def _path(self, points: Points) -> str:
        return " ".join("{:.1f},{:.1f}".format(*self.at(*point)) for point in points)


@dataclass(frozen=True)
class Bar:
    """One line of a list of bars."""

    label: str
    value: float
    text: str
    class_: str = "one"


def bar_list(title: str, description: str, bars: Sequence[Bar], root: bool = False) -> Markup:
    """Horizontal bars from zero, each with its name and its value. `root`: lengths as square roots."""
    begin = _LETTER * max((len(shortened(bar.label)) for bar in bars), default=0) + 8
    longest = WIDTH - begin - _VALUE_WIDTH
    scale = Scale(0.0, max((bar.value for bar in bars), default=0.0) or 1.0, "root" if root else "linear")
    parts = []
    for number, bar in enumerate(bars):
        middle = _ROW * (number + 0.5) + 2
        length = max(longest * scale.share(bar.value), 1.5)
        name = element("title", f"{bar.label}: {bar.text}")
        parts.append(
            element(
                "g",
                name,
                element("text", shortened(bar.label), x=begin - 8, y=middle + 4, text_anchor="end", class_="name"),
                element("rect", x=begin, y=middle - 7, width=length, height=14, rx=2, class_=bar.class_),
                element("text", bar.text, x=begin + length + 6, y=middle + 4, class_="value"),
            )
        )
    return picture(title, description, _ROW * len(bars) + 4, *parts, class_="bars")


def picture(title: str, description: str, height: float, *content: Markup, class_: str = "plane") -> Markup:
    """An SVG that says what it shows to those who do not see it."""
    return element(
        "svg", element("title", title), element("desc", description), *content,
        viewBox=f"0 0 {WIDTH} {height:g}", role="img", aria_label=f"{title}. {description}", class_=class_,
    )  # fmt: skip


def titled(titles: Sequence[str], number: int) -> list[Markup]:
    return [element("title", titles[number])] if titles else []


def shortened(name: str) -> str:
    """Both ends of a long name: what distinguishes columns may be at either."""
    if len(name) <= _LABEL_LETTERS:
        return name
    kept = _LABEL_LETTERS - 1
    return f"{name[: kept - kept // 2]}…{name[-(kept // 2) :]}"


def _labelled(scale: Scale) -> list[tuple[float, str]]:
    ticks = scale.ticks()
    if scale.kind == "linear":
        return list(zip(ticks, tick_labels(ticks), strict=True))
    return [(tick, tick_labels([tick])[0] if tick >= 1 else f"{tick:g}") for tick in ticks]
