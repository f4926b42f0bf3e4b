"""Checks of events: every event is taken, whatever its contents, and also those of a later contract."""

from collections.abc import Mapping

import attrs

from hostcore_conformance.check import check
from hostcore_conformance.checks.reporter.stage import ServedReporter
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.event_fixtures import BARE, FULL, EventFixtures, later
from hostcore_conformance.subject import Subject
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.events import ENDS, PAYLOADS, Event, Payload

#: The events without data, or with the place of something only: there is no shorter form of them.
_BEGIN = ("run_submitted", "run_resumed", "run_started")
_LONG = "x" * 100_000
_ODD = "日本語 🙂 'quoted' \"twice\" \\ \x00 \x1b[31m <b>&amp; %s {0}"
_MANY = {f"layer_{number}/norm": 1.0 / (1 + number) for number in range(1000)}


@check("reporter.takes", variants=tuple(PAYLOADS), requires=("reporter.serves",))
def takes(subject: Subject, name: str) -> None:
    """An event of this name is taken, with all of its fields and with as few as there may be.

    Two runs of four attempts each have every kind of event; in the second, whatever is optional is None and whatever
    may be empty is empty. Telling this event must not raise.

    Usual causes: a table of handlers without this name, a field that is taken for granted and is None (the reason of
    an end, the throughput of the first metrics), formatting None as a number, and max() of no metrics.
    """
    outcomes = subject.shared("reporter.takes", lambda: _outcomes(subject))
    for form in ("full", "bare"):
        error = outcomes[form, name]
        if error is not None:
            payload = (FULL if form == "full" else BARE)[name]
            raise ConformanceError(
                expected=f"report_event to take the event {name}, as {payload!r}",
                got=error if isinstance(error, str) else subject.in_words(error),
                fix="Take what you show from the fields that are there; what is None or empty has nothing to show.",
            ) from (None if isinstance(error, str) else error)


class Outcomes:
    """Outcomes of events, each reported whatever came of those before.

    :param reporter: Opened.
    """

    def __init__(self, reporter: ServedReporter) -> None:
        self.found: dict[str, BaseException | str | None] = {}
        #: Why nothing can be reported any more.
        self.hung = ""
        self._reporter = reporter

    def take(self, name: str, event: Event) -> None:
        """Report an event."""
        error: BaseException | str | None = self.hung or None
        if not self.hung:
            try:
                error = self._reporter.attempt_as_host("report_event", event)
            except ConformanceError as hangs:
                error = hangs.got
                self.hung = f"nothing could be reported after the event {event.name}, whose call did not come back"
        self.found[name] = self.found.get(name) or error


def _outcomes(subject: Subject) -> Mapping[tuple[str, str], BaseException | str | None]:
    """Return the outcome of each event, by its form and name."""
    found: dict[tuple[str, str], BaseException | str | None] = {}
    for form, payloads in (("full", FULL), ("bare", BARE)):
        fixtures, hung = EventFixtures(subject), ""
        middle = [name for name in payloads if name not in {*_BEGIN, *ENDS}]
        for attempt, end in enumerate([*sorted(ENDS - {"run_succeeded"}), "run_succeeded"]):
            if attempt > 0:
                fixtures.next_attempt()
            begin = [name for name in _BEGIN if attempt > 0 or name != "run_resumed"]
            with ServedReporter(subject) as reporter:
                reporter.open(fixtures)
                outcomes = Outcomes(reporter)
                outcomes.hung = hung
                for name in [*begin, *middle, end]:
                    outcomes.take(name, fixtures.add(payloads[name], step=None if name == "run_submitted" else 20))
            hung = outcomes.hung
            for name, error in outcomes.found.items():
                found[form, name] = found.get((form, name)) or error
    return found


_EXTREMES: Mapping[str, tuple[Payload, int | None]] = {
    "nonfinite": (
        events.Metrics(metrics={"train/loss": None, "train/lr": None}, nonfinite=("train/loss", "train/lr")), 20
    ),
    "no_step": (events.Warning(code="feed.slow", message="before the first step"), None),
    "huge_step": (events.Metrics(metrics={"train/loss": 0.5, "train/tokens": 1e300, "train/eps": 5e-324}), 2**40),
    "unicode": (
        events.Metrics(metrics={"train/größe": 1.0, "日本語 🙂": 2.0, 'a "quoted"\\name\nof two lines': 3.0}), 20
    ),
    "unicode_text": (events.Warning(code="größe", message=_ODD), 20),
    "long_text": (events.Warning(code="long", message=f"{_LONG}\n{_LONG}"), 20),
    "many_metrics": (events.Metrics(metrics=_MANY), 20),
    "deep_error": (
        events.RunFailed(error=RunError(type="ValueError", message=_LONG, traceback=f"Traceback\n{_LONG}")), 20
    ),
}  # fmt: skip


@check("reporter.extremes", variants=tuple(_EXTREMES), requires=("reporter.serves",))
def extremes(subject: Subject, variant: str) -> None:
    """Values of real runs are taken: values that are not finite, text of any kind and length, any step.

    nonfinite: every metric is None, as it is where a loss was NaN (nonfinite has the names). no_step: step and epoch
    are None. huge_step: 2**40, a value of 1e300 and one of 5e-324. unicode, unicode_text: names and messages with
    umlauts, emoji, quotes, line breaks, NUL and markup. long_text, deep_error: 8 KiB of message, 32 KiB of traceback,
    the most that the host passes on of longer ones.
    many_metrics: a thousand in one event.

    Usual causes: float(None), a column of 32 bits, a file opened without encoding="utf-8", markup that is interpreted,
    and the limits of a server on the length of names and texts: cut what is too long, replace what it does not take.
    """
    payload, step = _EXTREMES[variant]
    error = subject.shared("reporter.extremes", lambda: _outcomes_of_extremes(subject))[variant]
    if error is not None:
        raise ConformanceError(
            expected=f"report_event to take the event {payload!r:.160}…, at step {step}",
            got=error if isinstance(error, str) else subject.in_words(error),
            fix="The value is one that real runs have. Cut what is too long for your sink, replace characters that it"
            " does not take, and show None as missing or NaN.",
        ) from (None if isinstance(error, str) else error)


def _outcomes_of_extremes(subject: Subject) -> Mapping[str, BaseException | str | None]:
    """Report each of them, one after the other; return the outcomes."""
    fixtures = EventFixtures(subject)
    with ServedReporter(subject) as reporter:
        reporter.open(fixtures)
        reporter.tell(fixtures.begin())
        outcomes = Outcomes(reporter)
        for variant, (payload, step) in _EXTREMES.items():
            outcomes.take(variant, fixtures.add(payload, step=step, epoch=None if step is None else 1))
    return outcomes.found


@attrs.frozen(kw_only=True)
class GpuThrottled:
    """An event that does not exist."""

    device: str
    celsius: float


@attrs.frozen(kw_only=True)
class LaterMetrics(events.Metrics):
    """Metrics with a field that does not exist."""

    tokens_per_second: Mapping[str, float] = attrs.field(factory=dict)


@check("reporter.later", variants=("event", "field"), requires=("reporter.serves",))
def later_contract(subject: Subject, variant: str) -> None:
    """An event or a field that a later version of the contract adds is passed over.

    Events are added in minor versions of the contract, and so are fields. A reporter that was written before gets
    them too: an event called gpu_throttled with a payload of an unknown class, or metrics with one field more. It may
    write them as they are (event.as_dict() knows all fields), or pass them over; it must not raise, since the host
    would report the same event for ever.

    Usual causes: a table of handlers indexed by event.name, `case _: raise`, a row with a fixed number of columns,
    a class of one's own that is made with **event.as_dict().
    """
    fixtures = EventFixtures(subject)
    with ServedReporter(subject) as reporter:
        reporter.open(fixtures)
        reporter.tell(fixtures.begin())
        if variant == "event":
            event: Event = later(
                fixtures.add(FULL["progress"]), "gpu_throttled", GpuThrottled(device="0", celsius=99.0)
            )
            what = "an event of a later contract, gpu_throttled"
        else:
            payload = LaterMetrics(metrics={"train/loss": 0.5}, tokens_per_second={"cuda:0": 10.0})
            event = later(fixtures.add(FULL["metrics"]), "metrics", payload)
            what = "metrics with a field of a later contract, tokens_per_second"
        fix = "Pass over what you do not know: HANDLERS.get(event.name), `case _: return`, no fixed set of fields."
        reporter.require("report_event", event, what=what, fix=fix)
        reporter.tell(fixtures.end())
        reporter.close()
