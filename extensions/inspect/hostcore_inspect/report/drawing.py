"""Plots as paths and labels of an SVG that needs no script. ``templates/plot.html`` makes the elements of them."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import attrs

from hostcore_inspect.plots import smooth
from hostcore_inspect.report.curve import Curve, Point

#: The room around the axes, in units of the picture.
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 12, 26
#: Width and height of the first plot, which is as wide as the page, and of the others.
_LARGE: Final = (960, 300)
_SMALL: Final = (480, 220)
#: A curve of fewer points is not smoothed, nor is one that goes up and down less than so often its whole range.
_ROUGH_POINTS: Final = 60
_ROUGH_RANGES: Final = 6
#: A curve of so few points shows each of them.
DOTTED_UP_TO: Final = 40
#: The weight of what was before, in the moving average.
SMOOTHING: Final = 0.8
#: The moving average is drawn with so many points.
_SMOOTHED_POINTS: Final = 200
_MOST_MARKS: Final = 100
#: The width of a character, at the most.
_CHARACTER: Final = 7
_MOST_CROSSES: Final = 200


@attrs.frozen(kw_only=True)
class DrawnCurve:
    """A curve in a plot."""

    name: str
    #: ``train``, ``val``, ``test``, ``more`` (a second one of the same phase) or ``pace``: decides about its look.
    role: str
    curve: Curve


@attrs.frozen(kw_only=True)
class PlotMarks:
    """Marks in every plot."""

    #: The last step of the axis.
    last_step: int
    #: Steps of checkpoints.
    checkpoints: Sequence[int]
    #: The number of each attempt but the first, and the step it began at.
    attempts: Sequence[tuple[int, int]]


@attrs.frozen(kw_only=True)
class AxisLabel:
    """A text in a picture, at its coordinates."""

    text: str
    x: str
    y: str
    #: ``start``, ``middle`` or ``end`` lies there.
    anchor: str = "start"


@attrs.frozen(kw_only=True)
class Path:
    """A path with its class in the style sheet."""

    look: str
    d: str
    #: Tooltip; None: no tooltip.
    title: str | None = None


@attrs.frozen(kw_only=True)
class Picture:
    """A drawn plot. Coordinates are in units of its view box."""

    width: int
    height: int
    paths: Sequence[Path]
    #: Beside the vertical axis, below the horizontal one, and at the lines where attempts began.
    rows: Sequence[AxisLabel]
    columns: Sequence[AxisLabel]
    attempts: Sequence[AxisLabel]


@attrs.frozen
class Scale:
    """Maps values from ``low`` to ``high`` to a fraction of an axis."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Sequence[float]) -> "Scale":
        """A scale on which all values have room; equal ones lie in the middle."""
        low, high = min(values, default=0.0), max(values, default=1.0)
        if low == high:
            room = abs(low) * 0.05 or 1.0
            return cls(low - room, high + room)
        return cls(low, high)

    def fraction(self, value: float) -> float:
        """Return the position of a value, 0 to 1."""
        # In halves, so that the distance of the largest numbers there are does not overflow.
        span = self.high / 2 - self.low / 2
        return (value / 2 - self.low / 2) / span if span else 0.5

    def ticks(self, most: int) -> list[float]:
        """Round numbers on the scale, evenly spaced: at most so many."""
        span = (self.high / 2 - self.low / 2) / most * 2
        if span < 1e-300 or not math.isfinite(span):
            return [self.low, self.high]
        power = 10.0 ** math.floor(math.log10(span))
        step = next((factor * power for factor in (1, 2, 5) if factor * power >= span), 10 * power)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [number * step for number in range(first, last + 1)] if last - first <= most else [self.low, self.high]


def label(value: float, ticks: Sequence[float]) -> str:
    """Format a tick with as many digits as distinguish it from its neighbours."""
    distance = abs(ticks[1] - ticks[0]) if len(ticks) > 1 else abs(value)
    largest = max(abs(tick) for tick in ticks)
    if not distance or not largest or not math.isfinite(distance):
        return f"{value:.4g}"
    smallest_digit = math.floor(math.log10(distance))
    shown = 0.0 if abs(value) < distance / 1e6 else value
    if largest < 1e7 and smallest_digit > -6:
        return f"{shown:,.{max(0, -smallest_digit)}f}"
    return f"{shown:.{min(15, max(1, math.floor(math.log10(largest)) - smallest_digit + 1))}g}"


@attrs.frozen(kw_only=True)
class _Frame:
    width: int
    height: int
    x: Scale
    y: Scale

    @property
    def bottom(self) -> int:
        return self.height - _BOTTOM

    @property
    def right(self) -> int:
        return self.width - _RIGHT

    def across(self, step: float) -> str:
        return f"{_LEFT + self.x.fraction(step) * (self.right - _LEFT):.4g}"

    def down(self, value: float) -> str:
        return f"{self.bottom - self.y.fraction(value) * (self.bottom - _TOP):.4g}"


def draw(curves: Sequence[DrawnCurve], marks: PlotMarks, *, large: bool) -> Picture:
    """A plot of some curves.

    :param large: Whether it has the width of the page.
    """
    values = [value for one in curves for _, value in one.curve.points if value is not None]
    width, height = _LARGE if large else _SMALL
    frame = _Frame(width=width, height=height, x=Scale(0, max(1, marks.last_step)), y=Scale.over(values))
    rows, columns = frame.y.ticks(5), frame.x.ticks(8 if large else 5)
    begun = marks.attempts[-_MOST_MARKS:]
    return Picture(
        width=width,
        height=height,
        paths=[
            *_axes(frame, rows),
            *_marks(frame, marks, begun),
            *(path for one in curves for path in _curve(frame, one)),
        ],
        rows=[AxisLabel(text=label(tick, rows), x=str(_LEFT - 6), y=frame.down(tick), anchor="end") for tick in rows],
        columns=[
            AxisLabel(
                text=f"{int(tick):,}",
                x=frame.across(tick),
                y=str(frame.bottom + 17),
                anchor="end" if tick > 0.97 * frame.x.high else "middle",
            )
            for tick in columns
            if tick == int(tick)
        ],
        attempts=list(_attempt_labels(frame, begun)),
    )


def _attempt_labels(frame: _Frame, begun: Sequence[tuple[int, int]]) -> Iterator[AxisLabel]:
    """Yield the labels of the lines where attempts began, without those that would cover the one before."""
    free_from = 0.0
    for attempt, step in sorted(begun, key=lambda one: one[1]):
        text, at = f"attempt {attempt}", float(frame.across(step))
        width = _CHARACTER * (len(text) + 1)
        ends_there = at + width > frame.right
        left = at - width if ends_there else at
        if left >= free_from:
            free_from = left + width
            yield AxisLabel(text=text, x=frame.across(step), y=str(_TOP), anchor="end" if ends_there else "start")


def is_rough(curve: Curve) -> bool:
    """Return whether a curve oscillates so much that its average shows more. That of a smooth one would only lag."""
    values = [value for _, value in _trend_of(curve)]
    if len(values) < _ROUGH_POINTS:
        return False
    travelled = sum(abs(after / 2 - before / 2) for before, after in pairwise(values))
    return travelled > _ROUGH_RANGES * (max(values) / 2 - min(values) / 2)


def _trend_of(curve: Curve) -> list[tuple[int, float]]:
    """Return the points of a moving average: the means of a long curve, or every value."""
    return curve.means or [(step, value) for step, value in curve.points if value is not None]


def _axes(frame: _Frame, rows: Sequence[float]) -> Iterator[Path]:
    yield Path(look="grid", d="".join(f"M{_LEFT},{frame.down(tick)}H{frame.right}" for tick in rows))
    yield Path(look="axis", d=f"M{_LEFT},{_TOP}V{frame.bottom}H{frame.right}")


def _marks(frame: _Frame, marks: PlotMarks, begun: Sequence[tuple[int, int]]) -> Iterator[Path]:
    """The checkpoints, and where attempts began."""
    thinned = marks.checkpoints[:: len(marks.checkpoints) // _MOST_MARKS + 1]
    if thinned:
        triangles = "".join(f"M{frame.across(step)},{frame.bottom}l-3,6h6z" for step in thinned)
        yield Path(look="checkpoint", d=triangles)
    for _, step in begun:
        yield Path(look="attempt", d=f"M{frame.across(step)},{_TOP}V{frame.bottom}")


def _curve(frame: _Frame, one: DrawnCurve) -> Iterator[Path]:
    points = one.curve.points
    is_smoothed = is_rough(one.curve)
    yield Path(look=f"line {one.role}{' raw' if is_smoothed else ''}", d=_line(frame, points))
    if is_smoothed:
        yield Path(look=f"line {one.role}", d=_line(frame, _average(one.curve)))
    if len(points) <= DOTTED_UP_TO:
        dots = [(step, value) for step, value in points if value is not None]
        # A dot is a line without length and with round ends: one element for all of them.
        marks = "".join(f"M{frame.across(step)},{frame.down(value)}h0" for step, value in dots)
        yield Path(look=f"dots {one.role}", d=marks)
    if steps := one.curve.nonfinite_steps:
        thinned = steps[:: len(steps) // _MOST_CROSSES + 1]
        crosses = "".join(f"M{frame.across(step)},{_TOP}m-4,-4l8,8m-8,0l8,-8" for step in thinned)
        yield Path(look="nonfinite", d=crosses, title=f"{one.name} was not finite here")


def _average(curve: Curve) -> list[Point]:
    """The moving average of a curve, with a bounded number of points: its last one is always among them."""
    trend = _trend_of(curve)
    averaged = list(
        zip([step for step, _ in trend], smooth([value for _, value in trend], weight=SMOOTHING), strict=True)
    )
    every = len(averaged) // _SMOOTHED_POINTS + 1
    return [*averaged[::every], *(averaged[-1:] if (len(averaged) - 1) % every else [])]


def _line(frame: _Frame, points: Sequence[Point]) -> str:
    """A line through points, interrupted where there is no value."""
    parts, pen_up = [], True
    for step, value in points:
        if value is None:
            pen_up = True
            continue
        parts.append(f"{'M' if pen_up else ' '}{frame.across(step)},{frame.down(value)}")
        pen_up = False
    return "".join(parts)
