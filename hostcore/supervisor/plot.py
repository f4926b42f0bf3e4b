"""The loss curve of a run as a picture."""

from pathlib import Path

import orjson

_MARK = b'"event":"metrics"'
_LOSS = "train/loss"
#: With fewer points the average lags so far behind that it looks worse than the run.
_SMOOTHED_FROM = 60


def loss_points(events: Path) -> list[tuple[int, float]]:
    """Step and training loss of every recorded step, in order; of a step that was trained twice, the last."""
    points: dict[int, float] = {}
    with events.open("rb") as log:
        for line in log:
            if _MARK in line and line.endswith(b"\n"):
                event = orjson.loads(line)
                loss = event["metrics"].get(_LOSS)
                if loss is not None:
                    points[event["step"]] = loss
    return sorted(points.items())


def smooth(values: list[float], *, weight: float) -> list[float]:
    """The exponential moving average, with the bias towards its start corrected (as in Adam)."""
    average, smoothed = 0.0, []
    for count, value in enumerate(values, start=1):
        average = weight * average + (1 - weight) * value
        smoothed.append(average / (1 - weight**count))
    return smoothed


def plot_loss(events: Path, picture: Path, *, title: str) -> bool:
    """Draw the loss curve.

    :param events: The run's event log.
    :param picture: The PNG to write; its folder is made.
    :return: False if there is no loss to draw.
    """
    points = loss_points(events)
    if len(points) < 2:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    steps, losses = [step for step, _ in points], [loss for _, loss in points]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    if len(points) < _SMOOTHED_FROM:
        axes.plot(steps, losses, color="C0", marker=".", label="loss")
    else:
        axes.plot(steps, losses, color="C0", alpha=0.3, linewidth=1, label="loss")
        axes.plot(steps, smooth(losses, weight=0.9), color="C0", linewidth=1.8, label="smoothed")
    axes.set(title=title, xlabel="step", ylabel=_LOSS)
    axes.grid(alpha=0.3)
    axes.legend()
    picture.parent.mkdir(exist_ok=True)
    try:
        FigureCanvasAgg(figure).print_png(str(picture))  # type: ignore[no-untyped-call]
    except OSError:
        picture.unlink(missing_ok=True)  # on a full disk, half a picture would take the room of the run's result
        raise
    return True
