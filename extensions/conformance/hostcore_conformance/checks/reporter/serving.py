"""Opening, closing, the thread in which it is done, and the end of the process."""

from hostcore_conformance.check import check
from hostcore_conformance.checks.reporter.stage import ServedReporter, Sink, sink_if_any
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.event_fixtures import EventFixtures
from hostcore_conformance.process.isolated import ends_after
from hostcore_conformance.subject import Subject

#: Words of exceptions about being in another thread than the main one.
_OF_THREADS = ("thread", "event loop", "signal")


@check("reporter.serves")
def serves(subject: Subject) -> None:
    """A reporter opens, takes the events of a run and closes, all in one thread that is not the main one.

    The instance is made in the main thread; open, report_event and close are called from a thread of the reporter's
    own, as the host does it. A short run is reported: its submission, its start, metrics and its end. No call may
    raise, and none may take longer than the 30 seconds after which the host reports a hang.

    Usual causes: a signal handler set in open (only the main thread may), asyncio.get_event_loop() (other threads have
    none), a connection that belongs to the thread in which the constructor made it, and settings of the example that
    lead nowhere. Make connections in open, not in the constructor.
    """
    fixtures = EventFixtures(subject)
    events = fixtures.whole()
    with ServedReporter(subject) as reporter:
        for method, arguments in [
            ("open", (fixtures.ctx,)),
            *(("report_event", (event,)) for event in events),
            ("close", ()),
        ]:
            error = reporter.attempt_as_host(method, *arguments)
            if error is not None:
                about_threads = any(word in str(error).lower() for word in _OF_THREADS)
                raise ConformanceError(
                    expected=f"{method} to return, called in a thread that is not the main one",
                    got=subject.in_words(error),
                    fix="A reporter lives in a thread of its own: make connections and event loops in open, and set no"
                    " signal handlers."
                    if about_threads
                    else "See that the example's settings fit the sink that the harness has, or mend what was raised.",
                ) from error


@check("reporter.closes", requires=("reporter.serves",))
def closes(subject: Subject) -> None:
    """A reporter that got no events can be closed.

    A run may end before its first event is reported: an outage of the sink that lasts, or a job that is stopped at
    once. The host calls open and then close. An exception of close is recorded in the run's log as a failure.

    Usual causes: close sends a summary of events that never came, or closes a file that the first event would have
    opened.
    """
    fixtures = EventFixtures(subject)
    with ServedReporter(subject) as reporter:
        reporter.open(fixtures)
        fix = "Let close() do without what the first event makes."
        reporter.require("close", what="a reporter that got no events", fix=fix)


@check(
    "reporter.closes_always",
    level="should",
    variants=("twice", "without_open"),
    requires=("reporter.serves",),
    aliases={
        "reporter.closes_always[twice]": "plugin.closes_twice",
        "reporter.closes_always[without_open]": "plugin.closes_unopened",
    },
)
def closes_always(subject: Subject, variant: str) -> None:
    """Closing does no harm, whatever was before: an open that has failed, or another close.

    The host closes once, and only what it has opened. But a test, an ExitStack or a wrapper may close twice, or after
    an open that raised, and what they report then should be their own error and not a follow-up of close.

    Mend it by setting what close uses to None in the constructor, and again in close.
    """
    fixtures = EventFixtures(subject)
    with ServedReporter(subject) as reporter:
        if variant == "twice":
            reporter.open(fixtures)
            reporter.tell(fixtures.begin())
            reporter.close()
        what = "a reporter that is closed already" if variant == "twice" else "a reporter that was not opened"
        reporter.require("close", what=what, fix="Set what close() uses to None in the constructor and in close().")


@check("reporter.reopens", requires=("reporter.serves",))
def reopens(subject: Subject) -> None:
    """The same instance can be opened again after it was closed, for the next attempt of the run.

    A run that is restarted in the same process opens its reporters again: the instance is the same, attempt is one
    more, and last_seq is the number of the last event before. The events of the second attempt are reported, and must
    be taken.

    Usual causes: the connection is made in the constructor, and gone after close; a thread object is started twice;
    state of the first attempt stands in the way of the second. Make in open all that close takes away.
    """
    fixtures = EventFixtures(subject)
    with ServedReporter(subject) as reporter:
        reporter.open(fixtures)
        reporter.tell(fixtures.whole())
        reporter.close()
        fixtures.next_attempt()
        fix = "Make in open() all that close() takes away, and begin anew with the state of an attempt."
        reporter.require("open", fixtures.ctx, what="the second attempt, after close()", fix=fix)
        for event in fixtures.whole():
            reporter.require("report_event", event, what=f"the event {event.name} of the second attempt", fix=fix)
        reporter.close()


@check("reporter.starts_anywhere", requires=("reporter.serves",))
def starts_anywhere(subject: Subject) -> None:
    """A reporter may begin in the middle of a run, and need not have seen the events before.

    A new instance gets the second half of a run: its first event is metrics, and its number is not
    1. So it is after a crash (reported events are not reported again), with LIVE_ONLY, and with `hostcore replay`.
    The numbers have no gap while one attempt is reported, but the first of them can be any.

    Usual causes: what run_submitted brings is needed by all other events, or `assert event.seq == last + 1`.
    """
    fixtures = EventFixtures(subject)
    fixtures.begin()
    fixtures.train()
    fixtures.next_attempt()
    events = fixtures.train()[2:] + fixtures.end()
    with ServedReporter(subject) as reporter:
        reporter.open(fixtures)
        for event in events:
            reporter.require(
                "report_event",
                event,
                what=f"the event {event.name} with seq {event.seq}; the first one that it gets has {events[0].seq}",
                fix="Do not count on having seen the events before: take what is missing from ctx, or do without.",
            )
        reporter.close()


@check("reporter.exits", requires=("reporter.serves",))
def exits(subject: Subject) -> None:
    """A process that has closed its reporter ends, and what was reported is at the sink.

    A process of its own reports a short run, closes the reporter, and comes to its end at once, as `hostcore run`
    does. It must end within ten seconds with exit code 0; with a harness, all events must be at the sink.

    Usual causes: a thread that is neither joined in close nor a daemon keeps the process; a thread that is a daemon is
    killed with what it had not sent yet; a client sends what it holds when it is collected, which may never be.
    """
    fixtures = EventFixtures(subject)
    events = fixtures.whole()
    sink = sink_if_any(subject, fixtures)
    _depart(subject, fixtures)
    if sink is None:
        return
    if not sink.seqs:
        # Is it the sink of this process alone, which no other can reach? Then the end was all there is to see.
        second = EventFixtures(subject)
        second.whole()
        sink_of_second = Sink(subject, second)
        _depart(subject, second, linger_seconds=1.0)
        if not sink_of_second.seqs:
            return
    sink.require(
        events,
        when="after a process that ended right after close()",
        fix="Send in close() what is still to be sent, and wait for it: daemon threads die with the process.",
    )


def _depart(subject: Subject, fixtures: EventFixtures, *, linger_seconds: float = 0.0) -> None:
    told = [("report_event", (event,)) for event in fixtures.events]
    calls = [("open", (fixtures.ctx,)), *told, ("close", ())]
    ends_after(subject, calls, linger_seconds=linger_seconds)
