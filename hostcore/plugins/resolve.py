"""Resolution: from the names in a job to plugins made for the installed contract. Nothing is imported."""

import difflib
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from hostcore.errors import for_each
from hostcore.job.names import DATA_SECTIONS, as_import_path, canonical
from hostcore.plugins.errors import PluginError, named
from hostcore.plugins.installed import BrokenDistribution, Discovered, distribution_on, import_path
from hostcore.plugins.published import current_distribution, how_to_install
from hostcore_builtin_plugins.extras import clone_of_hostcore, install_command, pip_source
from hostcore_hookspecs.api_version import API_VERSION
from hostcore_hookspecs.kinds import KINDS, Room
from hostcore_hookspecs.plan import PluginRef

if TYPE_CHECKING:
    from packaging.requirements import Requirement

CONTRACT: Final = "hostcore-hookspecs"
#: The comparisons of a requirement that ask for a version or later ones.
_FROM: Final = (">=", ">", "~=", "==")
_HOW_TO_LOOK = "`hostcore plugins` shows what is installed"


@attrs.frozen(kw_only=True, eq=False)
class Selected:
    """One use of a plugin by a job."""

    ref: PluginRef
    #: As the job gives them.
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    #: Pointer to the settings in the job: ``/hyperparams``, ``/dataset``, ``/callbacks/0``.
    pointer: str = ""
    #: Names this use: ``trainer:flight_delay``, ``data_source:parquet#train``, ``callback:0:early-stopping``; of the
    #: second part of a mixture, ``data_source:parquet#train/1``.
    use: str = attrs.field(default=attrs.Factory(lambda self: f"{self.ref.kind}:{self.ref.name}", takes_self=True))
    #: Pointer to the name of the plugin in the job: ``/trainer``, ``/dataset/source``, ``/callbacks/0``.
    named_at: str = attrs.field(default=attrs.Factory(lambda self: self.pointer, takes_self=True))


def in_room(selected: Sequence[Selected], room: Room) -> tuple[Selected, ...]:
    """Return the uses whose plugins run in a room: worker and supervisor load their own alone."""
    return tuple(use for use in selected if KINDS[use.ref.kind].room == room)


def resolve(
    name: str, kind: str, discovered: Discovered, *, pointer: str | None = None, job_dir: Path | None = None
) -> PluginRef:
    """Return the plugin that a name stands for.

    :param name: ``name``, ``distribution/name`` or ``module:symbol``. A ``name`` that nothing registers may be that of
        a module alone, ``my_package.train``, which is short for ``my_package.train:``.
    :param kind: A key of :data:`hostcore_hookspecs.KINDS`.
    :param pointer: Where the job names it.
    :param job_dir: The job file's folder, where modules are searched, too.
    :raises PluginError: ``plugin.unknown``, ``plugin.conflict`` or ``plugin.import_path``.
    """
    if ":" in name:
        return _import_path(name, kind, pointer)
    distribution, _, plain = name.rpartition("/")
    distribution = distribution and current_distribution(distribution, kind, plain)
    matches = [
        ref
        for ref in discovered.refs
        if (ref.kind, ref.name) == (kind, plain)
        and (not distribution or canonical(ref.dist or "") == canonical(distribution))
    ]
    if not matches and _is_module(name, kind, discovered, job_dir):
        return _import_path(f"{name}:", kind, pointer)
    if not matches and name.endswith(".py") and KINDS[kind].room == "worker":
        raise _file(name, kind, pointer)
    if not matches:
        raise _unknown(name, kind, discovered, pointer)
    if len(matches) > 1:
        raise _conflict(plain, matches, pointer)
    return matches[0]


def _is_module(name: str, kind: str, discovered: Discovered, job_dir: Path | None) -> bool:
    """Return whether a name is that of a module which a worker can import. Nothing is imported."""
    top = name.partition(".")[0]
    if KINDS[kind].room != "worker" or top in sys.stdlib_module_names or how_to_install(kind, name):
        return False
    places: Sequence[str] = [*(discovered.worker_path or sys.path), *([str(job_dir)] if job_dir else [])]
    spec = None
    for part in name.split("."):
        spec = PathFinder.find_spec(part, places) if part.isidentifier() else None
        if spec is None:
            return False
        places = spec.submodule_search_locations or ()
    return spec is not None and spec.origin is not None  # a folder of any name is a package without an origin


def unknown_trainer(
    document: Mapping[str, Any], discovered: Discovered, *, job_dir: Path | None = None
) -> Iterator[PluginError]:
    """Return the errors of the name of the trainer in a document that is no job for other reasons."""
    name = document.get("trainer")
    if isinstance(name, str) and ":" not in name and "environment" not in document:
        try:
            resolve(name, "trainer", discovered, pointer="/trainer", job_dir=job_dir)
        except PluginError as error:
            yield error


def select(spec: Any, discovered: Discovered, *, room: Room | None = None) -> tuple[Selected, ...]:
    """Return the uses of plugins in a job, in the order trainer, data sources, callbacks, reporters, …, launcher.

    :param spec: A ``JobSpec``.
    :param room: Only plugins of this room: the others may be installed elsewhere.
    :raises Errors: All names that cannot be resolved, and all plugins made for another version of the contract.
    """

    def selected(use: tuple[str, str, Mapping[str, Any], str, str, str]) -> Selected:
        kind, name, settings, pointer, named_at, label = use
        ref = resolve(name, kind, discovered, pointer=named_at, job_dir=getattr(spec, "job_dir", None))
        check_distribution(ref, pointer=named_at, path=discovered.path_of(ref))
        return Selected(ref=ref, settings=settings, pointer=pointer, use=label.format(ref.name), named_at=named_at)

    return tuple(for_each([use for use in _named_by(spec) if room in (None, KINDS[use[0]].room)], selected))


def _named_by(spec: Any) -> Iterator[tuple[str, str, Mapping[str, Any], str, str, str]]:
    """Yield kind, name, settings, pointer to them, pointer to the name, and label with a place for the name, a use."""
    yield "trainer", spec.trainer, spec.hyperparams, "/hyperparams", "/trainer", "trainer:{}"
    for key in DATA_SECTIONS:
        dataset = getattr(spec, key, None)
        if dataset is not None and dataset.source is not None:
            split = "train" if key == "dataset" else key
            parts = [(f"/{key}/of/{i}", part, f"/{i}") for i, part in enumerate(getattr(dataset, "of", None) or ())]
            for at, data, place in (("/" + key, dataset, ""), *parts):
                label = f"data_source:{{}}#{split}{place}"
                yield "data_source", data.source, data.settings, at, f"{at}/source", label
    for kind in (one for one in KINDS.values() if one.is_listed):
        for position, component in enumerate(getattr(spec, kind.job_key)):
            at = f"/{kind.job_key}/{position}"
            yield kind.name, component.use, component.settings, at, at, f"{kind.name}:{position}:{{}}"
    if spec.launcher is not None:
        yield "launcher", spec.launcher.use, spec.launcher.settings, "/launcher", "/launcher", "launcher:{}"


def contract_requirements(distribution: str, path: Sequence[str] | None = None) -> "tuple[Requirement, ...]":
    """Return the requirements of a distribution on the contract, without extras and markers that do not apply.

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


def check_distribution(ref: PluginRef, *, pointer: str | None = None, path: Sequence[str] | None = None) -> None:
    """Refuse a plugin whose distribution is installed in another version, or does not admit the installed contract.

    :param path: See :func:`contract_requirements`.
    :raises PluginError: ``plugin.version``, ``plugin.contract_version``.
    """
    from packaging.requirements import InvalidRequirement

    if ref.dist is None:
        return
    try:
        version = distribution_on(path, ref.dist).version
    except PackageNotFoundError:
        version = None
    if version != ref.version:
        raise PluginError(
            f"{named(ref)} was planned, but {f'{ref.dist} {version}' if version else 'nothing of it'} is installed",
            code="plugin.version",
            pointer=pointer,
            plugin=ref.provenance,
            hint="All processes of a run have the same plugins: install that version here, or start the run again.",
        )
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
    """Return the distributions with plugins that require no version of the contract.

    They work today and may break without a warning when the contract changes.
    """
    places = {ref.dist: discovered.path_of(ref) for ref in discovered.refs if ref.dist is not None}
    return tuple(name for name, path in places.items() if not _declares(name, path))


def _declares(distribution: str, path: Sequence[str] | None) -> bool:
    lines = distribution_on(path, distribution).requires or []
    return any(canonical(line).startswith(CONTRACT) for line in lines)


def _import_path(name: str, kind: str, pointer: str | None) -> PluginRef:
    label = KINDS[kind].label
    if KINDS[kind].room != "worker":
        raise PluginError(
            f"{name!r} is an import path, and no {label} can be given as one: it runs outside the worker, which alone"
            f" imports code from the job's folder",
            code="plugin.import_path",
            pointer=pointer,
            hint=f"Make it a package that registers it under {KINDS[kind].group!r}, install it, and write its name.",
        )
    module, _, symbol = name.partition(":")
    if import_path(name if symbol else name + "guess") is None:
        suggestion = f"{as_import_path(module)}{symbol}"
        fits = suggestion != name and import_path(suggestion if symbol else suggestion + "guess") is not None
        raise PluginError(
            f"{name!r} is not an import path: it has the form module:symbol, such as my_package.train:MyTrainer",
            code="plugin.import_path",
            pointer=pointer,
            hint=f"Write {suggestion!r}; modules are looked up in the job file's folder, too." if fits else None,
        )
    return PluginRef(kind=kind, name=name, value=name)


def _conflict(name: str, matches: Sequence[PluginRef], pointer: str | None) -> PluginError:
    distributions = dict.fromkeys(f"{ref.dist} {ref.version}" for ref in matches)
    if len(distributions) == 1:
        only = matches[0]
        values = ", ".join(ref.value for ref in matches)
        return PluginError(
            f"{only.dist} {only.version} registers {name!r} more than once under {KINDS[only.kind].group}: {values}",
            code="plugin.conflict",
            pointer=pointer,
            hint=f"This is a mistake in {only.dist}; until it is fixed, write the import path: {only.value!r}"
            if KINDS[only.kind].room == "worker"
            else f"This is a mistake in {only.dist}; its author has to fix it.",
        )
    choices = " or ".join(f"{ref.dist}/{name}" for ref in matches)
    return PluginError(
        f"{name!r} is provided by: {', '.join(distributions)}; write {choices}",
        code="plugin.conflict",
        pointer=pointer,
        hint="Or uninstall the one that is not needed.",
    )


def _file(name: str, kind: str, pointer: str | None) -> PluginError:
    return PluginError(
        f"no {KINDS[kind].label} is called {name!r}; did you mean {as_import_path(name)!r}?",
        code="plugin.unknown",
        pointer=pointer,
        hint="Code in a file is named by its import path, module:symbol; modules are looked up in the job file's "
        "folder, too.",
    )


def _unknown(name: str, kind: str, discovered: Discovered, pointer: str | None) -> PluginError:
    distribution, _, plain = name.rpartition("/")
    installed = {canonical(ref.dist or "") for ref in discovered.refs}
    label = KINDS[kind].label
    known = sorted({ref.name for ref in discovered.refs if ref.kind == kind})
    near = difflib.get_close_matches(plain.lower(), known, n=3, cutoff=0.6)
    if distribution and canonical(distribution) not in installed:
        message = f"no {label} {name!r}: no installed distribution {distribution!r} has plugins"
        bring = f"`pip install {distribution}` if that is the package"
        if canonical(distribution).startswith("hostcore-"):  # not on the index, where anybody could take the name
            bring = "install the package from where its author publishes it"
    elif distribution:
        message = f"no {label} {name!r}: {distribution} does not register a {label} {plain!r}"
        bring = f"`pip install --upgrade {pip_source(distribution)}` if a newer version has it"
    else:
        message = f"no {label} is called {name!r}"
        bring = f"install the package that registers it under {KINDS[kind].group!r}: its author says which one that is"
    if command := how_to_install(kind, name):
        message, bring, near = f"the {label} {plain!r} is not installed", f"`{command}` brings it", []
    if near:
        message += f"; did you mean {' or '.join(map(repr, near))}?"
    hints = [*_elsewhere(plain, kind, discovered), f"{_HOW_TO_LOOK}; {bring}.", *_what_is_broken(discovered.broken)]
    return PluginError(message, code="plugin.unknown", pointer=pointer, hint=" ".join(hints))


def _elsewhere(name: str, kind: str, discovered: Discovered) -> list[str]:
    """Return hints about plugins of other kinds that have the name."""
    others = [(ref, KINDS[ref.kind].label) for ref in discovered.refs if ref.name == name and ref.kind != kind]
    return [
        f"{ref.provenance} is {'an' if label[0] in 'aeiou' else 'a'} {label}; "
        f"those are named under {KINDS[ref.kind].job_key!r}."
        for ref, label in others
    ]


def _what_is_broken(broken: Sequence[BrokenDistribution]) -> list[str]:
    if not broken:
        return []
    names = ", ".join(dict.fromkeys(distribution.distribution for distribution in broken))
    return [f"It may also come from a distribution that could not be read: {names} (`hostcore plugins` says why)."]
