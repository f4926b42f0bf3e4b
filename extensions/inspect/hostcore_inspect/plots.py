"""The curves of runs as pictures."""

from collections.abc import Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from hostcore.events.kinds import MEASURED
from hostcore.events.reader import GrowingLog, name_of
from hostcore_builtin_plugins.control_characters import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The metric that is drawn when none is named.
LOSS: Final = "train/loss"
#: The metric that is drawn beside it.
VALIDATION_LOSS: Final = "val/loss"
#: With fewer points the average lags so far behind that it looks worse than the run.
_SMOOTHED_FROM: Final = 60

Points = list[tuple[int, float]]
"""Step and value of every recorded step, in order."""


def all_points(events: Path, names: Container[str] | None = None) -> dict[str, Points]:
    """The metrics of a run; of a step that was trained twice, the last. What is not finite is left out.

    :param events: The run's event log; it may not exist yet.
    :param names: Those wanted; None for every metric.
    """
    points: dict[str, dict[int, float]] = {}
    for line in GrowingLog(events).read():
        if name_of(line) not in MEASURED:
            continue
        event = orjson.loads(line)
        for name, value in event["metrics"].items():
            if value is not None and (names is None or name in names):
                points.setdefault(name, {})[event["step"]] = value
    return {name: sorted(each.items()) for name, each in points.items()}


def smooth(values: list[float], *, weight: float) -> list[float]:
    """The exponential moving average, with the bias towards its start corrected (as in Adam)."""
    average, smoothed = 0.0, []
    for count, value in enumerate(values, start=1):
        average = weight * average + (1 - weight) * value
        smoothed.append(average / (1 - weight**count))
    return smoothed


def plot_loss(events: Path, picture: Path, *, title: str) -> bool:
    """Draw the curve of the training loss, and beside it that of the validation.

    :param events: The run's event log.
    :param picture: The PNG to write; its folder is made.
    :return: False if there is no curve to draw.
    """
    found = all_points(events, [LOSS, VALIDATION_LOSS])
    points, validated = found.get(LOSS, []), found.get(VALIDATION_LOSS, [])
    if max(len(points), len(validated)) < 2:
        return False
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    if points:
        _draw_curve(axes, points, color="C0", label=LOSS)
    if len(points) >= _SMOOTHED_FROM:
        _draw_smoothed(axes, points, color="C0", label="smoothed")
    if validated:  # means over all of its data: nothing to smooth
        axes.plot(*zip(*validated, strict=True), color="C1", marker=".", linewidth=1.8, label=VALIDATION_LOSS)
    axes.set(title=title, xlabel="step", ylabel="loss")
    axes.grid(alpha=0.3)
    axes.legend()
    picture.parent.mkdir(exist_ok=True)
    _save(figure, picture)
    return True


def plot_curves(curves: Mapping[str, Mapping[str, Points]], picture: Path) -> None:
    """Draw metrics of several runs, one below the other.

    :param curves: For each metric, at least one of them, the points of every run by the run's name.
    :param picture: The PNG to write; its folder is there.
    :raises OSError: When it cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1 + 3.5 * len(curves)), layout="constrained")
    for axes, (metric, runs) in zip(figure.subplots(len(curves), squeeze=False)[:, 0], curves.items(), strict=True):
        for number, (run, points) in enumerate(runs.items()):
            if len(points) < _SMOOTHED_FROM:
                _draw_curve(axes, points, color=f"C{number}", label=run)
            else:
                _draw_curve(axes, points, color=f"C{number}", label=None)
                _draw_smoothed(axes, points, color=f"C{number}", label=f"{run} (smoothed)")
        axes.set(xlabel="step")
        # Fonts have no control characters, and matplotlib warns of each; what stands between two $ is no formula.
        axes.set_ylabel(visible(metric, one_line=True), parse_math=False)
        axes.grid(alpha=0.3)
        axes.legend()
    _save(figure, picture)


def _draw_curve(axes: "Axes", points: Points, *, color: str, label: str | None) -> None:
    """Draw every point; pale, if there are so many that their average shows more."""
    steps, values = zip(*points, strict=True) if points else ((), ())
    if len(points) < _SMOOTHED_FROM:
        axes.plot(steps, values, color=color, marker=".", label=label)
    else:
        axes.plot(steps, values, color=color, alpha=0.3, linewidth=1, label=label)


def _draw_smoothed(axes: "Axes", points: Points, *, color: str, label: str) -> None:
    steps, values = [step for step, _ in points], [value for _, value in points]
    axes.plot(steps, smooth(values, weight=0.9), color=color, linewidth=1.8, label=label)


def _save(figure: "Figure", picture: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    try:
        FigureCanvasAgg(figure).print_png(str(picture))  # type: ignore[no-untyped-call]
    except OSError:
        picture.unlink(missing_ok=True)  # on a full disk, half a picture would take the room of the run's result
        raise
