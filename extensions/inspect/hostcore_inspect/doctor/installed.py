"""Checks of the interpreter, the requirements of hostcore and the plugins, by metadata alone."""

import platform
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Final

import attrs

from hostcore.plugins.errors import PluginError
from hostcore.plugins.installed import Discovered
from hostcore.plugins.resolve import CONTRACT, check_distribution, undeclared
from hostcore_builtin_plugins.extras import install_command
from hostcore_hookspecs.api_version import API_VERSION
from hostcore_inspect.doctor.finding import DoctorFinding

_OWN: Final = "hostcore"
_BUILTIN: Final = "hostcore-builtin-plugins"
_MOST_NAMED: Final = 3


def python_finding() -> DoctorFinding:
    """Check the interpreter, which the worker shares."""
    version, implementation = platform.python_version(), platform.python_implementation()
    usual = implementation == "CPython"
    return DoctorFinding(
        name="python",
        status="ok" if usual else "warning",
        finding=f"{implementation} {version}, {sys.executable}",
        hint=None if usual else "torch and pyarrow are built for CPython; nothing else is tested",
        details={"version": version, "implementation": implementation, "executable": sys.executable},
    )


def requirements_finding(distribution: str = _OWN) -> DoctorFinding:
    """Check that the requirements of a distribution are installed in a version that it takes."""
    from packaging.requirements import Requirement

    versions, problems = {}, []
    for line in metadata.requires(distribution) or []:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = versions[requirement.name] = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            problems.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            problems.append(f"{requirement} is required, and {version} is installed")
    own = metadata.version(distribution)
    return DoctorFinding(
        name="requirements",
        status="failed" if problems else "ok",
        finding=_several(problems) or f"{distribution} {own} has all {len(versions)} distributions that it requires",
        hint=install_command() if problems else None,
        details={"version": own, "versions": versions, "problems": problems},
    )


def plugins_finding(found: Discovered) -> DoctorFinding:
    """Find plugins that cannot be used, or not by their names alone. Only the host's own are needed by every job."""
    refused = list(_refused(found))
    conflicts = [
        f"{name!r} is provided by {' and '.join(str(ref.dist) for ref in refs)}"
        for (_, name), refs in found.conflicts.items()
    ]
    problems = [
        *(f"{one.distribution} is broken: {one.error}" for one in found.broken),
        *refused,
        *conflicts,
        *(f"{name} does not say which {CONTRACT} it was made for" for name in undeclared(found)),
    ]
    distributions = {ref.dist for ref in found.refs}
    missing = _BUILTIN not in distributions or any(one.startswith(f"{_BUILTIN} ") for one in refused)
    counts = f"{len(found.refs)} plugins of {len(distributions)} distributions, contract {API_VERSION}"
    return DoctorFinding(
        name="plugins",
        status="failed" if missing else "warning" if problems else "ok",
        finding=_several(problems) or (f"{_BUILTIN} is missing" if missing else counts),
        hint="`hostcore plugins` shows all of it; only jobs that use them are concerned"
        if problems and not missing
        else install_command()
        if missing
        else None,
        details={
            "contract": API_VERSION,
            "count": len(found.refs),
            "broken": [attrs.asdict(one) for one in found.broken],
            "problems": problems,
        },
    )


def _refused(found: Discovered) -> Iterator[str]:
    """Find distributions whose plugins were made for another contract."""
    for ref in {ref.dist: ref for ref in found.refs}.values():
        try:
            check_distribution(ref)
        except PluginError as error:
            yield error.message


def _several(problems: Sequence[str]) -> str:
    more = f"; and {len(problems) - _MOST_NAMED} more" if len(problems) > _MOST_NAMED else ""
    return "; ".join(problems[:_MOST_NAMED]) + more
