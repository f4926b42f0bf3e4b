"""A component whose methods are called as the host calls reporters and uploaders: in threads, and not for ever."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Self

from hostcore.plugins.load import Component
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.subject import Subject

#: What the host calls a hang.
PATIENCE_SECONDS: Final = 30.0


class Served:
    """An instance of the plugin, and the threads that serve it; none of them is the main one.

    A context manager: leaving it closes the instance, if anything else was called since it was closed.

    :param subject: Its harness may declare with ``patience_seconds`` that with its settings no call takes as long as
        the host would wait.
    :param component: The instance; a new one if not given.
    :param threads: How many there are. Calls take the first, unless :meth:`start` names another.
    """

    def __init__(self, subject: Subject, component: Component | None = None, *, threads: int = 1) -> None:
        self.subject = subject
        self.component = component or subject.component()
        self._calls = subject.calls(self.component)
        self._threads = [_CallThread() for _ in range(threads)]
        self._is_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_open:
            self.attempt("close")
        for thread in self._threads:
            thread.end()

    def start(self, method: str, *arguments: Any, thread: int = 0) -> Future[Any]:
        """Have a method called when the calls before it are over; it is not waited for. One that it lacks does nothing.

        :param thread: In which of the threads.
        """
        self._is_open = method != "close"
        return self._threads[thread].start(self._calls.get(method, _nothing), *arguments)

    def finish(self, method: str, call: Future[Any]) -> Any:
        """Wait for the end of a call.

        :raises ConformanceError: It does not come back.
        :raises BaseException: What it raises.
        """
        limit = patience_seconds(self.subject)
        try:
            return call.result(timeout=limit)
        except TimeoutError:
            if call.done():  # one that the plugin raised
                raise
            self._is_open = False  # nothing more can be called in this thread
            raise ConformanceError(
                expected=f"{method} to return or to raise",
                got=f"no end of the call after {limit:g} s",
                fix="Give whatever it waits for a timeout, best one of its settings, and raise TransientError when it"
                " is over: a call that hangs can neither be tried again nor be stopped.",
            ) from None

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method, and wait for its end.

        :raises ConformanceError: It does not come back.
        :raises BaseException: What it raises.
        """
        return self.finish(method, self.start(method, *arguments))

    def attempt(self, method: str, *arguments: Any) -> Any:
        """Call a method: what it has returned or raised.

        :raises ConformanceError: It does not come back.
        """
        return self.outcome(method, self.start(method, *arguments))

    def outcome(self, method: str, call: Future[Any]) -> Any:
        """Return the result or the exception of a call, once it is over.

        :raises ConformanceError: It does not come back.
        """
        try:
            return self.finish(method, call)
        except ConformanceError:
            raise
        except BaseException as error:  # noqa: BLE001 - for the check to judge, SystemExit too
            return error

    def require(self, method: str, *arguments: Any, fix: str, what: str = "") -> Any:
        """Call a method, which must not raise: what it has returned.

        :param what: What it is called with, in words: ``the event metrics``.
        :raises ConformanceError: It raises.
        """
        return self.returned(self.attempt(method, *arguments), method, fix=fix, what=what)

    def returned(self, came: Any, method: str, *, fix: str, what: str = "") -> Any:
        """Return the result of a call.

        :param came: What it has returned or raised.
        :raises ConformanceError: It has raised.
        """
        if isinstance(came, BaseException):
            raise ConformanceError(
                expected=f"{method} to return{f' for {what}' if what else ''}",
                got=self.subject.in_words(came),
                fix=fix,
            ) from came
        return came


class _CallThread:
    """One thread, and the calls that are made in it, one after the other."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None]
        self._calls = queue.SimpleQueue()
        # A daemon: a call that hangs must not keep the process of the checks.
        threading.Thread(target=self._work, name="hostcore conformance", daemon=True).start()

    def start(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._calls.put((future, call, arguments))
        return future

    def end(self) -> None:
        self._calls.put(None)

    def _work(self) -> None:
        while (given := self._calls.get()) is not None:
            future, call, arguments = given
            try:
                future.set_result(call(*arguments))
            except BaseException as error:  # noqa: BLE001 - the caller's to judge, SystemExit too
                future.set_exception(error)


def _nothing(*_: Any) -> None:
    """In place of a method that the plugin lacks."""


def patience_seconds(subject: Subject) -> float:
    """Return the seconds that a call may take."""
    return float(getattr(subject.harness, "patience_seconds", PATIENCE_SECONDS))
