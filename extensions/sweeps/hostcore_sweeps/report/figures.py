"""The pictures of a sweep, as paths and texts of SVGs that need no script.

``templates/figure.html`` makes the elements of them for a page, and the script of a service's page does.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any, Final

import attrs

from hostcore.cli.wording import figure
from hostcore_inspect.report.curve import Curve
from hostcore_inspect.report.drawing import AxisLabel
from hostcore_sweeps.display import short_names
from hostcore_sweeps.report.axes import Axis, axis_of_metric, axis_of_numbers, axis_of_parameter, in_words
from hostcore_sweeps.spec import ObjectiveSpec
from hostcore_sweeps.status import SweepStatus, TrialRow

#: Of trials in a picture: the best ones, and then the newest.
MOST_DRAWN: Final = 1_000
#: Number of colours for trials: the best have the first.
_COLOURS: Final = 9
#: The points of all curves together: what keeps the page small.
_MOST_POINTS: Final = 40_000
_FEWEST_POINTS: Final = 20
_WIDTH, _HEIGHT = 960, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 16, 14, 42
#: Of an axis of parallel coordinates, in units of the picture, and what is above and below the axes there.
_AXIS_WIDTH: Final = 130
_ABOVE, _BELOW = 44, 18
#: The room between an axis and what is at its ends.
_INSET: Final = 8
_LONGEST_NAME: Final = 20


@attrs.frozen(kw_only=True)
class FigureMark:
    """A path with its class in the style sheet."""

    look: str
    d: str
    #: Tooltip; None: no tooltip.
    title: str | None = None
    #: The trial that it is of.
    trial: int | None = None


@attrs.frozen(kw_only=True)
class SweepFigure:
    """A drawn picture. Coordinates are in units of its view box."""

    title: str
    #: The picture for people who do not see it; the table of trials has all numbers.
    description: str
    #: What its marks mean: their classes, the first of which is their shape, and words.
    legend: Sequence[tuple[str, str]]
    width: int
    height: int
    marks: Sequence[FigureMark]
    labels: Sequence[AxisLabel]

    def as_dict(self) -> dict[str, Any]:
        """The picture as plain JSON."""
        return attrs.asdict(self)


@attrs.frozen(kw_only=True)
class _FigureFrame:
    """A pair of axes."""

    x: Axis
    y: Axis

    @property
    def bottom(self) -> int:
        return _HEIGHT - _BOTTOM

    def across(self, value: float) -> float:
        return self.column(self.x.fraction(value))

    def down(self, value: float) -> float:
        return self.row(self.y.fraction(value))

    def column(self, fraction: float) -> float:
        return _LEFT + _INSET + fraction * (_WIDTH - _RIGHT - _LEFT - 2 * _INSET)

    def row(self, fraction: float) -> float:
        return self.bottom - _INSET - fraction * (self.bottom - _TOP - 2 * _INSET)

    def at(self, x: float, y: float) -> str:
        return f"{self.across(x):.5g},{self.down(y):.5g}"

    def lines(self) -> Iterator[FigureMark]:
        right = _WIDTH - _RIGHT
        yield FigureMark(look="grid", d="".join(f"M{_LEFT},{self.row(place):.5g}H{right}" for place, _ in self.y.ticks))
        yield FigureMark(look="axis", d=f"M{_LEFT},{_TOP}V{self.bottom}H{right}")

    def labels(self, x: str, y: str) -> Iterator[AxisLabel]:
        """The ticks, and what the axes are of."""
        for place, text in self.y.ticks:
            yield AxisLabel(text=text, x=str(_LEFT - 6), y=f"{self.row(place) + 4:.5g}", anchor="end")
        for place, text in self.x.ticks:
            anchor = "end" if place > 0.97 else "middle"
            yield AxisLabel(text=text, x=f"{self.column(place):.5g}", y=str(self.bottom + 16), anchor=anchor)
        yield AxisLabel(text=f"{x} →", x=str(_WIDTH - _RIGHT), y=str(self.bottom + 34), anchor="end")
        yield AxisLabel(text=f"↑ {y}", x=str(_LEFT), y=str(self.bottom + 34), anchor="start")


@attrs.frozen
class Looks:
    """Colours of a sweep's trials, the same in all pictures."""

    _status: SweepStatus
    #: By number: 0 for the best.
    _colours: Mapping[int, int]

    @classmethod
    def of(cls, status: SweepStatus) -> "Looks":
        """Complete trials get colours by their rank in the first objective: an outlier takes none from others."""
        first = status.objectives[0]
        order = sorted(
            (row for row in status.trials if row.state == "complete"),
            key=lambda row: (row.objective[first.metric] or 0.0) * (1 if first.mode == "min" else -1),
        )
        return cls(
            status, {row.number: rank * (_COLOURS - 1) // max(1, len(order) - 1) for rank, row in enumerate(order)}
        )

    def of_trial(self, row: TrialRow) -> str:
        """The classes of a trial."""
        if row.state != "complete":
            return row.state
        return f"complete q{self._colours[row.number]}{' best' if row.number in self._status.best else ''}"

    def drawn(self) -> list[TrialRow]:
        """The trials that are drawn, those that matter most last, so that they lie above the others."""
        rows = self._status.trials
        if len(rows) > MOST_DRAWN:
            chosen = {*sorted(self._colours, key=lambda number: self._colours[number])[: MOST_DRAWN // 2]}
            chosen |= {row.number for row in rows[-(MOST_DRAWN - len(chosen)) :]}
            rows = [row for row in rows if row.number in chosen]
        return sorted(rows, key=lambda row: (row.number in self._status.best, self._weight(row)))

    def _weight(self, row: TrialRow) -> int:
        return -self._colours.get(row.number, _COLOURS)

    def legend(self, shape: str, rows: Sequence[TrialRow]) -> list[tuple[str, str]]:
        """Return the legend of the colours.

        :param shape: Of the marks: ``dot`` or ``curve``.
        """
        found = {row.state for row in rows}
        shown = [("complete q0", "best"), (f"complete q{_COLOURS - 1}", "worst")] if "complete" in found else []
        shown += [(state, state) for state in ("pruned", "failed", "running", "paused") if state in found]
        return [(f"{shape} {look}", words) for look, words in shown]


def title_of(row: TrialRow, status: SweepStatus) -> str:
    """Return the tooltip of a trial: a few lines."""
    names = short_names(list(status.sweep.space))
    values = [f"{names[pointer]}: {in_words(value)}" for pointer, value in row.values.items()]
    metrics = [f"{name}: {figure(value)}" for name, value in row.objective.items()]
    best = ", the best" if row.number in status.best and len(status.best) == 1 else ""
    parent = [] if row.parent is None else [f"goes on from trial {row.parent}"]
    return "\n".join([f"trial {row.number}, {row.state}{best}", *parent, *metrics, *values])


def history(status: SweepStatus, looks: Looks) -> SweepFigure | None:
    """The objective of each trial, and the best so far; None while nothing was reported."""
    objective = status.objectives[0]
    rows = [(row, value) for row in looks.drawn() if (value := row.objective.get(objective.metric)) is not None]
    if not rows:
        return None
    best = _best_so_far(status, objective)
    frame = _FigureFrame(
        x=axis_of_numbers(status.trials[-1].number),
        y=axis_of_metric([value for _, value in rows] + [value for _, value in best]),
    )
    failed = [row for row in looks.drawn() if row.state == "failed"]
    return SweepFigure(
        title=f"{objective.metric} by trial",
        description=_history_in_words(status, best),
        legend=[
            *([("curve sofar", "best so far")] if best else []),
            *looks.legend("dot", [row for row, _ in rows]),
            *([("cross failed", "failed")] if failed else []),
        ],
        width=_WIDTH,
        height=_HEIGHT,
        marks=[
            *frame.lines(),
            *([FigureMark(look="sofar", d=_stairs(frame, best, status.trials[-1].number))] if best else []),
            *(_cross(frame, row, status) for row in failed),
            *(
                FigureMark(
                    look=f"dot {looks.of_trial(row)}",
                    d=f"M{frame.at(row.number, value)}h0",
                    title=title_of(row, status),
                    trial=row.number,
                )
                for row, value in rows
            ),
        ],
        labels=list(frame.labels("trial", _named(objective.metric, frame.y))),
    )


def _best_so_far(status: SweepStatus, objective: ObjectiveSpec) -> list[tuple[int, float]]:
    """The trials that were better than all before them, and their values."""
    found: list[tuple[int, float]] = []
    for row in status.trials:
        value = row.objective.get(objective.metric)
        if row.state == "complete" and value is not None:
            is_better = not found or (value < found[-1][1] if objective.mode == "min" else value > found[-1][1])
            if is_better:
                found.append((row.number, value))
    return found


def _stairs(frame: _FigureFrame, points: Sequence[tuple[int, float]], last: int) -> str:
    (number, value), *more = points
    steps = "".join(f"H{frame.across(number):.5g}V{frame.down(value):.5g}" for number, value in more)
    return f"M{frame.at(number, value)}{steps}H{frame.across(last):.5g}"


def _cross(frame: _FigureFrame, row: TrialRow, status: SweepStatus) -> FigureMark:
    d = f"M{frame.across(row.number):.5g},{_TOP}m-4,-4l8,8m-8,0l8,-8"
    return FigureMark(look="cross failed", d=d, title=title_of(row, status), trial=row.number)


def _history_in_words(status: SweepStatus, best: Sequence[tuple[int, float]]) -> str:
    if not best:
        return f"{len(status.trials):,} trials, none of them complete."
    steps = ", ".join(f"{figure(value)} at trial {number}" for number, value in best[-10:])
    return f"{len(status.trials):,} trials. The best so far was {steps}."


def _named(metric: str, axis: Axis) -> str:
    return f"{metric} (logarithmic)" if axis.is_logarithmic else metric


def trade_offs(status: SweepStatus, looks: Looks) -> list[SweepFigure]:
    """Each pair of objectives against each other; empty while no trial is complete."""
    rows = [row for row in looks.drawn() if row.state == "complete"]
    return [_trade_off(status, rows, *pair) for pair in combinations(status.objectives, 2)] if rows else []


def _trade_off(status: SweepStatus, rows: Sequence[TrialRow], one: ObjectiveSpec, other: ObjectiveSpec) -> SweepFigure:
    points = [(row, row.objective[one.metric] or 0.0, row.objective[other.metric] or 0.0) for row in rows]
    frame = _FigureFrame(x=axis_of_metric([x for _, x, _ in points]), y=axis_of_metric([y for _, _, y in points]))
    front = sorted((x, y) for row, x, y in points if row.number in status.best)
    told = "; ".join(f"{figure(x)} and {figure(y)}" for x, y in front[:20])
    return SweepFigure(
        title=f"{one.metric} and {other.metric}",
        description=f"No trial is better in both than these, in {one.metric} and {other.metric}: {told}.",
        legend=[("dot front", "no trial is better in all objectives"), ("dot other", "other complete trials")],
        width=_WIDTH,
        height=_HEIGHT,
        marks=[
            *frame.lines(),
            *([_front(frame, front)] if len(status.objectives) == 2 else []),
            *(
                FigureMark(
                    look=f"dot {'front' if row.number in status.best else 'other'}",
                    d=f"M{frame.at(x, y)}h0",
                    title=title_of(row, status),
                    trial=row.number,
                )
                for row, x, y in sorted(points, key=lambda point: point[0].number in status.best)
            ),
        ],
        labels=list(
            frame.labels(
                _named(f"{one.metric} ({_better(one)})", frame.x), _named(f"{other.metric} ({_better(other)})", frame.y)
            )
        ),
    )


def _better(objective: ObjectiveSpec) -> str:
    return "less is better" if objective.mode == "min" else "more is better"


def _front(frame: _FigureFrame, points: Sequence[tuple[float, float]]) -> FigureMark:
    return FigureMark(look="sofar", d="M" + " ".join(frame.at(x, y) for x, y in points))


def curves(status: SweepStatus, looks: Looks) -> list[SweepFigure]:
    """Each objective of the trials over their steps."""
    return [one for objective in status.objectives if (one := _curves(status, looks, objective)) is not None]


def _curves(status: SweepStatus, looks: Looks, objective: ObjectiveSpec) -> SweepFigure | None:
    rows = [row for row in looks.drawn() if any(objective.metric in report.values for report in row.reports)]
    if not rows:
        return None
    most = max(_FEWEST_POINTS, _MOST_POINTS // len(rows))
    lines = {row.number: _curve(row, objective.metric, most) for row in rows}
    values = [value for points in lines.values() for _, value in points]
    if not values:
        return None
    last = max(step for points in lines.values() for step, _ in points[-1:])
    frame = _FigureFrame(x=axis_of_numbers(last), y=axis_of_metric(values))
    return SweepFigure(
        title=f"{objective.metric} over steps",
        description=f"{len(rows):,} curves, up to step {last:,}, from {figure(min(values))} to {figure(max(values))}.",
        legend=looks.legend("curve", rows),
        width=_WIDTH,
        height=_HEIGHT,
        marks=[
            *frame.lines(),
            *(
                FigureMark(
                    look=f"curve {looks.of_trial(row)}",
                    d=_line(frame, lines[row.number]),
                    title=title_of(row, status),
                    trial=row.number,
                )
                for row in rows
                if lines[row.number]
            ),
        ],
        labels=list(frame.labels("step", _named(objective.metric, frame.y))),
    )


def _curve(row: TrialRow, metric: str, most: int) -> list[tuple[int, float]]:
    curve = Curve(most_points=most)
    for report in row.reports:
        if metric in report.values:
            curve.add(report.step, report.values[metric])
    return [(step, value) for step, value in curve.points if value is not None]


def _line(frame: _FigureFrame, points: Sequence[tuple[int, float]]) -> str:
    first = "h0" if len(points) == 1 else ""  # one value is a dot
    return "M" + " ".join(frame.at(step, value) for step, value in points) + first


def parallel(status: SweepStatus, looks: Looks) -> SweepFigure | None:
    """The values of each trial as a line through axes of all parameters, and of the objectives; None before a trial."""
    rows = looks.drawn()
    if not rows:
        return None
    axes = [axis_of_parameter(parameter) for parameter in status.sweep.space.values()]
    names = list(short_names(list(status.sweep.space)).values())
    found: list[list[Any]] = [[row.values.get(pointer) for pointer in status.sweep.space] for row in rows]
    for one in status.objectives:
        values = [row.objective.get(one.metric) for row in rows]
        axes.append(axis_of_metric([value for value in values if value is not None]))
        names.append(one.metric)
        found = [[*line, value] for line, value in zip(found, values, strict=True)]
    width = max(_WIDTH, _AXIS_WIDTH * len(axes))
    places = [(index + 0.5) * width / len(axes) for index in range(len(axes))]
    return SweepFigure(
        title="Values of all trials",
        description=f"{len(rows):,} trials as lines through the axes {', '.join(names)}.",
        legend=looks.legend("curve", rows),
        width=width,
        height=_HEIGHT,
        marks=[
            *(
                FigureMark(
                    look=f"curve {looks.of_trial(row)}{more}", d=d, title=title_of(row, status), trial=row.number
                )
                for row, line in zip(rows, found, strict=True)
                for more, d in zip(("", " bridge"), _through(axes, places, line), strict=True)
                if d
            ),
            *(FigureMark(look="axis", d=f"M{place:.5g},{_ABOVE}V{_HEIGHT - _BELOW}") for place in places),
        ],
        labels=list(_parallel_labels(axes, names, places)),
    )


def _height(fraction: float) -> float:
    return _HEIGHT - _BELOW - fraction * (_HEIGHT - _BELOW - _ABOVE)


def _through(axes: Sequence[Axis], places: Sequence[float], line: Sequence[Any]) -> tuple[str, str]:
    """A line through neighbouring axes, and the parts of it that pass by axes on which there is no value."""
    points = [
        (index, f"{places[index]:.5g},{_height(axis.fraction(value)):.5g}")
        for index, (axis, value) in enumerate(zip(axes, line, strict=True))
        if value is not None
    ]
    parts = [(other - one == 1, f"M{start} {end}") for (one, start), (other, end) in pairwise(points)]
    return "".join(d for is_near, d in parts if is_near), "".join(d for is_near, d in parts if not is_near)


def _parallel_labels(axes: Sequence[Axis], names: Sequence[str], places: Sequence[float]) -> Iterator[AxisLabel]:
    for axis, name, place in zip(axes, names, places, strict=True):
        short = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
        yield AxisLabel(text=short, x=f"{place:.5g}", y=str(_ABOVE - 24), anchor="middle")
        if axis.is_logarithmic:
            yield AxisLabel(text="logarithmic", x=f"{place:.5g}", y=str(_ABOVE - 10), anchor="middle")
        for at, text in axis.ticks:
            yield AxisLabel(text=text, x=f"{place + 6:.5g}", y=f"{_height(at) + 4:.5g}")
