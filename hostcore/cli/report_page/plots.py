"""Which curves are drawn together: a metric in training, validation and test is one plot."""

from collections.abc import Mapping
from typing import Final

import attrs

from hostcore.cli.report_page.recording import PACE, Recording
from hostcore.cli.report_page.thinning import MOST_POINTS, Curve

#: More curves than these are in the table of metrics alone.
_MOST_DRAWN: Final = 600
#: The points of all curves together: what keeps the page small.
_MOST_POINTS_ALL: Final = 40_000
_FEWEST_POINTS: Final = 60
_PHASES: Final = ("train", "val", "test")
#: The plot that comes first.
LOSS: Final = "loss"


@attrs.frozen(kw_only=True)
class DrawnCurve:
    """A curve in a plot."""

    name: str
    #: ``train``, ``val``, ``test``, ``more`` (a second one of the same phase) or ``pace``: decides about its look.
    role: str
    curve: Curve


@attrs.frozen(kw_only=True)
class Plot:
    """Curves over one pair of axes."""

    title: str
    curves: tuple[DrawnCurve, ...]


def plots_of(recording: Recording) -> tuple[list[Plot], int]:
    """The plots of a run, the loss first, the pace last; and the number of metrics that are not drawn.

    Where there are many curves, each is thinned for good, so that all together stay below a fixed number of points.
    """
    grouped: dict[str, list[tuple[str, str, Curve]]] = {}
    drawn = list(recording.curves.items())[:_MOST_DRAWN]
    for name, curve in drawn:
        phase, title = phase_of(name)
        grouped.setdefault(title, []).append((phase, name, curve))
    plots = [Plot(title=title, curves=_roles(members)) for title, members in grouped.items()]
    plots.sort(key=lambda plot: (plot.title != LOSS, len(plot.curves) < 2))
    plots += _pace(recording.pace)
    shown = [one.curve for plot in plots for one in plot.curves]
    if sum(len(curve.points) for curve in shown) > _MOST_POINTS_ALL:
        share = max(_FEWEST_POINTS, min(MOST_POINTS, _MOST_POINTS_ALL // len(shown)))
        for curve in shown:
            curve.thin(share)
    return plots, len(recording.curves) - len(drawn) + len(recording.curves_left_out)


def phase_of(name: str) -> tuple[str, str]:
    """The phase that a metric is of, and its name within it."""
    phase, _, title = name.partition("/")
    return (phase, title) if phase in _PHASES and title else ("train", name)


def _roles(members: "list[tuple[str, str, Curve]]") -> tuple[DrawnCurve, ...]:
    drawn: list[DrawnCurve] = []
    for phase, name, curve in sorted(members, key=lambda member: _PHASES.index(member[0])):
        role = "more" if any(one.role == phase for one in drawn) else phase
        drawn.append(DrawnCurve(name=name, role=role, curve=curve))
    return tuple(drawn)


def _pace(curves: Mapping[str, Curve]) -> list[Plot]:
    return [
        Plot(title=PACE[name], curves=(DrawnCurve(name=PACE[name], role="pace", curve=curve),))
        for name, curve in curves.items()
    ]
