"""Plots as SVG that needs no script."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import attrs

from hostcore.cli.report_page.markup import Html, element, join
from hostcore.cli.report_page.plots import DrawnCurve, Plot
from hostcore.cli.report_page.scale import Scale, label
from hostcore.cli.report_page.thinning import Curve, Point
from hostcore.cli.wording import figure

#: The room around the axes, in units of the picture.
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 12, 26
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


@attrs.frozen(kw_only=True)
class Marks:
    """What is marked in every plot."""

    #: The last step of the axis.
    last_step: int
    #: Steps of checkpoints.
    checkpoints: Sequence[int]
    #: The number of each attempt but the first, and the step it began at.
    attempts: Sequence[tuple[int, int]]


@attrs.frozen(kw_only=True)
class _Frame:
    width: int
    height: int
    x: Scale
    y: Scale

    def across(self, step: float) -> str:
        return f"{_LEFT + self.x.fraction(step) * (self.width - _LEFT - _RIGHT):.4g}"

    def down(self, value: float) -> str:
        return f"{self.height - _BOTTOM - self.y.fraction(value) * (self.height - _TOP - _BOTTOM):.4g}"


def draw(plot: Plot, marks: Marks, *, number: int, large: bool) -> Html:
    """A plot.

    :param number: Tells it from the other plots of the page.
    :param large: Whether it has the width of the page.
    """
    values = [value for one in plot.curves for _, value in one.curve.points if value is not None]
    size = (960, 300) if large else (480, 220)
    frame = _Frame(width=size[0], height=size[1], x=Scale(0, max(1, marks.last_step)), y=Scale.over(values))
    return element(
        "svg",
        element("title", plot.title, id=f"title-{number}"),
        element("desc", "; ".join(map(in_words, plot.curves)), id=f"desc-{number}"),
        *_axes(frame),
        *_marks(frame, marks),
        *(part for one in plot.curves for part in _curve(frame, one)),
        viewBox=f"0 0 {frame.width} {frame.height}",
        role="img",
        aria_labelledby=f"title-{number}",
        aria_describedby=f"desc-{number}",
    )


def in_words(one: DrawnCurve) -> str:
    """A curve for people who do not see it."""
    curve = one.curve
    if curve.last is None:
        return f"{one.name}: no values"
    told = [f"{one.name}: {curve.count:,} values, {figure(curve.last[1])} at step {curve.last[0]:,}"]
    if curve.lowest and curve.highest:
        told.append(f"lowest {figure(curve.lowest[1])} at step {curve.lowest[0]:,}")
        told.append(f"highest {figure(curve.highest[1])} at step {curve.highest[0]:,}")
    if curve.nonfinite:
        told.append(f"{curve.nonfinite:,} not finite")
    return ", ".join(told)


def smoothed(values: Sequence[float], *, weight: float = SMOOTHING) -> list[float]:
    """The exponential moving average, with the bias towards its start corrected."""
    average, result = 0.0, []
    for count, value in enumerate(values, start=1):
        average = weight * average + (1 - weight) * value
        result.append(average / (1 - weight**count))
    return result


def is_rough(curve: Curve) -> bool:
    """Whether a curve goes up and down so much that its average tells more. That of a smooth one would only lag."""
    values = [value for _, value in trend_of(curve)]
    if len(values) < _ROUGH_POINTS:
        return False
    travelled = sum(abs(after / 2 - before / 2) for before, after in pairwise(values))
    return travelled > _ROUGH_RANGES * (max(values) / 2 - min(values) / 2)


def trend_of(curve: Curve) -> list[tuple[int, float]]:
    """What a moving average is taken of: the means of a long curve, or every value."""
    return curve.means or [(step, value) for step, value in curve.points if value is not None]


def _axes(frame: _Frame) -> Iterator[Html]:
    bottom, right = frame.height - _BOTTOM, frame.width - _RIGHT
    rows, columns = frame.y.ticks(5), frame.x.ticks(8 if frame.width > 600 else 5)
    lines = "".join(f"M{_LEFT},{frame.down(tick)}H{right}" for tick in rows)
    yield element("path", d=lines, class_="grid")
    yield element("path", d=f"M{_LEFT},{_TOP}V{bottom}H{right}", class_="axis")
    for tick in rows:
        yield element("text", label(tick, rows), x=_LEFT - 6, y=frame.down(tick), dy="0.32em", text_anchor="end")
    for tick in columns:
        if tick == int(tick):
            anchor = "end" if tick > 0.97 * frame.x.high else "middle"
            yield element("text", f"{int(tick):,}", x=frame.across(tick), y=bottom + 17, text_anchor=anchor)


def _marks(frame: _Frame, marks: Marks) -> Iterator[Html]:
    bottom = frame.height - _BOTTOM
    thinned = marks.checkpoints[:: len(marks.checkpoints) // _MOST_MARKS + 1]
    if thinned:
        triangles = "".join(f"M{frame.across(step)},{bottom}l-3,6h6z" for step in thinned)
        yield element("path", d=triangles, class_="checkpoint")
    for attempt, step in marks.attempts[-_MOST_MARKS:]:
        yield element("path", d=f"M{frame.across(step)},{_TOP}V{bottom}", class_="attempt")
        yield element(
            "text", f"attempt {attempt}", x=frame.across(step), y=_TOP, dx=4, dy="0.6em", class_="attempt-name"
        )


def _curve(frame: _Frame, one: DrawnCurve) -> Iterator[Html]:
    points = one.curve.points
    trend, is_smoothed = trend_of(one.curve), is_rough(one.curve)
    yield element("path", d=_path(frame, points), class_=f"line {one.role}{' raw' if is_smoothed else ''}")
    if is_smoothed:
        averaged = list(zip([step for step, _ in trend], smoothed([value for _, value in trend]), strict=True))
        every = len(averaged) // _SMOOTHED_POINTS + 1
        kept = [*averaged[::every], *(averaged[-1:] if (len(averaged) - 1) % every else [])]
        yield element("path", d=_path(frame, kept), class_=f"line {one.role}")
    if len(points) <= DOTTED_UP_TO:
        dots = [(step, value) for step, value in points if value is not None]
        # A dot is a line without length and with round ends: one element for all of them.
        marks = "".join(f"M{frame.across(step)},{frame.down(value)}h0" for step, value in dots)
        yield element("path", d=marks, class_=f"dots {one.role}")
    if steps := one.curve.nonfinite_steps:
        crosses = "".join(
            f"M{frame.across(step)},{_TOP}m-4,-4l8,8m-8,0l8,-8" for step in steps[:: len(steps) // 200 + 1]
        )
        named = join(element("title", f"{one.name} was not finite here"))
        yield element("path", named, d=crosses, class_="nonfinite")


def _path(frame: _Frame, points: "Sequence[Point] | Sequence[tuple[int, float]]") -> str:
    """A line through points, interrupted where there is no value."""
    parts, pen_up = [], True
    for step, value in points:
        if value is None:
            pen_up = True
            continue
        parts.append(f"{'M' if pen_up else ' '}{frame.across(step)},{frame.down(value)}")
        pen_up = False
    return "".join(parts)
