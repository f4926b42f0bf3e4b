"""Check of what was due beside the steps: every validation, sample and test is in the log, once and at its step."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from hostcore.verification.checks import RunCheck, judged

_ID: Final = "log.due"
_CADENCE: Final = ("validate_every", "sample_every", "samples", "test")

#: A name (``validation``, ``samples/0``) and a step.
_Place = tuple[str, int]


@attrs.define(kw_only=True)
class _AttemptEvents:
    """An attempt that has begun to train, from its events."""

    start: int
    #: Of ``run_started``; not whole in the logs of versions that did not record it.
    cadence: Mapping[str, int]
    total_steps: int
    #: Of ``run_resumed``.
    owed: Sequence[str]
    #: The step of its last event.
    reached: int
    #: How often something was made.
    made: Counter[_Place] = attrs.field(factory=Counter)
    tests: int = 0
    #: Steps at which samples are due and metrics were recorded: the trainer has not asked to leave these steps out.
    recorded: set[int] = attrs.field(factory=set)
    #: The status that the worker itself ended with.
    status: str | None = None

    def due(self, until: int) -> Iterator[_Place]:
        """Everything that became due in the steps of this attempt, up to a step."""
        every = self.cadence["validate_every"]
        last = [self.total_steps] if every and self.start < self.total_steps <= until else []
        for step in {*_multiples(every, self.start, until), *last}:
            yield "validation", step
        samples = self.samples_from(0)
        for step in _multiples(self.cadence["sample_every"], self.start, until):
            if step in self.recorded or any((name, step) in self.made for name in samples):
                yield from ((name, step) for name in samples)

    def left_over(self, owed: Sequence[str]) -> set[str]:
        """The names of what an interruption has left, of the form in which ``run_resumed`` has it."""
        names = set()
        for one in owed:
            kind, _, first = one.partition("/")
            names |= self.samples_from(int(first)) if kind == "samples" else {kind}
        return names

    def samples_from(self, first: int) -> set[str]:
        """The names of the samples of a step, from a number on."""
        return {f"samples/{number}" for number in range(first, self.cadence["samples"])}

    def makes_again(self, name: str, step: int) -> bool:
        """Return whether it has to make what an earlier attempt has made at a step: then only this one counts."""
        return self.start < step or (self.start == step and name in self.left_over(self.owed))


@attrs.define
class Due:
    """The evaluations of a run, gathered from its events."""

    _attempts: dict[int, _AttemptEvents] = attrs.field(factory=dict)
    #: Of the attempt that begins.
    _total_steps: int = 0
    _owed: Sequence[str] = ()

    def add(self, event: Mapping[str, Any]) -> None:
        """Take in the next event."""
        name, step = event["event"], event["step"] or 0
        if name == "run_submitted":
            self._total_steps, self._owed = event.get("total_steps", 0), ()
        elif name == "run_resumed":
            self._owed = event.get("owed", ())
        elif name == "run_started":
            cadence = {key: event[key] for key in _CADENCE if key in event}
            self._attempts[event["attempt"]] = _AttemptEvents(
                start=step, cadence=cadence, total_steps=self._total_steps, owed=self._owed, reached=step
            )
        elif (attempt := self._attempts.get(event["attempt"])) is not None:
            _note(attempt, event, name, step)

    def check(self, *, left: Sequence[str]) -> RunCheck:
        """Compare what was due with what was made.

        Behind the place where a later attempt begins, everything is made again, and counts there.

        :param left: What the newest checkpoint keeps for the next attempt.
        """
        attempts = list(self._attempts.values())
        if not all(len(one.cadence) == len(_CADENCE) for one in attempts):
            told = "an earlier version of hostcore trained it, and did not record what was due"
            return RunCheck(id=_ID, status="skipped", message=told)
        due, made = set[_Place](), Counter[_Place]()
        for number, one in enumerate(attempts):
            later = attempts[number + 1 :]
            due |= {(name, one.start) for name in one.left_over(one.owed)}
            due |= set(one.due(min((other.start for other in later), default=one.reached)))
            for (name, step), count in one.made.items():
                if not any(other.makes_again(name, step) for other in later):
                    made[name, step] += count
        to_come = _still_to_come(attempts[-1], due, left) if attempts else set()
        told = f"{made.total():,} validations and samples, each once and where it was due"
        return judged(_ID, [*_misplaced(due - to_come, due, made), *_wrong_tests(self._attempts)], otherwise=told)


def _note(attempt: _AttemptEvents, event: Mapping[str, Any], name: str, step: int) -> None:
    attempt.reached = max(attempt.reached, step)
    every = attempt.cadence.get("sample_every", 0)
    if name == "validation":
        attempt.made[name, step] += 1
    elif name == "sample_saved":
        attempt.made[f"samples/{event['path'].rpartition('/')[2]}", step] += 1
    elif name == "test":
        attempt.tests += 1
    elif name == "metrics" and every and step % every == 0:
        attempt.recorded.add(step)
    elif name.startswith("run_") and event["src"] is not None:
        attempt.status = name.removeprefix("run_")


def _multiples(every: int, start: int, until: int) -> range:
    """The steps of a cadence behind a step, up to another."""
    return range(start - start % every + every, until + 1, every) if every else range(0)


def _still_to_come(newest: _AttemptEvents, due: set[_Place], left: Sequence[str]) -> set[_Place]:
    """Return what may be missing yet: an attempt that was broken off, or runs, may not have come to it."""
    if newest.status == "succeeded":
        return set()
    if newest.status in ("preempted", "cancelled"):
        return {(name, newest.reached) for name in newest.left_over(left)}
    return {place for place in due if place[1] == newest.reached}


def _misplaced(required: set[_Place], due: set[_Place], made: Counter[_Place]) -> Iterator[str]:
    for name, step in sorted({*required, *made}, key=lambda place: (place[1], place[0])):
        count, what = made[name, step], f"{name.replace('samples/', 'sample ')} of step {step:,}"
        if count == 0:
            yield f"the {what} was due, and is not in the log"
        elif (name, step) not in due:
            yield f"the {what} is in the log, and was not due"
        elif count > 1:
            yield f"the {what} was made {count} times"


def _wrong_tests(attempts: Mapping[int, _AttemptEvents]) -> Iterator[str]:
    for number, one in attempts.items():
        if one.status == "succeeded" and one.tests != bool(one.cadence["test"]):
            yield f"attempt {number} succeeded, and has made {one.tests} tests instead of {int(one.cadence['test'])}"
