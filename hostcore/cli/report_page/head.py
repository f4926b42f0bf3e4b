"""The head of the page: what became of the run."""

from collections.abc import Iterator, Sequence
from typing import Final

from hostcore.cli.report import go_on
from hostcore.cli.report_page.markup import Html, element, facts, join, shortened
from hostcore.cli.report_page.plots import LOSS, phase_of
from hostcore.cli.wording import NOTHING, ago, best_of, by_phase, figure, lasting, steps_of, warnings_of
from hostcore.events.times import moment
from hostcore.runs.history import total_seconds
from hostcore.supervisor.standing import Standing
from hostcore_builtin_plugins.progress import format_devices, format_duration, format_rate

_MOST_METRICS: Final = 8
_LONGEST_VERDICT: Final = 500


def head_section(standing: Standing, now: int) -> Html:
    """Status, reason, steps, times, best, and how to go on.

    :param now: Milliseconds since 1970.
    """
    summary = standing.summary
    return join(
        element(
            "h1",
            element("span", summary.status, class_=f"status {summary.status}"),
            " ",
            element("span", summary.run_id, class_="name"),
        ),
        _verdict(standing),
        _warnings(standing),
        _fraction(standing),
        facts(list(_facts(standing, now))),
    )


def time_of(time_ms: int) -> Html:
    """A moment, for people in local time and for programs in UTC.

    :param time_ms: Milliseconds since 1970.
    """
    from datetime import UTC, datetime

    try:
        exact = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
        return element("time", moment(time_ms), datetime=exact)
    except (OverflowError, ValueError, OSError):  # no clock says so
        return element("span", str(time_ms))


def _verdict(standing: Standing) -> Html | None:
    """In one line, why it is not simply done."""
    if standing.error:
        first = standing.error.message.partition("\n")[0]
        told = element("bdi", element("b", standing.error.type), f": {shortened(first, _LONGEST_VERDICT)}")
        return element("p", told, " ", element("a", "More", href="#failure"), class_="verdict")
    why = standing.lost or standing.reason
    return element("p", shortened(why, _LONGEST_VERDICT), class_="verdict") if why else None


def _warnings(standing: Standing) -> Html | None:
    """What the status does not say."""
    if not standing.warnings:
        return None
    lines = [
        element("p", element("b", f"{name.capitalize()}: "), shortened(text, _LONGEST_VERDICT))
        for name, text in warnings_of(standing.warnings)
    ]
    return element("div", *lines, class_="warnings", id="run-warnings")


def _fraction(standing: Standing) -> Html | None:
    summary = standing.summary
    if not summary.max_steps:
        return None
    label = f"{steps_of(summary.step, summary.max_steps)} steps"
    return element(
        "progress", label, value=min(summary.step, summary.max_steps), max=summary.max_steps, aria_label=label
    )


def _facts(standing: Standing, now: int) -> Iterator[tuple[str, str]]:
    summary, result = standing.summary, standing.result
    yield "Trainer", element("code", summary.trainer)
    if standing.parent:
        yield "Begun from", element("code", standing.parent)
    yield "Steps", ", ".join(_pace(standing))
    yield "Time", _duration(standing, now)
    yield "Submitted", join(time_of(summary.submitted_ms), f", {ago(summary.submitted_ms, now)}")
    if summary.ended_ms is not None:
        yield "Ended", join(time_of(summary.ended_ms), f", {ago(summary.ended_ms, now)}")
    if standing.devices:
        yield "Devices", format_devices(standing.devices)
    if result and result.best:
        yield "Best", best_of(result.best)
    for name in _foremost(list(by_phase(standing.metrics))):
        yield name, figure(standing.metrics[name])
    if result and result.requested_by:
        yield "Asked to stop by", result.requested_by
    if standing.can_go_on:
        yield "To go on", element("code", go_on(standing.directory)[1])
    yield "Run directory", element("code", str(standing.directory.path))


def _foremost(names: Sequence[str]) -> list[str]:
    """The metrics that matter most: the losses, and what was measured in several phases; the table has the others."""
    titles = [phase_of(name)[1] for name in names]
    chosen = [name for name, title in zip(names, titles, strict=True) if title == LOSS or titles.count(title) > 1]
    return (chosen or list(names))[:_MOST_METRICS]


def _duration(standing: Standing, now: int) -> str:
    attempts = standing.attempts
    if len(attempts) > 1:
        return f"{lasting(total_seconds(attempts, now))} in {len(attempts)} attempts"
    return lasting(attempts[0].seconds(now)) if attempts else NOTHING


def _pace(standing: Standing) -> Iterator[str]:
    summary, progress = standing.summary, standing.progress
    share = f" ({min(1.0, summary.step / summary.max_steps):.0%})" if summary.max_steps else ""
    yield f"{steps_of(summary.step, summary.max_steps)}{share}"
    if progress.samples_per_second is not None:
        yield f"{format_rate(progress.samples_per_second)} samples/s"
    if summary.status == "running" and progress.eta_seconds is not None:
        yield f"eta {format_duration(progress.eta_seconds)}"
