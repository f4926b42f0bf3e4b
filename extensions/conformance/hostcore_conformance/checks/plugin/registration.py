"""What only the distribution can get wrong: its entry points, its name, what it says about the contract."""

from typing import Any, Final

from hostcore.plugins.discover import canonical, discover
from hostcore.plugins.requirements import CONTRACT, contract_requirements
from hostcore_conformance.check import check
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.api_version import API_VERSION

_LOWER: Final = (">=", ">", "~=", "==", "===")


def _is_of_a_distribution(subject: Subject) -> str | None:
    return None if subject.ref.dist else "it is given as an import path, and belongs to no distribution"


@check("plugin.registered", capability=_is_of_a_distribution)
def registered(subject: Subject) -> None:
    """Every entry point of the distribution is one that the host understands.

    Looks at all of the distribution's entry points in groups that begin with `hostcore.`: the group must exist, the
    name must consist of a-z, 0-9, '.', '_' and '-' and start with a letter or a digit, the value must be of the form
    module:Class. One that is wrong is left out by the host, and shown as broken by `hostcore plugins`; the user finds
    that the plugin does not exist. Usual causes: hostcore.trainer for hostcore.trainers, My_Trainer for my-trainer, a
    file path for a module.
    """
    broken = [one for one in discover().broken if canonical(one.distribution) == canonical(subject.ref.dist or "")]
    if broken:
        raise ConformanceError(
            expected="entry points that the host understands",
            got="; ".join(one.error for one in broken),
            fix=f"Correct [project.entry-points] in the pyproject.toml of {subject.ref.dist}, and install it again.",
        )


@check("plugin.name_unique", capability=_is_of_a_distribution)
def name_unique(subject: Subject) -> None:
    """No other plugin of its kind that is installed here has its name.

    Two plugins of one name are an error for every job that uses it: nothing shadows silently, and users must write
    distribution/name. The plugins that ship with hostcore are always there, so a name of theirs (parquet, terminal,
    fsspec) is never free. A name that says what the plugin is for, such as acme-webhook, stays unique.
    """
    shared = discover().conflicts.get((subject.kind.name, subject.name), ())
    others = [f"{ref.dist} {ref.version} ({ref.value})" for ref in shared if ref != subject.ref]
    if others:
        raise ConformanceError(
            expected=f"that no other {subject.kind.label} here is called {subject.name!r}",
            got=f"it is also registered by {', '.join(others)}",
            fix=f"Choose a name with the distribution's own in it: {canonical(subject.ref.dist or '')}.",
        )


@check("plugin.contract_required", capability=_is_of_a_distribution)
def contract_required(subject: Subject) -> None:
    """The distribution requires hostcore-hookspecs, from the version on that it was made for.

    Without it, pip installs the plugin beside any contract, and the first sign of a misfit is an error in the middle of
    a run; with it, pip refuses or upgrades. A requirement without a lower bound (hostcore-hookspecs, or
    hostcore-hookspecs<2) does not say what the plugin needs. The host itself (hostcore) need not be required.
    """
    found = _requirements(subject)
    if not any(clause.operator in _LOWER for one in found for clause in one.specifier):
        raise ConformanceError(
            expected=f"a requirement on {CONTRACT} with a lower bound",
            got=f"{', '.join(map(str, found)) or 'none'} in the metadata of {subject.ref.dist}",
            fix=f'Write dependencies = ["{_recommended()}"] in pyproject.toml, and install it again.',
        )


@check(
    "plugin.contract_range", level="should", requires=("plugin.contract_required",), capability=_is_of_a_distribution
)
def contract_range(subject: Subject) -> None:
    """The required contract ends before the next major version, and not sooner.

    A new major version may take away what the plugin uses, so a requirement that is open above (>=1) promises too much.
    Within a major version the contract only grows, so one that ends sooner (==1.0.0, <1.1) keeps users from upgrading
    the host for no reason, and from installing two plugins whose pins differ.
    """
    found = _requirements(subject)
    major, minor = (int(part) for part in API_VERSION.split(".")[:2])
    newer, next_major = f"{major}.{minor + 1}.0", f"{major + 1}.0.0"
    admits = {version: all(one.specifier.contains(version) for one in found) for version in (newer, next_major)}
    if admits[next_major] or not admits[newer]:
        raise ConformanceError(
            expected=f"a range that admits {newer} and not {next_major}",
            got=f"{', '.join(map(str, found))}, which {'admits both' if admits[newer] else f'does not admit {newer}'}",
            fix=f'Write dependencies = ["{_recommended()}"] in pyproject.toml.',
        )


def _requirements(subject: Subject) -> tuple[Any, ...]:
    return contract_requirements(subject.ref.dist or "")


def _recommended() -> str:
    major = int(API_VERSION.partition(".")[0])
    return f"{CONTRACT}>={API_VERSION.removesuffix('.0')},<{major + 1}"
