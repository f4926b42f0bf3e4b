"""Checks of delivery: every event arrives, in order, unchanged, and once."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hostcore_conformance.check import check
from hostcore_conformance.checks.reporter.stage import ServedReporter, Sink, report, sink_if_any, spans
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.event_fixtures import FULL, EventFixtures
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.events import Event

#: Fields that are not compared: a reporter may name things otherwise than the events do.
_COMPARED = ("seq", "event", "run_id", "attempt", "step", "epoch", "metrics", "message", "reason", "path")


@check("reporter.arrives", requires=("reporter.serves",))
def arrives(subject: Subject) -> None:
    """Every reported event is at the sink after close.

    A run of twenty metrics with a beginning and an end is reported, the reporter is closed, and the harness is asked
    what has arrived. Where the sink has a place for some events alone, the harness names them (keeps = {"metrics"}).

    Usual causes: a buffer that is written when it is full, and not in close; a thread that sends in the background and
    drops what fails; an error of the sink that is caught and forgotten.
    """
    fixtures = EventFixtures(subject)
    sink = Sink(subject, fixtures)
    events = fixtures.whole(20)
    report(subject, fixtures, events)
    fix = "Write in close() what is still in a buffer, wait for threads that send, and raise the sink's errors."
    sink.require(events, when="after close()", fix=fix)


@check("reporter.keeps_order", requires=("reporter.arrives",))
def keeps_order(subject: Subject) -> None:
    """The sink has the events in the order of their numbers.

    The harness shows what has arrived in the order of arrival, or as the sink sorts it; either way seq must rise.
    The host never reports an event before the one in front of it was taken.

    Usual causes: several threads or connections that send at once, a buffer that is sent from its end, and failed
    events that are put behind those that came after.
    """
    fixtures = EventFixtures(subject)
    sink = Sink(subject, fixtures)
    events = fixtures.whole(20)
    report(subject, fixtures, events)
    sink.require(events, when="after close()", fix="Flush in close().")
    seqs = sink.seqs
    if seqs != sorted(seqs):
        place = next(at for at in range(1, len(seqs)) if seqs[at] < seqs[at - 1])
        raise ConformanceError(
            expected="the events at the sink in the order of seq",
            got=f"seq {seqs[place]} after seq {seqs[place - 1]}, in {seqs}",
            fix="Send one event after the other, over one connection, and before report_event returns.",
        )


@check("reporter.faithful", requires=("reporter.arrives",))
def faithful(subject: Subject) -> None:
    """Arrived events have the contents of the reported ones.

    Where the harness shows more of what has arrived than its number (the name of the event, step, metrics, a message),
    it is compared with the event: numbers to seven digits, since some sinks hold single precision; text letter by
    letter, umlauts and emoji too; None or NaN for a metric that was not finite.

    Usual causes: step and epoch mixed up, 0 in place of None, text that went through ASCII, and metrics of an earlier
    event that stay in a dictionary.
    """
    fixtures = EventFixtures(subject)
    sink = Sink(subject, fixtures)
    events = [*fixtures.begin(), *fixtures.train(3), fixtures.add(FULL["metrics"], step=23, epoch=2)]
    events += [fixtures.add(FULL["validation"]), fixtures.add(FULL["warning"]), fixtures.add(FULL["stop_requested"])]
    events += fixtures.end()
    report(subject, fixtures, events)
    sink.require(events, when="after close()", fix="Flush in close().")
    by_seq = {event.seq: event for event in events}
    for seq, item in sink.items:
        if seq in by_seq:
            _compare(by_seq[seq], item)


def _compare(event: Event, item: Mapping[str, Any]) -> None:
    told = event.as_dict()
    for field in _COMPARED:
        if field in item and field in told and not _is_same(told[field], item[field]):
            raise ConformanceError(
                expected=f"{field} = {told[field]!r} at the sink, of the event {event.name} with seq {event.seq}",
                got=f"{item[field]!r}",
                fix="See what report_event, or the harness, makes of that field.",
            )


def _is_same(told: object, found: object) -> bool:
    if isinstance(told, Mapping) and isinstance(found, Mapping):
        return set(told) == set(found) and all(_is_same(told[key], found[key]) for key in told)
    if told is None or (isinstance(found, float) and math.isnan(found)):
        return told is None and (found is None or (isinstance(found, float) and math.isnan(found)))
    if isinstance(told, int | float) and isinstance(found, int | float):
        return math.isclose(told, found, rel_tol=1e-6)
    return told == found


@check("reporter.taken_at_once", level="should", requires=("reporter.arrives",))
def taken_at_once(subject: Subject) -> None:
    """An event is at the sink when report_event returns.

    An event counts as reported when report_event returns, and is not reported again. What is then only in memory is
    lost if the process is killed, which is how many runs end. So the kit reports events, does not close, and looks.

    Mend it by writing each event before report_event returns; events come in the background of the training, and no
    step waits. Where that is too much for the sink, hold back only what does not matter, and write it with the next.
    """
    fixtures = EventFixtures(subject)
    sink = Sink(subject, fixtures)
    events = [*fixtures.begin(), *fixtures.train(5)]
    with ServedReporter(subject) as reporter:
        reporter.open(fixtures)
        reporter.tell(events)
        sink.require(
            events,
            when="when report_event has returned, without close()",
            fix="Write each event before report_event returns: what is in a buffer dies with the process.",
        )


@check("reporter.repeats", requires=("reporter.serves",))
def repeats(subject: Subject) -> None:
    """Events that come again are taken again, and nothing is missing then.

    After a crash the host reports the last events once more: to the same instance, if only the answer was lost, or to a
    new one in the next process. Here the last three come twice in one instance, and then from a new one.

    Usual causes: `assert event.seq == last + 1`, a primary key that raises, and a repeated event that makes the
    reporter skip what follows it.
    """
    sink, events = _repeated(subject, look=False)
    if sink is not None:
        fix = "Take an event that is there already as reported, and go on with the next."
        sink.require(events, when="after some came twice", fix=fix)


@check("reporter.once", level="should", requires=("reporter.arrives", "reporter.repeats"))
def once(subject: Subject) -> None:
    """An event that was reported twice is at the sink once.

    The same as before, and then every event is counted at the sink. A reader of the sink should not see a warning
    twice, or two points of a curve, because a process has died at a bad moment.

    Mend it with an identity that the sink knows: a key of run_id and seq, an idempotency key, the last seq that a file
    ends with. ctx.last_seq is 0 for a new run.
    """
    sink, events = _repeated(subject, look=True)
    assert sink is not None
    sink.require(events, when="after some came twice", fix="Take an event that is there already as reported.")
    seqs = sink.seqs
    double = sorted({seq for seq in seqs if seqs.count(seq) > 1})
    if double:
        raise ConformanceError(
            expected="every event at the sink once",
            got=f"seq {spans(double)} there up to {max(map(seqs.count, double))} times",
            fix="Give each event an identity at the sink, of run_id and seq, and leave out what is there.",
        )


def _repeated(subject: Subject, *, look: bool) -> tuple[Sink | None, Sequence[Event]]:
    """Report a run with some events twice; return its sink and events.

    :param look: Whether there must be something to look with.
    """
    fixtures = EventFixtures(subject)
    sink = Sink(subject, fixtures) if look else sink_if_any(subject, fixtures)
    events = fixtures.begin() + fixtures.train(6)
    report(subject, fixtures, [*events[:6], *events[3:6]])
    fixtures.next_attempt()
    events += fixtures.begin() + fixtures.train(2) + fixtures.end()
    report(subject, fixtures, [*events[4:], events[-1]])
    return sink, events


@check("reporter.resumes", requires=("reporter.arrives",))
def resumes(subject: Subject) -> None:
    """A resumed run continues at the sink where it stopped, and what was there stays.

    Two attempts of a run, each in a new instance, as in two processes: the second has attempt 2 and the number of the
    last event of the first in last_seq. After both, the events of both are there.

    Usual causes: a file that is opened with "w", a table that is dropped in open, and a new record at the sink for
    every attempt.
    """
    fixtures = EventFixtures(subject)
    sink = Sink(subject, fixtures)
    events = fixtures.begin() + fixtures.train() + fixtures.end("run_preempted")
    for attempt in (1, 2):
        if attempt == 2:
            fixtures.next_attempt()
            events += fixtures.whole()
        report(subject, fixtures, [event for event in events if event.attempt == attempt])
    sink.require(
        events,
        when="after two attempts of a run",
        fix="In open(), go on with what the sink has of the run (ctx.run_id) instead of beginning anew.",
    )


@check("reporter.two_runs", level="should", requires=("reporter.arrives",))
def two_runs(subject: Subject) -> None:
    """Two runs in one process do not get in each other's way.

    Two instances with the same settings, each of a run of its own, get events in turns. Both runs are complete at
    the sink. A sweep runs several jobs in one process, and a job may name a reporter twice.

    Usual causes: state in the module or in the class, a library with one global run, and one file for all runs that
    every open makes anew.
    """
    fixtures_of_runs = [EventFixtures(subject), EventFixtures(subject)]
    sinks = [Sink(subject, fixtures) for fixtures in fixtures_of_runs]
    events = [fixtures.whole() for fixtures in fixtures_of_runs]
    with ServedReporter(subject) as first, ServedReporter(subject) as second:
        for reporter, fixtures in zip((first, second), fixtures_of_runs, strict=True):
            reporter.open(fixtures)
        for pair in zip(*events, strict=True):
            first.tell(pair[:1])
            second.tell(pair[1:])
        first.close()
        second.close()
    for sink, told in zip(sinks, events, strict=True):
        fix = "Keep state in the instance, and distinguish runs at the sink by run_id."
        sink.require(told, when="of each of two runs that were reported in turns", fix=fix)
