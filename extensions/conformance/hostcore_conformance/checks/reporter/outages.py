"""Checks of outages: while its sink refuses or does not answer, a reporter raises, soon, and loses nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hostcore_conformance.check import check
from hostcore_conformance.checks.reporter.stage import ServedReporter, harness_can, sink_if_any
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.event_fixtures import EventFixtures
from hostcore_conformance.secret_search import all_that_it_says, no_secret, require_hidden, secrets_of
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.errors import FatalError

_WHY: Final = {
    "refuse": "after which the sink refuses, or is gone",
    "hang": "after which the sink takes connections and answers nothing",
}


@contextmanager
def _trouble(subject: Subject, name: str) -> Iterator[None]:
    """Trouble at the sink, for a while.

    :raises NotApplicable: The harness cannot make any.
    """
    begin, heal = harness_can(subject, name, _WHY[name]), harness_can(subject, "heal", "after which all is well again")
    begin()
    try:
        yield
    finally:
        heal()


@check("reporter.outage", variants=("open", "report_event"), requires=("reporter.serves",))
def outage(subject: Subject, moment: str) -> None:
    """While the sink refuses, the reporter raises or holds its events; when it is back, nothing is lost.

    The harness makes the sink refuse (refuse()), when the reporter opens or in the middle of a run. What is called then
    may return or raise, but not FatalError: that means that the reporter gets no more events in this attempt, and an
    outage passes. Then the sink is well again (heal()), what has failed is called again with the same event, as the
    host does it, the rest is reported, and after close every event must be at the sink.

    Usual causes: `except Exception: pass`, or a log message in place of the error; FatalError for a connection that is
    refused or an answer of 503; a broken connection that is used again. Raise TransientError, or let the client's own
    exception through.
    """
    fixtures = EventFixtures(subject)
    events = fixtures.whole()
    sink = sink_if_any(subject, fixtures)
    with ServedReporter(subject) as reporter:
        if moment == "report_event":
            reporter.open(fixtures)
            reporter.tell(events[:3])
        with _trouble(subject, "refuse"):
            opened = reporter.error("open", fixtures.ctx) if moment == "open" else None
            told = reporter.error("report_event", events[3]) if moment == "report_event" else None
        for method, error in (("open", opened), ("report_event", told)):
            _require_not_fatal(subject, method, error, trouble="the sink refused")
        reporter.insist("open", fixtures.ctx, first=opened)
        reporter.insist("report_event", events[3], first=told)
        reporter.tell_patiently(events if moment == "open" else events[4:])
        reporter.close()
    if sink is not None:
        sink.require(
            events,
            when=f"after an outage in {moment}, when {moment} had raised and was called again"
            if opened or told
            else f"after an outage in which {moment} returned as if all were well",
            fix="Raise the sink's error (TransientError): the host reports the same event again until report_event"
            " returns.",
        )


def _require_not_fatal(subject: Subject, method: str, error: BaseException | None, *, trouble: str) -> None:
    if isinstance(error, FatalError):
        raise ConformanceError(
            expected=f"{method} to raise TransientError, or any other error that is not fatal, while {trouble}",
            got=subject.in_words(error),
            fix="FatalError ends the reporter for the whole attempt. Keep it for what no other try can mend, such as a"
            " wrong password.",
        ) from error


@check("reporter.hang", requires=("reporter.serves",))
def hang(subject: Subject) -> None:
    """While the sink takes connections and answers nothing, a call comes back in time, and the event is not lost.

    The harness makes the sink hang (hang()), and an event is reported. The call must end within 30 seconds, which is
    when the host reports a hang: by raising anything but FatalError, or by returning. Then the sink is well again, the
    same event is reported once more if it had raised, and after close all are there.

    Usual causes: a client without timeouts, which most are by default; a timeout that is tried again many times
    within the call; a timeout that becomes a FatalError. Make the timeout a setting, and short in the example (below a
    second), so that this check is quick. patience_seconds of the harness sets how long the kit waits.
    """
    fixtures = EventFixtures(subject)
    events = fixtures.whole()
    sink = sink_if_any(subject, fixtures)
    with ServedReporter(subject) as reporter:
        reporter.open(fixtures)
        reporter.tell(events[:3])
        with _trouble(subject, "hang"):
            error = reporter.error("report_event", events[3])
        _require_not_fatal(subject, "report_event", error, trouble="the sink answers nothing")
        reporter.insist("report_event", events[3], first=error)
        reporter.tell_patiently(events[4:])
        reporter.close()
    if sink is not None:
        fix = "Raise TransientError when the time is over: the host reports the same event again."
        sink.require(events, when="after the sink had answered nothing for a while", fix=fix)


@check("reporter.hides_secrets", requires=("reporter.serves",), capability=no_secret)
def hides_secrets(subject: Subject) -> None:
    """No secret of the settings is in what arrives, nor in what the reporter raises.

    The secrets are those that the example's settings refer to ({"$secret": "env:NAME"}). They are looked for in what
    the harness shows, and in the message and hint of what report_event raises while the sink refuses (refuse()), since
    those are in the run's log for everybody to read.

    Usual causes: a URL with a token or a password in the text of a client's exception, headers in an error message,
    and settings that are sent along with the run. Write a message of your own, and name the server without the secret.
    """
    secrets = secrets_of(subject)
    fixtures = EventFixtures(subject)
    begin, events = fixtures.begin(), fixtures.train()
    texts: dict[str, str] = {}
    with ServedReporter(subject) as reporter:
        reporter.open(fixtures)
        reporter.tell([*begin, events[0]])
        if callable(getattr(subject.harness, "refuse", None)):
            with _trouble(subject, "refuse"):
                error = reporter.error("report_event", events[1])
            texts["what report_event raised"] = all_that_it_says(error)
            reporter.insist("report_event", events[1], first=error)
        reporter.close()
    if callable(getattr(subject.harness, "received", None)):
        texts["what has arrived"] = repr(subject.harness.received())
    if not texts:
        raise NotApplicable("there is no harness that shows what arrives, or makes the sink refuse", wants_example=True)
    require_hidden(secrets, texts)
