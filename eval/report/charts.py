"""Line charts as inline SVG: small, readable without colour, and with a text alternative."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from html import escape

# Classes s0 to s7 of the style sheet: Okabe and Ito's palette, which colour-blind people can tell apart.
COLOURS = 8
# Classes of the style sheet, by what a legend calls them.
DASHES = {"solid": "", "dashed": " dashed", "dotted": " dotted", "dash-dotted": " dash-dotted"}
_MARKERS = ("circle", "square", "triangle", "diamond")
_LABEL_HEIGHT = 11.0
_CHARACTER = 6.7  # about the mean width of a letter at the size of the labels


@dataclasses.dataclass(frozen=True)
class Point:
    """A measured value at a place; `low` and `high` bound its 95 % interval."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclasses.dataclass(frozen=True)
class Series:
    """A line: `colour` counts through the palette, `dash` (one of `DASHES`) sets treatments of a run apart."""

    label: str
    points: tuple[Point, ...]
    colour: int = 0
    dash: str = "solid"


@dataclasses.dataclass(frozen=True)
class Axis:
    """An axis from `low` to `high`, with ticks at values and their texts."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]


@dataclasses.dataclass(frozen=True)
class Chart:
    """A chart before it is drawn; sizes are in units of the view box."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    width: float = 260.0
    height: float = 180.0


@dataclasses.dataclass(frozen=True)
class Frame:
    """Where values land in the view box."""

    x: Axis
    y: Axis
    left: float
    right: float
    top: float
    bottom: float

    def across(self, value: float) -> float:
        """The horizontal place of a value."""
        share = (value - self.x.low) / (self.x.high - self.x.low)
        return self.left + share * (self.right - self.left)

    def down(self, value: float) -> float:
        """The vertical place of a value; larger values are higher up."""
        share = (value - self.y.low) / (self.y.high - self.y.low)
        return self.bottom - share * (self.bottom - self.top)


def frame(chart: Chart) -> Frame:
    """The area within the axes; the right margin holds the labels of the lines."""
    longest = max((len(series.label) for series in chart.series), default=0)
    return Frame(
        chart.x,
        chart.y,
        left=36.0,
        right=chart.width - 12.0 - _CHARACTER * longest,
        top=10.0,
        bottom=chart.height - 34.0,
    )


def percent_axis(values: Sequence[float], *, from_zero: bool = True) -> Axis:
    """An axis of accuracy: 0 to 100, or the part of it that holds the values, in tens."""
    low, high = 0.0, 100.0
    if not from_zero and values:
        low = max(min(values) // 10 * 10, 0.0)
        high = min(-(-max(values) // 10) * 10, 100.0)
        if high <= low:
            low, high = max(low - 10, 0.0), min(low + 10, 100.0)
    step = 25 if high - low > 60 else 10 if high - low > 20 else 5
    ticks = [low + step * k for k in range(int((high - low) / step) + 1)]
    return Axis("accuracy, %", low, high, tuple((tick, f"{tick:g}") for tick in ticks))


def svg(chart: Chart, ids: Iterator[int]) -> str:
    """Draws a chart.

    Args:
      chart: what to draw; points beyond the axes are drawn beyond them.
      ids: numbers for the ids of the text alternative, unique within the page.
    """
    area = frame(chart)
    number = next(ids)
    title, described = f"chart-{number}-title", f"chart-{number}-text"
    parts = [
        f'<svg class="chart" viewBox="0 0 {chart.width:g} {chart.height:g}" role="img" '
        f'aria-labelledby="{title} {described}">',
        f'<title id="{title}">{escape(chart.title)}</title>',
        f'<desc id="{described}">{escape(describe(chart))}</desc>',
        *_axes(chart, area),
        *(_band(series, area) for series in chart.series),
        *(_line(series, area) for series in chart.series),
        *_labels(chart.series, area),
        "</svg>",
    ]
    return "".join(parts)


def describe(chart: Chart) -> str:
    """The numbers in words, for those who do not see the lines."""
    lines = [f"{chart.y.label} over {chart.x.label}."]
    for series in chart.series:
        values = ", ".join(f"{point.y:.1f} at {point.x:g}" for point in series.points)
        lines.append(f"{series.label}: {values}.")
    return " ".join(lines)


def _axes(chart: Chart, area: Frame) -> Iterator[str]:
    for value, text in chart.y.ticks:
        y = area.down(value)
        yield _path(f"M{area.left:.1f} {y:.1f}H{area.right:.1f}", "grid")
        yield _text(area.left - 5, y + 3.5, text, "tick end")
    for value, text in chart.x.ticks:
        x = area.across(value)
        yield _path(f"M{x:.1f} {area.bottom:.1f}v3", "axis")
        yield _text(x, area.bottom + 14, text, "tick middle")
    yield _path(f"M{area.left:.1f} {area.bottom:.1f}H{area.right:.1f}", "axis")
    yield _text((area.left + area.right) / 2, area.bottom + 28, chart.x.label, "name middle")
    middle = (area.top + area.bottom) / 2
    turn = f' transform="rotate(-90 9 {middle:.1f})"'
    yield _text(9, middle, chart.y.label, "name middle", turn)


def _band(series: Series, area: Frame) -> str:
    """The intervals: a band along a line, a bar at a single point."""
    bounds = [
        (area.across(p.x), area.down(p.low), area.down(p.high))
        for p in series.points
        if p.low is not None and p.high is not None
    ]
    colour = f"s{series.colour % COLOURS}"
    if len(bounds) == 1:
        x, low, high = bounds[0]
        return _path(f"M{x:.1f} {low:.1f}V{high:.1f}", f"bar {colour}")
    if not bounds:
        return ""
    around = [(x, high) for x, _, high in bounds] + [(x, low) for x, low, _ in reversed(bounds)]
    return _path("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in around) + "Z", f"band {colour}")


def _line(series: Series, area: Frame) -> str:
    places = [(area.across(point.x), area.down(point.y)) for point in series.points]
    colour = f"s{series.colour % COLOURS}"
    steps = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    line = _path(steps, f"line {colour}{DASHES[series.dash]}") if len(places) > 1 else ""
    marks = "".join(_marker(x, y, series.colour) for x, y in places)
    return f"{line}<g class='mark {colour}'>{marks}</g>"


def _marker(x: float, y: float, colour: int) -> str:
    """Shapes differ as well as colours."""
    shape = _MARKERS[colour % len(_MARKERS)]
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4"/>'
    outlines = {
        "square": f"M{x - 2.2:.1f} {y - 2.2:.1f}h4.4v4.4h-4.4z",
        "triangle": f"M{x:.1f} {y - 3:.1f}l2.8 5h-5.6z",
        "diamond": f"M{x:.1f} {y - 3:.1f}l3 3l-3 3l-3-3z",
    }
    return f'<path d="{outlines[shape]}"/>'


def _labels(lines: Sequence[Series], area: Frame) -> Iterator[str]:
    """Every line's name at its right end, pushed apart where ends meet."""
    drawn = [series for series in lines if series.points]
    ends = sorted(drawn, key=lambda series: area.down(series.points[-1].y))
    places = spread([area.down(series.points[-1].y) for series in ends], area.top, area.bottom)
    for series, y in zip(ends, places, strict=True):
        colour = f"s{series.colour % COLOURS}"
        yield _text(area.right + 6, y + 3.5, series.label, f"label {colour}")


def spread(wanted: Sequence[float], top: float, bottom: float) -> list[float]:
    """Moves sorted places apart so that labels do not overlap, within bounds as far as they fit."""
    places = list(wanted)
    for before, after in itertools.pairwise(range(len(places))):
        places[after] = max(places[after], places[before] + _LABEL_HEIGHT)
    if places and places[-1] > bottom:
        places[-1] = max(bottom, top)
        for after, before in itertools.pairwise(reversed(range(len(places)))):
            places[before] = min(places[before], places[after] - _LABEL_HEIGHT)
    return places


def _path(steps: str, classes: str) -> str:
    return f'<path class="{classes}" d="{steps}"/>'


def _text(x: float, y: float, text: str, classes: str, more: str = "") -> str:
    return f'<text class="{classes}" x="{x:.1f}" y="{y:.1f}"{more}>{escape(text)}</text>'
