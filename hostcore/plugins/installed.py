"""Installed plugins and extensions of the host. Reads the metadata of distributions and imports none of them.

Each distribution is read alone: ``importlib.metadata.entry_points()`` raises for all of them if one is malformed, and
``Distribution.read_text`` returns None for a file that cannot be read, which would hide its plugins silently.
"""

import importlib.util
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from email.parser import HeaderParser
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import PurePath
from typing import Any, Final

import attrs

from hostcore.job.names import canonical
from hostcore_hookspecs.kinds import (
    COMMANDS_GROUP,
    ENVIRONMENTS_GROUP,
    FUNCTIONS_GROUP,
    JOB_OPTIONS_GROUP,
    KINDS,
    RANKS_GROUP,
    RUN_CLIENTS_GROUP,
    RUNS_CODE_GROUP,
    SERVICE_SECTIONS_GROUP,
)
from hostcore_hookspecs.plan import PluginRef

_VALUE = re.compile(r"(?P<module>\w+(\.\w+)*):(?P<symbol>\w+(\.\w+)*)(\s*\[[^\]]*\])?")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_KIND_BY_GROUP = {kind.group: kind.name for kind in KINDS.values()}
#: Groups whose entry points extend the host, and no job names.
_EXTENSIONS: Final = (
    COMMANDS_GROUP,
    RUN_CLIENTS_GROUP,
    ENVIRONMENTS_GROUP,
    FUNCTIONS_GROUP,
    JOB_OPTIONS_GROUP,
    RANKS_GROUP,
    SERVICE_SECTIONS_GROUP,
)
_PREFIX = "hostcore."
#: The distribution whose commands no other may replace.
_HOST: Final = "hostcore"


def _entry_points(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the entry points of a file, in its order, as ``(group, name, value)``.

    :raises ValueError: At the first line that is neither a group, nor ``name = value``, nor a comment.
    """
    group = None
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.strip()
        if not content or content[0] in "#;":
            continue
        if content[0] == "[":
            if content[-1] != "]":
                raise ValueError(f"entry_points.txt, line {number}: no closing bracket in {content!r}")
            group = content[1:-1].strip()
            continue
        name, equals, value = content.partition("=")
        if group is None or not equals:
            raise ValueError(
                f"entry_points.txt, line {number}: expected {'a [group]' if group is None else 'name = value'},"
                f" found {content!r}"
            )
        yield group, name.strip(), value.strip()


def import_path(value: str) -> tuple[str, str] | None:
    """Return module and symbol of ``module:symbol``, without the extras of an entry point; None of another form."""
    match = _VALUE.fullmatch(value)
    return (match["module"], match["symbol"]) if match else None


def module_and_symbol(value: str) -> tuple[str, str]:
    """Return module and symbol of a value of any form, without extras; ``module:`` has an empty symbol."""
    module, _, symbol = value.partition("[")[0].strip().partition(":")
    return module, symbol


def package_of(value: str) -> str:
    """Return the top-level package or module of ``module:symbol``."""
    return module_and_symbol(value)[0].partition(".")[0]


def find_package(package: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Find a top-level package or module without an import; for a submodule, Python would import its parents.

    :param path: The folders to search; None: where this process imports from.
    """
    return importlib.util.find_spec(package) if path is None else PathFinder.find_spec(package, path)


@attrs.frozen(kw_only=True, order=True)
class Extension:
    """An entry point that extends the host."""

    #: ``hostcore.commands``, for example.
    group: str
    name: str
    dist: str
    version: str
    #: ``module:symbol``.
    value: str


@attrs.frozen(kw_only=True)
class BrokenDistribution:
    """An installed distribution that cannot be used, and the reason. Data: other plugins stay usable."""

    distribution: str
    #: Its metadata folder.
    path: str
    error: str

    @property
    def sentence(self) -> str:
        """Return distribution, error and folder as one sentence."""
        return f"{self.distribution} is broken: {self.error} ({self.path})"


@attrs.frozen(kw_only=True)
class Discovered:
    """The plugins and extensions that are installed."""

    #: By kind, in the order of the documentation, then by name and distribution.
    refs: tuple[PluginRef, ...]
    #: By group, name and distribution.
    extensions: tuple[Extension, ...] = ()
    broken: tuple[BrokenDistribution, ...] = ()
    #: The folders searched for plugins of the worker's room, if that is another environment; None: here, as for all.
    worker_path: tuple[str, ...] | None = None

    def path_of(self, ref: PluginRef) -> tuple[str, ...] | None:
        """Return the folders that a plugin is installed in; None: those of this process."""
        return self.worker_path if KINDS[ref.kind].room == "worker" else None

    def extensions_of(self, group: str) -> Mapping[str, Sequence[Extension]]:
        """Return the extensions of a group by name: several, if distributions share a name."""
        named: dict[str, list[Extension]] = defaultdict(list)
        for one in self.extensions:
            if one.group == group:
                named[one.name].append(one)
        return dict(named)

    @property
    def conflicts(self) -> Mapping[tuple[str, str], tuple[PluginRef, ...]]:
        """Return the plugins that share kind and name, of two distributions or (by mistake) of one."""
        same: dict[tuple[str, str], list[PluginRef]] = defaultdict(list)
        for ref in self.refs:
            same[ref.kind, ref.name].append(ref)
        return {key: tuple(refs) for key, refs in same.items() if len(refs) > 1}


def discover(path: Sequence[str] | None = None) -> Discovered:
    """Return all installed plugins and extensions.

    Of several installations of one distribution the first on the path counts, as it does for ``import``; also when it
    registers nothing.

    :param path: Folders to search; ``sys.path`` if None.
    """
    found: set[PluginRef | Extension] = set()
    broken: list[BrokenDistribution] = []
    seen: set[str] = set()
    for distribution in _distributions(path, broken):
        stem = "?"
        try:
            stem = _stem(distribution)
            if canonical(stem) in seen:
                continue
            seen.add(canonical(stem))
            found.update(_read_entry_points(distribution, stem, broken))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one of them is data, and hides no other
            broken.append(_broken(distribution, stem, error))
    extensions = sorted(one for one in found if isinstance(one, Extension))
    own = {one.name for one in extensions if one.dist == _HOST and one.group == COMMANDS_GROUP}
    taken = [one for one in extensions if one.group == COMMANDS_GROUP and one.name in own and one.dist != _HOST]
    broken += [_taken(one) for one in taken]
    order = {name: position for position, name in enumerate(KINDS)}
    return Discovered(
        refs=tuple(
            sorted(
                (ref for ref in found if isinstance(ref, PluginRef)),
                key=lambda ref: (order[ref.kind], ref.name, ref.dist or "", ref.value),
            )
        ),
        extensions=tuple(one for one in extensions if one not in taken),
        broken=tuple(broken),
    )


def distribution_on(path: Sequence[str] | None, name: str) -> metadata.Distribution:
    """Return a distribution, with all that its metadata has.

    :param path: Folders to search; None: where this process imports from.
    :raises importlib.metadata.PackageNotFoundError: When it is not there.
    """
    if path is None:
        return metadata.distribution(name)
    for found in metadata.distributions(name=name, path=list(path)):
        return found
    raise metadata.PackageNotFoundError(name)


def _distributions(path: Sequence[str] | None, broken: list[BrokenDistribution]) -> Iterator[metadata.Distribution]:
    importlib.invalidate_caches()  # of listings of folders: something may have been installed a moment ago
    places = sys.path if path is None else path
    # `import` leaves out what is no string, too.
    found = iter(metadata.distributions(path=[place for place in places if isinstance(place, str)]))
    while True:
        try:
            distribution = next(found)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - a third-party finder on sys.meta_path
            broken.append(BrokenDistribution(distribution="?", path="sys.meta_path", error=_reason(error)))
            return
        yield distribution


def _folder(distribution: metadata.Distribution) -> Any:
    """Return the metadata folder; None if a finder of another kind has found the distribution.

    A private attribute, but only the folder has the name without parsing METADATA, and errors of its files.
    """
    return getattr(distribution, "_path", None)


def _stem(distribution: metadata.Distribution) -> str:
    """Return the name in ``my_package-1.0.dist-info``, ``my_package-1.0-py3.11.egg-info``, ``my_package.egg-info``."""
    folder = _folder(distribution)
    if folder is None:
        return distribution.metadata["Name"]
    return PurePath(str(folder)).name.removesuffix(".dist-info").removesuffix(".egg-info").partition("-")[0]


def _read(distribution: metadata.Distribution, file: str) -> str | None:
    """Return a metadata file; None if there is none.

    :raises OSError: When it cannot be read.
    :raises ValueError: When it is not UTF-8.
    """
    folder = _folder(distribution)
    if folder is None:
        return distribution.read_text(file)
    try:
        return str((folder / file).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, KeyError):
        return None


def _read_entry_points(
    distribution: metadata.Distribution, stem: str, broken: list[BrokenDistribution]
) -> Iterator[PluginRef | Extension]:
    found = [one for one in _entry_points(_read(distribution, "entry_points.txt") or "") if one[0].startswith(_PREFIX)]
    if not found:
        return
    if stem.startswith("~"):
        raise ValueError("the remains of an interrupted pip run; delete this folder")
    name, version = _name_and_version(distribution)
    registered = {import_path(value) for group, _, value in found if group in _KIND_BY_GROUP}
    runs_code = {import_path(value) for group, _, value in found if group == RUNS_CODE_GROUP}
    for group, entry, value in found:
        problem = _problem(group, entry, value, registered)
        if problem:
            broken.append(_broken(distribution, name, ValueError(problem)))
        elif group in _EXTENSIONS:
            yield Extension(group=group, name=entry, value=value, dist=name, version=version)
        elif group in _KIND_BY_GROUP:
            yield PluginRef(
                kind=_KIND_BY_GROUP[group],
                name=entry,
                value=value,
                dist=name,
                version=version,
                runs_code=import_path(value) in runs_code,
            )


def _problem(group: str, entry: str, value: str, registered: Collection[tuple[str, str] | None]) -> str | None:
    """Return the fault of an entry point, or None.

    :param registered: Module and symbol of each plugin of the distribution.
    """
    groups = (*_KIND_BY_GROUP, *_EXTENSIONS, RUNS_CODE_GROUP)
    if group not in groups:
        return f"hostcore has no entry-point group {group!r}; it has {', '.join(groups)}"
    if not _NAME.fullmatch(entry):
        return f"{entry!r} in {group} is not a valid name: a-z, 0-9, '.', '_', '-', starting with a-z or 0-9"
    if import_path(value) is None:
        return f"{entry} = {value!r} in {group} is not of the form module:symbol"
    if group == RUNS_CODE_GROUP and import_path(value) not in registered:
        return f"{entry} = {value!r} in {group} is no plugin of this distribution"
    return None


def _name_and_version(distribution: metadata.Distribution) -> tuple[str, str]:
    text = _read(distribution, "METADATA") or _read(distribution, "PKG-INFO")
    if not text:
        raise ValueError("METADATA is missing or empty; reinstall the distribution")
    headers = HeaderParser().parsestr(text.partition("\n\n")[0])  # a description follows, often a long one
    name, version = headers.get("Name"), headers.get("Version")
    if not name or not version:
        raise ValueError(f"METADATA has no {'Version' if name else 'Name'}; reinstall the distribution")
    return name, version


def _broken(distribution: metadata.Distribution, name: str, error: Exception) -> BrokenDistribution:
    return BrokenDistribution(distribution=name, path=str(_folder(distribution) or "?"), error=_reason(error))


def _taken(extension: Extension) -> BrokenDistribution:
    error = f"{extension.name!r} in {extension.group} is a command of {_HOST} itself: it needs another name"
    return BrokenDistribution(distribution=extension.dist, path=extension.value, error=error)


def _reason(error: Exception) -> str:
    """Return the message of our own findings; that of anything else with its type, often the clearer part."""
    if type(error) is ValueError:
        return str(error)
    return f"{type(error).__name__}: {error}"
