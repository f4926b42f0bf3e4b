"""That a plugin can be closed in every state, and leaves nothing behind."""

import contextlib
import gc
import threading
import time
from collections import Counter
from typing import Final

from hostcore.plugins.errors import one_line
from hostcore_conformance.check import check
from hostcore_conformance.checks.plugin.starting import (
    OPENED_KINDS,
    CannotStart,
    Opened,
    in_a_thread,
    opened,
    opens_and_closes,
)
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.process.resources import open_files
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

    def again(this: Opened) -> None:
        this.open()
        this.close()
        try:
            this.open()
        except CannotStart as error:
            raise ConformanceError(
                expected="that it can be opened again, as for the next attempt of a run",
                got=f"the second {error}",
                fix="Make in open() what close() ends: connections, threads, files.",
            ) from error.__cause__
        this.close()

    opened(subject, again)


@check("plugin.closes_twice", level="should", requires=("plugin.constructs",), capability=opens_and_closes)
def closes_twice(subject: Subject) -> None:
    """close() may be called twice.

    The host calls it once; tests, notebooks and code that wraps a component in a with statement do not always. The
    second call has nothing to do and must not raise. Set what was closed to None, and look before closing.
    """

    def twice(this: Opened) -> None:
        this.open()
        this.close()
        _close_in_vain(this, "a second time")

    opened(subject, twice)


@check("plugin.closes_unopened", level="should", requires=("plugin.constructs",), capability=opens_and_closes)
def closes_unopened(subject: Subject) -> None:
    """close() may be called after a start that failed, or without one.

    Code that cleans up after an error calls close() on everything there is, opened or not. An AttributeError from there
    (the client that open() would have set does not exist) hides the error that matters. Assign in the constructor what
    close() looks at: self._client = None.
    """
    in_a_thread(lambda: _close_in_vain(Opened(subject, subject.component()), "without having been opened"))


def _close_in_vain(this: Opened, how: str) -> None:
    try:
        this.close()
    except Exception as error:
        raise ConformanceError(
            expected=f"that close() does nothing when it is called {how}",
            got=f"it raised {one_line(error)}",
            fix="Set what is open to None in the constructor and when it is closed, and close only what is not None.",
        ) from error


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
    left = subject.shared("plugin.leaks", lambda: _left_behind(subject))[what]
    if left is None:
        raise NotApplicable("this system does not tell which files are open")
    if sum(left.values()) >= _ROUNDS:
        listed = ", ".join(f"{number} x {name}" for name, number in left.most_common(3))
        raise ConformanceError(
            expected=f"as many {what} as before, after it was made and ended {_ROUNDS} times",
            got=f"{sum(left.values())} more: {listed}",
            fix=_FIXES[what],
        )


def _left_behind(subject: Subject) -> "dict[str, Counter[str] | None]":
    """What there is more after some rounds than after the first; of files None where they cannot be counted."""
    _round(subject)
    gc.collect()
    before = {"threads": _threads(), "files": open_files()}
    for _ in range(_ROUNDS):
        _round(subject)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        gc.collect()
        left = {"threads": _more(_threads(), before["threads"]), "files": _more(open_files(), before["files"])}
        ended = all(sum(one.values()) < _ROUNDS for one in left.values() if one is not None)
        if ended or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def _more(after: "Counter[str] | None", before: "Counter[str] | None") -> "Counter[str] | None":
    return None if after is None or before is None else after - before


def _round(subject: Subject) -> None:
    def steps() -> None:
        component = subject.component()
        if subject.kind.name in OPENED_KINDS:
            this = Opened(subject, component)
            with contextlib.suppress(CannotStart):  # a start that fails leaves nothing, either
                this.open()
                this.close()

    in_a_thread(steps)


def _threads() -> "Counter[str]":
    # Numbers tell threads of one pool apart: pool-1_0, pool-2_0.
    names = ("".join(letter for letter in thread.name if not letter.isdigit()) for thread in threading.enumerate())
    return Counter(names)
