"""A reporter, served as the host serves it: all its methods are called from one thread, which is not the main one."""

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from hostcore.plugins.component import Component
from hostcore_conformance.call_thread import CallThread, in_words, patience_seconds
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.event_fixtures import EventFixtures
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.errors import FatalError, TransientError
from hostcore_hookspecs.events import Event

#: How long a reporter may need to see that its sink is back.
_RECOVERY_SECONDS: Final = 15.0
_PAUSE_SECONDS: Final = 0.1


class Telling:
    """An instance of the reporter, and the thread that serves it. A context manager; leaving it closes the reporter.

    :param component: The instance; a new one if not given.
    """

    def __init__(self, subject: Subject, component: Component | None = None) -> None:
        self._subject = subject
        self.component = component or subject.component()
        hooks = subject.hooks(self.component)
        self._methods: dict[str, Callable[..., Any] | None] = {
            name: hooks.bind(name, of=self.component) for name in ("open", "report_event", "close")
        }
        self._lane = CallThread(subject)
        self._is_open = False

    def __enter__(self) -> "Telling":
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_open:
            self.attempt("close")
        self._lane.__exit__()

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method; nothing, if the reporter lacks it.

        :raises ConformanceError: It does not come back.
        :raises BaseException: What it raises.
        """
        self._is_open = method != "close"
        bound = self._methods[method]
        return self._lane.call(method, bound, *arguments) if bound else None

    def attempt(self, method: str, *arguments: Any) -> BaseException | None:
        """Call a method; what it has raised.

        :raises ConformanceError: It does not come back.
        """
        try:
            self.call(method, *arguments)
        except ConformanceError:
            self._is_open = False  # nothing more can be called in this thread
            raise
        except BaseException as error:  # noqa: BLE001 - for the check to judge, SystemExit too
            return error
        return None

    def attempt_as_host(self, method: str, *arguments: Any) -> BaseException | None:
        """Call a method, and again after a :class:`TransientError`, as the host does; it closes but once.

        A busy machine may be slower than the short timeout of an example allows.

        :return: What it has raised last.
        :raises ConformanceError: It does not come back.
        """
        error = self.attempt(method, *arguments)
        is_tried_again = isinstance(error, TransientError) and method != "close"
        return self._again(method, *arguments, first=error) if is_tried_again else error

    def require(self, method: str, *arguments: Any, fix: str, what: str = "") -> None:
        """Call a method, which must not fail.

        :param what: What it is called with, in words: ``the event metrics``.
        :raises ConformanceError: It fails.
        """
        error = self.attempt_as_host(method, *arguments)
        if error is not None:
            raise ConformanceError(
                expected=f"{method} to return{f' for {what}' if what else ''}",
                got=in_words(self._subject, error),
                fix=fix,
            ) from error

    def tell(self, events: Iterable[Event]) -> None:
        """Tell events, none of which may fail.

        :raises ConformanceError: One does.
        """
        fix = "A reporter takes every event: what it does not show, it passes over."
        for event in events:
            self.require("report_event", event, what=f"the event {event.name} (seq {event.seq})", fix=fix)

    def tell_patiently(self, events: Iterable[Event]) -> None:
        """Tell events, each again and again until it is taken, as after an outage.

        :raises ConformanceError: One is not, in good time.
        """
        for event in events:
            self.insist("report_event", event, first=self.attempt("report_event", event))

    def open(self, fixtures: EventFixtures) -> None:
        """Open it for an attempt.

        :raises ConformanceError: It raises.
        """
        self.require("open", fixtures.ctx, fix="See that the example's settings fit the sink that the harness has.")

    def close(self) -> None:
        """Close it.

        :raises ConformanceError: It raises.
        """
        self.require("close", fix="close() is called after the last event; what it raises is told as a failure.")

    def insist(self, method: str, *arguments: Any, first: BaseException | None) -> None:
        """Call again what has failed, as the host does, until it succeeds.

        :param first: What it has raised; nothing is done without.
        :raises ConformanceError: It does not, in good time.
        """
        error = self._again(method, *arguments, first=first)
        if error is None:
            return
        late = "" if isinstance(error, FatalError) else f", {self._recovery_seconds:g} s after it was healed"
        raise ConformanceError(
            expected=f"{method} to succeed when it is called again, now that the sink is well",
            got=in_words(self._subject, error) + late,
            fix="Connect anew after a failure: drop the broken connection before the error is raised.",
        ) from error

    @property
    def _recovery_seconds(self) -> float:
        return min(_RECOVERY_SECONDS, patience_seconds(self._subject))

    def _again(self, method: str, *arguments: Any, first: BaseException | None) -> BaseException | None:
        """Call again what has failed, until it succeeds, fails for good, or the time is over.

        :param first: What it has raised.
        :return: What it has raised last; None once it has succeeded.
        """
        error, deadline = first, time.monotonic() + self._recovery_seconds
        while error is not None and not isinstance(error, FatalError) and time.monotonic() <= deadline:
            time.sleep(_PAUSE_SECONDS)
            error = self.attempt(method, *arguments)
        return error
