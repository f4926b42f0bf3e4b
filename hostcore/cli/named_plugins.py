"""Plugins that a command line names without their kind, and the environment in which they are found."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.plan import PluginRef

if TYPE_CHECKING:
    from hostcore.plugins.describe import Description
    from hostcore.plugins.installed import Discovered
    from hostcore.supervisor.environment import JobEnvironment

F = TypeVar("F", bound=Callable[..., Any])


def environment_option(command: F) -> F:
    """Add ``--environment JOB``: trainers, data sources and callbacks of the job's environment."""
    option = click.option(
        "--environment",
        type=click.Path(path_type=Path),
        metavar="JOB",
        help="Look for trainers, data sources and callbacks in the environment of this job file, built if needed.",
    )
    return option(command)


def environment_named(job: Path | None) -> "JobEnvironment":
    """Return the environment of a job file, built if needed; that of this process without a file.

    :raises HostcoreError: What is wrong with the job, or its environment.
    """
    from hostcore.cli.output import tell_aside
    from hostcore.job.load import load_job
    from hostcore.plugins.installed import discover
    from hostcore.runs.directory import RunDirectory, runs_dir
    from hostcore.runs.record import RunRecord
    from hostcore.supervisor.environment import JobEnvironment, environment_of

    if job is None:
        return JobEnvironment(discovered=discover())
    spec = load_job(job)
    directory = RunDirectory(runs_dir() / spec.run_id)
    lock = directory.read_lock()
    known = lock is not None and directory.record.exists()
    if known and RunRecord.read(directory.record).spec().environment != spec.environment:
        lock = None  # the run of that name has another one
    return environment_of(spec, discover(), lock=lock, tell=tell_aside)


def describe_named(names: Sequence[str], environment: "JobEnvironment") -> "list[Description]":
    """Import plugins in processes of their own, and describe them.

    :param names: ``name``, ``distribution/name``, or ``module:symbol`` for a trainer in the working directory.
    :raises HostcoreError: When a name is unknown.
    """
    return describe_installed(
        [ref for name in names for ref in installed_as(name, environment.discovered)], environment
    )


def describe_installed(refs: Sequence[PluginRef], environment: "JobEnvironment") -> "list[Description]":
    """Import plugins in processes of their own, and describe them; one description each, in their order."""
    from hostcore.plugins.describe import describe

    imported: dict[str, list[PluginRef]] = {}
    for ref in dict.fromkeys(refs):
        imported.setdefault(environment.python_of(ref.kind), []).append(ref)
    described: dict[PluginRef, Description] = {}
    for python, some in imported.items():
        described |= zip(some, describe(some, job_dir=Path.cwd(), python=python), strict=True)
    return [described[ref] for ref in refs]


def installed_as(name: str, found: "Discovered") -> list[PluginRef]:
    """Return all plugins of a name; several, if kinds or distributions share it.

    :raises HostcoreError: When there is none.
    """
    from hostcore.job.names import canonical
    from hostcore.plugins.resolve import resolve

    if ":" in name:
        return [resolve(name, "trainer", found)]
    distribution, _, plain = name.rpartition("/")
    refs = [
        ref
        for ref in found.refs
        if ref.name == plain and (not distribution or canonical(ref.dist or "") == canonical(distribution))
    ]
    if not refs:
        import difflib

        near = difflib.get_close_matches(plain, {ref.name for ref in found.refs}, n=3)
        raise HostcoreError(
            f"no plugin {name!r} is installed",
            code="plugin.unknown",
            hint=f"did you mean {' or '.join(near)}?" if near else "`hostcore plugins` shows what is installed",
        )
    return refs
