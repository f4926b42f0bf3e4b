"""The history of a run by its event log: its attempts, its metrics and its pace."""

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs

from hostcore.events.codec import CorruptLog, decode_event
from hostcore.events.kinds import EVENT_KINDS, MEASURED, PACED, EventKind
from hostcore.events.reader import LONGEST_RECORD, GrowingLog, name_of
from hostcore.runs.attempts import claimed_attempts, newest_attempt, read_claim
from hostcore.runs.directory import RunDirectory
from hostcore.runs.findings import Findings
from hostcore.runs.result import RunWarning
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.events import ENDS, Event, Metrics, RunFailed, RunSubmitted, Test, TrainerRestored, Validation

#: So many of the newest signs of progress give the pace of a run.
_RECENT: Final = 50
#: The newest attempts that are listed.
_MOST_ATTEMPTS: Final = 10_000
#: Lines about the life of a run that are kept, in bytes: more than any run has.
_MOST_KEPT: Final = 64 << 20
_LIFE: Final = frozenset(name for name, kind in EVENT_KINDS.items() if kind in (EventKind.BEGIN, EventKind.END))


@attrs.frozen(kw_only=True)
class AttemptHistory:
    """One start of a run, and its end."""

    attempt: int
    #: ``succeeded``, ``failed``, ``cancelled``, ``preempted``; without an end in the log, ``running`` or ``lost``.
    status: str
    #: Milliseconds since 1970; None if that is not known.
    started_ms: int | None
    #: None while it runs; the last sign of life of a lost one.
    ended_ms: int | None
    #: Finished steps when it began to train; None if it never did.
    first_step: int | None
    #: Finished steps at its last sign of life.
    last_step: int | None
    #: Why it ended before its last step, if it did.
    reason: str | None
    error: RunError | None

    def seconds(self, now: int) -> float | None:
        """Return its duration, so far or in all; None if that is not known.

        :param now: Milliseconds since 1970.
        """
        until = now if self.status == "running" else self.ended_ms
        return None if self.started_ms is None or until is None else max(0, until - self.started_ms) / 1000

    def as_dict(self) -> dict[str, Any]:
        """The attempt as plain JSON."""
        return attrs.asdict(self)


class History:
    """The event log of a run, as far as it was read. Lines that change nothing are not decoded.

    :param directory: The run's; its log may not exist yet.
    :param most: Bytes that one reading takes in, or a line more; the next one continues there.
    """

    def __init__(self, directory: RunDirectory, *, most: int = sys.maxsize) -> None:
        self._attempts = directory.attempts
        self._log = GrowingLog(directory.events)
        self._most = most
        self._kept = 0
        #: By attempt: the events of its life, and the last sign of progress before each.
        self._life: dict[int, list[Event]] = {}
        #: The newest signs of progress of the newest attempt.
        self._pace: deque[bytes] = deque(maxlen=_RECENT)
        #: The newest line of every event that measures.
        self._measured: dict[str, bytes] = {}
        self._findings = Findings()

    @property
    def offset(self) -> int:
        """The place behind the last line that was read, in bytes."""
        return self._log.offset

    def read_on(self) -> None:
        """Take in what the log has gained.

        :raises CorruptLog: When a line that matters is no event, or more of them matter than any run has.
        """
        until = self._log.offset + self._most
        for line in self._log.records(longest=LONGEST_RECORD):
            name = name_of(line)
            if name == "trainer_restored" or name in MEASURED:
                self._measured[name] = line
            if self._findings.concerns(name, line):
                self._findings.note(decode_event(line))
            if name in PACED:
                self._pace.append(line)
            elif name in _LIFE:
                for event in (*self._newest_progress(), decode_event(line)):
                    self._life.setdefault(event.attempt, []).append(event)
                    self._kept += len(line)
                if self._kept > _MOST_KEPT:
                    message = f"more than {_MOST_KEPT:,} bytes say how it began and ended"
                    raise CorruptLog(message, file=str(self._log.path))
                if name == "run_submitted":
                    self._pace.clear()
            if self._log.offset >= until:
                return

    def _newest_progress(self) -> list[Event]:
        return [decode_event(self._pace[-1])] if self._pace else []

    @property
    def status_events(self) -> Iterator[Event]:
        """The events about the position and the pace of the newest attempt, in their order."""
        life = [event for event in self._life.get(max(self._life, default=0), []) if event.name in _LIFE]
        yield from (event for event in life if event.name not in ENDS)
        yield from map(decode_event, self._pace)
        yield from (event for event in life if event.name in ENDS)

    @property
    def devices(self) -> Sequence[str]:
        """Those of the newest attempt, by rank; empty if it never came so far."""
        newest = newest_attempt(self._attempts)
        submitted = [event.payload for event in self._life.get(newest, []) if isinstance(event.payload, RunSubmitted)]
        return submitted[-1].devices if submitted else ()

    @property
    def metrics(self) -> dict[str, float | None]:
        """The values measured last, or those of the state that the trainer went back to. None where not finite."""
        measured: dict[str, float | None] = {}
        for event in sorted(map(decode_event, self._measured.values()), key=lambda one: one.seq):
            payload = event.payload
            assert isinstance(payload, Metrics | Validation | Test | TrainerRestored)
            measured |= payload.values if isinstance(payload, TrainerRestored) else payload.metrics
        return measured

    @property
    def warnings(self) -> list[RunWarning]:
        """The warnings that the user should know, as far as the log was read."""
        return self._findings.warnings

    @property
    def best(self) -> dict[str, Any] | None:
        """See :attr:`Findings.best`; as far as the log was read."""
        return self._findings.best

    def attempts(self, *, running: bool, seen_ms: int | None = None) -> list[AttemptHistory]:
        """Return all attempts, oldest first: those that were claimed or that the log names.

        :param running: The newest one runs now.
        :param seen_ms: The newest one's end or last sign of life, where the run directory has it.
        """
        begun = sorted({*claimed_attempts(self._attempts), *self._life})[-_MOST_ATTEMPTS:]
        found = [self._account(number, runs=running and number == begun[-1]) for number in begun]
        if found and seen_ms is not None and found[-1].status != "running":
            found[-1] = attrs.evolve(found[-1], ended_ms=seen_ms)
        return found

    def _account(self, number: int, *, runs: bool) -> AttemptHistory:
        life = [*self._life.get(number, []), *(event for event in self._newest_progress() if event.attempt == number)]
        claim = read_claim(self._attempts, number)
        end = next((event for event in reversed(life) if event.name in ENDS), None)
        last = end or (life[-1] if life else None)
        seen_ms = last.time_ms if last else None
        steps = [event.step for event in life if event.step is not None]
        return AttemptHistory(
            attempt=number,
            status=end.name.removeprefix("run_") if end else "running" if runs else "lost",
            started_ms=claim.started_ms if claim else life[0].time_ms if life else None,
            ended_ms=None if runs and not end else seen_ms,
            first_step=next((event.step for event in life if event.name == "run_started"), None),
            last_step=max(steps, default=None),
            reason=getattr(end.payload, "reason", None) if end else None,
            error=end.payload.error if end and isinstance(end.payload, RunFailed) else None,
        )


def total_seconds(attempts: Sequence[AttemptHistory], now: int) -> float:
    """Return the time of all attempts together, as far as it is known.

    :param now: Milliseconds since 1970.
    """
    return sum(one.seconds(now) or 0.0 for one in attempts)
