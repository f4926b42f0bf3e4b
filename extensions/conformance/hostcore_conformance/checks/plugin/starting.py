"""Starting and ending a plugin of any kind in which the host does so, as far as that needs no run."""

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from hostcore.plugins.component import Component
from hostcore.plugins.errors import one_line
from hostcore_conformance.checks.plugin.declared import content
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.rehearsal import rehearse
from hostcore_conformance.subject import Subject
from hostcore_hookspecs import Job, ReporterContext, UploadContext, hookimpl
from hostcore_hookspecs.errors import HostcoreError

_T = TypeVar("_T")

#: The kinds that have ``open`` and ``close``.
OPENED_KINDS: Final = ("reporter", "uploader")
#: A start that takes longer than this hangs.
_LONGEST_SECONDS: Final = 30.0
_WITNESS: Final = f"{__name__}:HyperparamsWitness"


class CannotStart(Exception):
    """A plugin cannot be started here; that is not what the check is about.

    :param reason: Why, without a full stop.
    """


def opens_and_closes(subject: Subject) -> str | None:
    """Why there is nothing to open and close; None if there is."""
    if subject.kind.name not in OPENED_KINDS:
        return f"a {subject.kind.label} is not opened and closed"
    return None


def in_a_thread(call: Callable[[], _T]) -> _T:
    """Call something in a thread of its own, as the host calls reporters, and wait for it with an end.

    :raises ConformanceError: It hangs.
    """
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((call(), None))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            outcome.append((None, error))

    thread = threading.Thread(target=run, name="hostcore-conformance", daemon=True)
    thread.start()
    thread.join(_LONGEST_SECONDS)
    if not outcome:
        raise ConformanceError(
            expected=f"that open() and close() return within {_LONGEST_SECONDS:g} s",
            got="they do not",
            fix="Give every connection and every wait a timeout of a few seconds, and raise TransientError.",
        )
    value, error = outcome[0]
    if error is not None:
        raise error
    result: _T = value
    return result


class Opened:
    """One reporter or uploader, to be opened and closed as the host does.

    To be used from one thread: what was opened there may not be usable elsewhere.
    """

    def __init__(self, subject: Subject, component: Component) -> None:
        hooks = subject.hooks(component)
        self._open, self._close = hooks.bind("open", of=component), hooks.bind("close", of=component)
        self._context = _context(subject)

    @property
    def has_close(self) -> bool:
        """Whether there is anything to call at the end."""
        return self._close is not None

    def open(self) -> None:
        """Open it.

        :raises CannotStart: What it says when the other side is not there, or anything else that it raises.
        """
        try:
            if self._open is not None:
                self._open(self._context)
        except Exception as error:
            raise CannotStart(f"open() raised {one_line(error)}") from error

    def close(self) -> None:
        """Close it; what that raises is let through."""
        if self._close is not None:
            self._close()


def opened(subject: Subject, do: Callable[[Opened], _T], component: Component | None = None) -> _T:
    """Do something with a reporter or an uploader, in a thread.

    :raises NotApplicable: It cannot be opened with the settings of its example.
    """

    def steps() -> _T:
        return do(Opened(subject, component or subject.component()))

    try:
        return in_a_thread(steps)
    except CannotStart as error:
        raise NotApplicable(
            f"it cannot be opened with the settings of its example: {error}; a harness that starts the other side would"
            " help",
            wants_example=True,
        ) from error


def started_once(subject: Subject, component: Component) -> Mapping[str, tuple[Any, Any]]:
    """Start a component and end it, as far as its kind can be.

    :return: The content of its settings before and after, by what they are called; empty for kinds without a start.
    :raises CannotStart: It does not start here.
    """
    if subject.kind.name == "trainer" and subject.has_job:
        return _run_once(subject)
    if subject.kind.name not in OPENED_KINDS:
        return {}
    before = content(component.settings)

    def steps() -> None:
        this = Opened(subject, component)
        this.open()
        this.close()

    in_a_thread(steps)
    return {"settings": (before, content(component.settings))}


def _run_once(subject: Subject) -> Mapping[str, tuple[Any, Any]]:
    del HyperparamsWitness.seen[:]
    with contextlib.suppress(HostcoreError):
        rehearse(subject, max_steps=1, callbacks=[*subject.job.get("callbacks", []), _WITNESS])
    if not HyperparamsWitness.seen:
        raise CannotStart("the example job does not run")
    before, ctx = HyperparamsWitness.seen[0]
    return {"ctx.hyperparams": (before, content(ctx.hyperparams))}


class HyperparamsWitness:
    """A callback of the kit's own: remembers what a trainer's hyperparameters were before it began."""

    seen: Final[list[tuple[Any, Any]]] = []

    @hookimpl(wrapper=True)
    def setup(self, ctx: Any) -> Any:
        """Before, and around, the trainer's own."""
        self.seen.append((content(ctx.hyperparams), ctx))
        return (yield)


def _context(subject: Subject) -> ReporterContext | UploadContext:
    run_dir = subject.folder()
    job = Job(run_id="conformance", trainer="conformance", max_steps=1)
    if subject.kind.name == "reporter":
        return ReporterContext(run_id=job.run_id, attempt=1, job=job, run_dir=str(run_dir))
    return UploadContext(
        run_id=job.run_id,
        job=job,
        run_dir=str(run_dir),
        base_uri=(subject.folder() / "mirror").as_uri(),
        prefix=f"{job.run_id}/framework={job.trainer}",
        is_canceled=lambda: False,
    )
