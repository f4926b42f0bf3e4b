"""Whether a plugin was made for the contract that is installed. Checked before anything of it is imported."""

from typing import TYPE_CHECKING, Final

from hostcore.job.names import canonical
from hostcore.plugins.errors import PluginError
from hostcore.plugins.installed import Discovered, distribution_on
from hostcore_builtin_plugins.extras import clone_of_hostcore, install_command, pip_source
from hostcore_hookspecs.api_version import API_VERSION
from hostcore_hookspecs.plan import PluginRef

if TYPE_CHECKING:
    from collections.abc import Sequence

    from packaging.requirements import Requirement

CONTRACT = "hostcore-hookspecs"
#: The comparisons of a requirement that ask for a version or later ones.
_FROM: Final = (">=", ">", "~=", "==")


def contract_requirements(distribution: str, path: "Sequence[str] | None" = None) -> "tuple[Requirement, ...]":
    """What a distribution requires of the contract, here: extras and markers that do not apply are left out.

    :param path: The folders that it is installed in; ``sys.path`` if None.
    :raises packaging.requirements.InvalidRequirement: When such a line cannot be read.
    """
    from packaging.requirements import Requirement

    lines = distribution_on(path, distribution).requires or []
    # Other requirements are not ours to judge, so their lines are not even parsed.
    ours = (Requirement(line) for line in lines if canonical(line).startswith(CONTRACT))
    return tuple(
        requirement
        for requirement in ours
        if canonical(requirement.name) == CONTRACT
        and (requirement.marker is None or requirement.marker.evaluate({"extra": ""}))
    )


def check_contract_version(ref: PluginRef, *, pointer: str | None = None, path: "Sequence[str] | None" = None) -> None:
    """Refuse a plugin whose distribution does not admit the installed contract.

    :param path: See :func:`contract_requirements`.
    :raises PluginError: ``plugin.contract_version``.
    """
    from packaging.requirements import InvalidRequirement

    if ref.dist is None:
        return
    try:
        unmet = [
            requirement
            for requirement in contract_requirements(ref.dist, path)
            if not requirement.specifier.contains(API_VERSION, prereleases=True)
        ]
    except InvalidRequirement as error:
        raise PluginError(
            f"{ref.dist} {ref.version} has an unreadable requirement on {CONTRACT}: {error}",
            code="plugin.contract_version",
            pointer=pointer,
            plugin=ref.provenance,
            hint=f"pip install --force-reinstall {pip_source(ref.dist)}; if that does not help, tell its author.",
        ) from error
    if unmet:
        raise PluginError(
            f"{ref.dist} {ref.version} requires {', '.join(map(str, unmet))},"
            f" but {CONTRACT} {API_VERSION} is installed",
            code="plugin.contract_version",
            pointer=pointer,
            plugin=ref.provenance,
            hint=_what_to_install(ref, unmet),
        )


def _what_to_install(ref: PluginRef, unmet: "Sequence[Requirement]") -> str:
    from packaging.version import Version

    bounds = [one for requirement in unmet for one in requirement.specifier]
    installed = Version(API_VERSION)
    newer = any(one.operator in _FROM and Version(one.version.removesuffix(".*")) >= installed for one in bounds)
    if not newer:
        source = pip_source(ref.dist or ref.name)
        return f"It was made for an older contract; look for a newer version: pip install --upgrade {source}"
    wanted = " ".join(f"'{CONTRACT}{requirement.specifier}'" for requirement in unmet)
    command = f"pip install --upgrade hostcore {wanted}"
    if clone := clone_of_hostcore():
        command = f"update the clone {clone}, then {install_command()}"
    return f"It needs a newer contract, and a host that knows it: {command}"


def undeclared(discovered: Discovered) -> tuple[str, ...]:
    """The distributions with plugins that do not say which contract they were made for.

    They work today and may break without a warning when the contract changes.
    """
    places = {ref.dist: discovered.path_of(ref) for ref in discovered.refs if ref.dist is not None}
    return tuple(name for name, path in places.items() if not _declares(name, path))


def _declares(distribution: str, path: "Sequence[str] | None") -> bool:
    lines = distribution_on(path, distribution).requires or []
    return any(canonical(line).startswith(CONTRACT) for line in lines)
