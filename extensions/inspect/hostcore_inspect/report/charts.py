"""The curves of a run as charts: which are drawn together, and what the script of the page draws anew."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from hostcore.cli.wording import figure
from hostcore_inspect.report.curve import MOST_POINTS, Curve
from hostcore_inspect.report.drawing import DOTTED_UP_TO, DrawnCurve, Picture, PlotMarks, draw, is_rough
from hostcore_inspect.report.recording import PACE, Recording

#: More curves than these are in the table of metrics alone.
_MOST_DRAWN: Final = 600
#: The points of all curves together: what keeps the page small.
_MOST_POINTS_ALL: Final = 40_000
_FEWEST_POINTS: Final = 60
_MOST_MARKS: Final = 500
_PHASES: Final = ("train", "val", "test")
#: The chart that comes first.
LOSS: Final = "loss"


@attrs.frozen(kw_only=True)
class Chart:
    """Curves over one pair of axes."""

    title: str
    #: The curves for people who do not see them.
    description: str
    curves: Sequence[DrawnCurve]
    picture: Picture


@attrs.frozen(kw_only=True)
class Charts:
    """All charts of a run, the loss first, the pace last."""

    charts: Sequence[Chart]
    marks: PlotMarks
    #: Metrics that are not drawn.
    left_out: int
    #: What the signs in the charts mean: those that there are.
    signs: Sequence[str]

    @property
    def data(self) -> dict[str, Any]:
        """Data for the script of the page, as plain JSON."""
        return {
            "last_step": self.marks.last_step,
            "checkpoints": _differences(self.marks.checkpoints),
            "attempts": list(self.marks.attempts),
            "dotted_up_to": DOTTED_UP_TO,
            "plots": [{"title": one.title, "curves": list(map(_curve_data, one.curves))} for one in self.charts],
        }


def charts_of(recording: Recording) -> Charts | None:
    """The charts of a run; None if nothing was measured.

    Where there are many curves, each is thinned for good, so that all together stay below a fixed number of points.
    """
    drawn = list(recording.curves.items())[:_MOST_DRAWN]
    groups = [*_grouped(drawn), *_pace(recording.pace)]
    if not groups:
        return None
    _thin([one.curve for _, curves in groups for one in curves])
    saved = sorted(recording.saved)
    marks = PlotMarks(
        last_step=recording.last_step,
        checkpoints=saved[:: len(saved) // _MOST_MARKS + 1],
        attempts=[(attempt, step) for attempt, step in recording.begun_at.items() if attempt > 1],
    )
    return Charts(
        charts=[
            Chart(
                title=title,
                description="; ".join(map(_in_words, curves)),
                curves=curves,
                picture=draw(curves, marks, large=number == 0),
            )
            for number, (title, curves) in enumerate(groups)
        ],
        marks=marks,
        left_out=len(recording.curves) - len(drawn) + len(recording.curves_left_out),
        signs=_signs(marks, [one.curve for _, curves in groups for one in curves]),
    )


def phase_of(name: str) -> tuple[str, str]:
    """The phase that a metric is of, and its name within it."""
    phase, _, title = name.partition("/")
    return (phase, title) if phase in _PHASES and title else ("train", name)


def _grouped(drawn: Sequence[tuple[str, Curve]]) -> list[tuple[str, list[DrawnCurve]]]:
    """Titles and curves: a metric in training, validation and test is one chart."""
    members: dict[str, list[tuple[str, str, Curve]]] = {}
    for name, curve in drawn:
        phase, title = phase_of(name)
        members.setdefault(title, []).append((phase, name, curve))
    groups = [(title, _roles(curves)) for title, curves in members.items()]
    return sorted(groups, key=lambda group: (group[0] != LOSS, len(group[1]) < 2))


def _roles(members: Sequence[tuple[str, str, Curve]]) -> list[DrawnCurve]:
    drawn: list[DrawnCurve] = []
    for phase, name, curve in sorted(members, key=lambda member: _PHASES.index(member[0])):
        role = "more" if any(one.role == phase for one in drawn) else phase
        drawn.append(DrawnCurve(name=name, role=role, curve=curve))
    return drawn


def _pace(curves: Mapping[str, Curve]) -> list[tuple[str, list[DrawnCurve]]]:
    return [(PACE[name], [DrawnCurve(name=PACE[name], role="pace", curve=curve)]) for name, curve in curves.items()]


def _thin(curves: Sequence[Curve]) -> None:
    if sum(len(curve.points) for curve in curves) > _MOST_POINTS_ALL:
        share = max(_FEWEST_POINTS, min(MOST_POINTS, _MOST_POINTS_ALL // len(curves)))
        for curve in curves:
            curve.thin(share)


def _signs(marks: PlotMarks, curves: Sequence[Curve]) -> list[str]:
    signs = ["The axes count finished steps"]
    if marks.checkpoints:
        signs.append("▲ on the axis is a checkpoint")
    if marks.attempts:
        signs.append("a dashed upright line is where a later attempt began")
    if any(map(is_rough, curves)):
        signs.append("a strong line is the moving average of the pale one")
    if any(curve.means for curve in curves):
        signs.append("long curves are drawn by the lowest and the highest value of each stretch of steps")
    if any(curve.nonfinite for curve in curves):
        signs.append("✕ marks values that were not finite")
    return signs


def _in_words(one: DrawnCurve) -> str:
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


def _curve_data(one: DrawnCurve) -> dict[str, Any]:
    points, means = one.curve.points, one.curve.means
    return {
        "name": one.name,
        "role": one.role,
        "rough": is_rough(one.curve),
        "steps": _differences([step for step, _ in points]),
        "values": [_short(value) for _, value in points],
        "mean_steps": _differences([step for step, _ in means]),
        "means": [_short(value) for _, value in means],
        "nonfinite": _differences(one.curve.nonfinite_steps),
    }


def _differences(steps: Sequence[int]) -> list[int]:
    """Each step less the one before: shorter to write."""
    return [step - before for step, before in zip(steps, [0, *steps], strict=False)]


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
