"""The curves: plots, what the script needs to draw them anew, and all of it as a table."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hostcore.cli.report_page.drawing import DOTTED_UP_TO, SMOOTHING, Marks, draw, is_rough
from hostcore.cli.report_page.markup import Html, data, element, join, table
from hostcore.cli.report_page.plots import DrawnCurve, Plot, plots_of
from hostcore.cli.report_page.recording import Recording
from hostcore.cli.wording import NOTHING, figure

#: The first plots are shown at once; the others have to be opened.
_SHOWN_AT_ONCE: Final = 12
_MOST_MARKS: Final = 500


def curves_section(recording: Recording) -> Html | None:
    """The curves of a run; None if nothing was measured."""
    plots, left_out = plots_of(recording)
    if not plots:
        return None
    marks = _marks(recording)
    figures = [_figure(plot, marks, number=number) for number, plot in enumerate(plots)]
    rest = len(figures) - _SHOWN_AT_ONCE
    return join(
        _controls(),
        _explanation(marks, plots),
        element("div", *figures[:_SHOWN_AT_ONCE], class_="plots"),
        element(
            "details",
            element("summary", f"{rest:,} more {'plot' if rest == 1 else 'plots'}"),
            element("div", *figures[_SHOWN_AT_ONCE:], class_="plots"),
            id="more-plots",
        )
        if rest > 0
        else None,
        element("p", f"{left_out:,} more metrics are not drawn.", class_="note") if left_out else None,
        _table(recording),
        data("data", _data(plots, marks)),
    )


def _marks(recording: Recording) -> Marks:
    saved = sorted(recording.saved)
    return Marks(
        last_step=recording.last_step,
        checkpoints=saved[:: len(saved) // _MOST_MARKS + 1],
        attempts=[(attempt, step) for attempt, step in recording.begun_at.items() if attempt > 1],
    )


def _controls() -> Html:
    """What the script offers; hidden where there is none."""
    number = {"type": "number", "min": "0", "step": "1", "inputmode": "numeric"}
    return element(
        "div",
        element("label", "Find a metric ", element("input", type="search", id="find")),
        element(
            "label",
            "Smoothing of rough curves ",
            element("input", type="range", id="smoothing", min="0", max="0.99", step="0.01", value=SMOOTHING),
        ),
        element("label", element("input", type="checkbox", id="log"), " Logarithmic"),
        element("label", "Steps from ", element("input", id="from", **number)),
        element("label", "to ", element("input", id="to", **number)),
        element("button", "All steps", type="button", id="reset"),
        element("p", "Drag across a plot to look closer at these steps, in all plots.", class_="note"),
        class_="controls",
        id="controls",
        role="group",
        aria_label="How the curves are shown",
        hidden=True,
    )


def _explanation(marks: Marks, plots: Sequence[Plot]) -> Html:
    """What the signs in the plots mean: those that there are."""
    curves = [one.curve for plot in plots for one in plot.curves]
    signs = []
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
    return element("p", "; ".join(["The axes count finished steps", *signs]) + ".", class_="note")


def _figure(plot: Plot, marks: Marks, *, number: int) -> Html:
    keys = [
        element(
            "li",
            element("span", one.name, class_=f"key {one.role}"),
            " ",
            element("b", NOTHING if one.curve.last is None else figure(one.curve.last[1]), class_="reading"),
        )
        for one in plot.curves
    ]
    return element(
        "figure",
        element("figcaption", element("h3", plot.title), element("ul", *keys, class_="legend")),
        draw(plot, marks, number=number, large=number == 0),
        class_="plot large" if number == 0 else "plot",
        data_plot=number,
    )


def _table(recording: Recording) -> Html:
    rows: list[list[str | None]] = []
    for name, curve in recording.curves.items():
        last, lowest, highest = curve.last, curve.lowest, curve.highest
        rows.append(
            [
                name,
                NOTHING if last is None else figure(last[1]),
                NOTHING if last is None else f"{last[0]:,}",
                *([figure(lowest[1]), f"{lowest[0]:,}"] if lowest else [NOTHING, NOTHING]),
                *([figure(highest[1]), f"{highest[0]:,}"] if highest else [NOTHING, NOTHING]),
                f"{curve.count:,}",
                f"{curve.nonfinite:,}" if curve.nonfinite else NOTHING,
            ]
        )
    if not rows:
        return Html()
    head = ["Metric", "Last", "at step", "Lowest", "at step", "Highest", "at step", "Values", "Not finite"]
    return element(
        "details",
        element("summary", f"{len(rows):,} metrics in numbers"),
        table("Metrics", head, rows, numeric=frozenset(range(1, len(head)))),
        open=len(rows) <= _SHOWN_AT_ONCE,
    )


def _data(plots: Sequence[Plot], marks: Marks) -> dict[str, Any]:
    return {
        "last_step": marks.last_step,
        "checkpoints": _differences(marks.checkpoints),
        "attempts": list(marks.attempts),
        "dotted_up_to": DOTTED_UP_TO,
        "plots": [{"title": plot.title, "curves": [_curve(one) for one in plot.curves]} for plot in plots],
    }


def _curve(one: DrawnCurve) -> Mapping[str, Any]:
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
