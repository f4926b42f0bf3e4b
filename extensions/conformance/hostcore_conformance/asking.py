"""Asking a plugin all its checks from Python."""

import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hostcore import __version__
from hostcore_conformance.check import checks_for, table
from hostcore_conformance.example import Example, declared_example, make_example
from hostcore_conformance.result import CheckResult, Report
from hostcore_conformance.session import Session
from hostcore_conformance.subject import find_plugin
from hostcore_hookspecs.api_version import API_VERSION
from hostcore_hookspecs.plan import PluginRef


def open_session(
    name: str,
    *,
    kind: str | None = None,
    settings: Mapping[str, Any] | None = None,
    job: str | Path | Mapping[str, Any] | None = None,
    harness: Any = None,
    expected_failures: Mapping[str, str] | None = None,
    start: Path | None = None,
) -> Session:
    """Find a plugin and its example; no check is made yet.

    :param start: The folder from which on a ``pyproject.toml`` is looked for; the working directory if not given.
    :return: To be closed.
    :raises HostcoreError: There is no such plugin, or its example cannot be used.
    """
    ref = find_plugin(name, kind)
    start = start or Path.cwd()
    base = declared_example(ref.name, ref.kind, start=start) or Example(folder=start)
    example = make_example(settings=settings, job=job, harness=harness, expected_failures=expected_failures, base=base)
    return Session(ref, example)


def check_plugin(
    name: str,
    *,
    kind: str | None = None,
    settings: Mapping[str, Any] | None = None,
    job: str | Path | Mapping[str, Any] | None = None,
    harness: Any = None,
    expected_failures: Mapping[str, str] | None = None,
    only: str | Sequence[str] = (),
) -> list[CheckResult]:
    """Make all checks of a plugin, in this process.

    What is not given comes from ``[tool.hostcore.conformance.NAME]`` of the nearest ``pyproject.toml``.

    :param name: ``name``, ``distribution/name`` or, with a kind, ``module:symbol``.
    :param kind: Needed where plugins of several kinds share the name.
    :param settings: As they would stand in a job.
    :param job: Trainers and callbacks: a small job that uses it; a file, or the job itself.
    :param harness: Shows the other side of a reporter or an uploader.
    :param expected_failures: The reason for each check that is known to fail, by id.
    :param only: An id (``trainer.killed[setup]``), a check with all its variants, a pattern (``trainer.*``), or several
        of these.
    :return: One result a check, in order.
    :raises HostcoreError: There is no such plugin, or its example cannot be used.
    """
    with open_session(
        name, kind=kind, settings=settings, job=job, harness=harness, expected_failures=expected_failures
    ) as session:
        return list(session.run(only))


def report_on(ref: PluginRef, results: Sequence[CheckResult], *, complete: bool = True) -> Report:
    """Build the report of a plugin's checks, with the versions that they were made with."""
    return Report(
        kind=ref.kind,
        name=ref.name,
        distribution=ref.dist,
        version=ref.version,
        hostcore=__version__,
        api_version=API_VERSION,
        python=platform.python_version(),
        created_ms=time.time_ns() // 1_000_000,
        results=tuple(results),
        complete=complete,
    )


def reports_of(outcomes: Iterable[Mapping[str, Any]]) -> list[Report]:
    """A report for each plugin, from what tests have carried: ``{"plugin": …, "result": …}``."""
    results: dict[PluginRef, list[CheckResult]] = {}
    for outcome in outcomes:
        ref = PluginRef(**outcome["plugin"])
        results.setdefault(ref, []).append(CheckResult.from_dict(outcome["result"]))
    order = {check.id: place for place, check in enumerate(table().values())}
    return [
        report_on(
            ref,
            sorted(found, key=lambda result: order[result.id]),
            complete={result.id for result in found} == {check.id for check in checks_for(ref.kind)},
        )
        for ref, found in results.items()
    ]
