"""A thread in which a check calls a plugin, as the host calls reporters and uploaders, and waits only so long."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from hostcore.plugins.attribution import in_package, place
from hostcore.plugins.errors import one_line
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.subject import Subject

#: What the host calls a hang.
PATIENCE_SECONDS: Final = 30.0


class CallThread:
    """One thread, and the calls that are made in it, one after the other. A context manager.

    :param subject: Whose methods are called. Its harness may say with ``patience_seconds`` that with its settings no
        call takes as long as the host would wait.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None]
        self._calls = queue.SimpleQueue()
        # A daemon: a call that hangs must not keep the process of the checks.
        self._thread = threading.Thread(target=self._work, name="hostcore conformance", daemon=True)
        self._thread.start()

    def __enter__(self) -> "CallThread":
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.put(None)

    def start(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have a call made when those before it are over; it is not waited for."""
        future: Future[Any] = Future()
        self._calls.put((future, call, arguments))
        return future

    def call(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Make a call, and wait for its end.

        :param name: How the check calls it: ``report_event``.
        :raises ConformanceError: It does not come back.
        :raises BaseException: What it raises.
        """
        return finished(self._subject, name, self.start(call, *arguments))

    def _work(self) -> None:
        while (given := self._calls.get()) is not None:
            future, call, arguments = given
            try:
                future.set_result(call(*arguments))
            except BaseException as error:  # noqa: BLE001 - the caller's to judge, SystemExit too
                future.set_exception(error)


def finished(subject: Subject, name: str, future: Future[Any]) -> Any:
    """What a call in a thread has returned.

    :raises ConformanceError: It does not come back.
    :raises BaseException: What it raises.
    """
    limit = patience_seconds(subject)
    try:
        return future.result(timeout=limit)
    except TimeoutError:
        if future.done():  # one that the plugin raised
            raise
        raise ConformanceError(
            expected=f"{name} to return or to raise",
            got=f"no end of the call after {limit:g} s",
            fix="Give whatever it waits for a timeout, best one of its settings, and raise TransientError when it is"
            " over: a call that hangs can neither be tried again nor be stopped.",
        ) from None


def patience_seconds(subject: Subject) -> float:
    """How long a call may take."""
    return float(getattr(subject.harness, "patience_seconds", PATIENCE_SECONDS))


def in_words(subject: Subject, error: BaseException) -> str:
    """What a plugin has raised, and where: ``KeyError: 'x' at reporter.py:31``."""
    where = place(error, in_package(subject.ref.value.partition(":")[0].partition(".")[0]))
    text = one_line(error).removeprefix("hostcore_hookspecs.errors.")
    return f"{text} at {where[0].rpartition('/')[2]}:{where[1]}" if where else text
