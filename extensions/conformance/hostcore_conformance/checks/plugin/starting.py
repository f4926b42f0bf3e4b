"""Starting and ending a plugin of any kind in which the host does so, as far as that needs no run."""

import contextlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

import attrs

from hostcore.plugins.errors import one_line
from hostcore.plugins.load import Component
from hostcore_conformance.checks.plugin.declared import content
from hostcore_conformance.checks.plugin.noting import noted
from hostcore_conformance.errors import NotApplicable
from hostcore_conformance.rehearsal import rehearse
from hostcore_conformance.served import Served
from hostcore_conformance.subject import Subject
from hostcore_hookspecs import Job, ReporterContext, UploadContext, hookimpl
from hostcore_hookspecs.errors import HostcoreError

#: The kinds that have ``open`` and ``close``.
OPENED_KINDS: Final = ("reporter", "uploader")
_WITNESS: Final = f"{__name__}:HyperparamsWitness"


class CannotStart(Exception):
    """A plugin cannot be started here; that is not what the check is about.

    :param reason: Why, without a full stop.
    """


def opens_and_closes(subject: Subject) -> str | None:
    """Return the reason why there is nothing to open and close; None if there is."""
    if subject.kind.name not in OPENED_KINDS:
        return f"a {subject.kind.label} is not opened and closed"
    return None


def start(served: Served) -> None:
    """Open a reporter or an uploader.

    :raises CannotStart: It raises, as when the other side is not there.
    """
    error = served.attempt("open", _context(served.subject))
    if isinstance(error, BaseException):
        raise CannotStart(f"open() raised {one_line(error)}") from error


def start_or_skip(served: Served) -> None:
    """Open a reporter or an uploader.

    :raises NotApplicable: It cannot be opened with the settings of its example.
    """
    try:
        start(served)
    except CannotStart as error:
        raise NotApplicable(
            f"it cannot be opened with the settings of its example: {error}; a harness that starts the other side would"
            " help",
            wants_example=True,
        ) from error


@attrs.frozen(kw_only=True)
class Started:
    """A start that was made."""

    #: The content of the settings before and after, by what they are called; empty for kinds without a start.
    settings: Mapping[str, tuple[Any, Any]] = attrs.field(factory=dict)
    #: Programs and modules that it started.
    code: AbstractSet[str] = frozenset()


def started_once(subject: Subject, component: Component) -> Started:
    """Start a component and end it, as far as its kind can be; of a trainer, the run that all checks share.

    :raises CannotStart: It does not start here.
    """
    if subject.kind.name == "trainer" and subject.has_job:
        return subject.shared("plugin.started", lambda: _run_once(subject))
    if subject.kind.name not in OPENED_KINDS:
        return Started()
    before = content(component.settings)
    with noted() as code, Served(subject, component) as served:
        start(served)
        served.call("close")
    return Started(settings={"settings": (before, content(component.settings))}, code=code)


def _run_once(subject: Subject) -> Started:
    del HyperparamsWitness.seen[:]
    with noted() as code, contextlib.suppress(HostcoreError):
        rehearse(subject, max_steps=1, callbacks=[*subject.job.get("callbacks", []), _WITNESS])
    if not HyperparamsWitness.seen:
        raise CannotStart("the example job does not run")
    before, ctx = HyperparamsWitness.seen[0]
    return Started(settings={"ctx.hyperparams": (before, content(ctx.hyperparams))}, code=code)


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
