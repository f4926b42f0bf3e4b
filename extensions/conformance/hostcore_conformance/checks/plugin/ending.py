"""That a plugin can be closed in every state, and leaves nothing behind."""

import contextlib
import time
from collections import Counter
from collections.abc import Mapping
from typing import Final

from hostcore_conformance.check import check
from hostcore_conformance.checks.plugin.starting import (
    OPENED_KINDS,
    CannotStart,
    opens_and_closes,
    start,
    start_or_skip,
)
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.process.resources import held
from hostcore_conformance.served import Served
from hostcore_conformance.subject import Subject

_ROUNDS: Final = 3
_PATIENCE_SECONDS: Final = 5.0
_FIXES: Final = {
    "threads": "End and join it in close(): an executor has shutdown(), a client usually close().",
    "files": "Close it in close(); use `with` for what is needed for a moment only.",
}


@check("plugin.reopens", requires=("plugin.constructs",), capability=opens_and_closes)
def reopens(subject: Subject) -> None:
    """The same instance can be opened again after it was closed.

    open() and close() are called once per attempt, and a job with max_restarts has several attempts, for which the
    supervisor keeps one instance. So open() begins anew: it must not rely on what close() has thrown away, nor stumble
    over what is still there. Usual causes: a client that is made in the constructor and closed in close(), a thread
    that can be started only once.
    """
    with Served(subject) as served:
        start_or_skip(served)
        served.call("close")
        try:
            start(served)
        except CannotStart as error:
            raise ConformanceError(
                expected="that it can be opened again, as for the next attempt of a run",
                got=f"the second {error}",
                fix="Make in open() what close() ends: connections, threads, files.",
            ) from error.__cause__
        served.call("close")


@check("plugin.leaks", requires=("plugin.constructs",), variants=("threads", "files"))
def leaks(subject: Subject, what: str) -> None:
    """Constructing, opening and closing the plugin over and over leaves no thread and no open file behind.

    Reporters and uploaders are constructed, opened and closed several times, all others constructed; what a run leaves
    behind is asked of trainers, callbacks and data sources by their own checks. A first round may leave something for
    good, such as a pool that a library keeps for all its users; what counts is what each further round adds. Threads
    are given some seconds to end. A service that runs jobs for weeks dies of one descriptor a run.

    Usual causes: an executor without shutdown(), a session or a log handler that is never closed, a file opened in
    the constructor.
    """
    left = subject.shared("plugin.leaks", lambda: _left_behind(subject)).get(what)
    if left is None:
        raise NotApplicable("this system does not list open files")
    if sum(left.values()) >= _ROUNDS:
        listed = ", ".join(f"{number} x {name}" for name, number in left.most_common(3))
        raise ConformanceError(
            expected=f"as many {what} as before, after it was made and ended {_ROUNDS} times",
            got=f"{sum(left.values())} more: {listed}",
            fix=_FIXES[what],
        )


def _left_behind(subject: Subject) -> Mapping[str, Counter[str]]:
    """Return the resources added by further rounds after the first; without files where they cannot be counted."""
    _round(subject)
    before = held()
    for _ in range(_ROUNDS):
        _round(subject)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        left = held().beyond(before)
        if all(sum(one.values()) < _ROUNDS for one in left.values()) or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def _round(subject: Subject) -> None:
    if subject.kind.name not in OPENED_KINDS:
        subject.component()
        return
    with Served(subject) as served, contextlib.suppress(CannotStart):  # a start that fails leaves nothing, either
        start(served)
        served.call("close")
