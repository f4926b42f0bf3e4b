"""Discovery: which plugins are installed. Reads metadata alone and imports no plugin.

``entry_points.txt`` is not read by ``importlib.metadata``: a malformed file makes it raise ``TypeError`` about a tuple,
and what it tolerates differs between Python versions. The format:
https://packaging.python.org/en/latest/specifications/entry-points/
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import attrs

from hostcore.job.names import canonical
from hostcore.plugins.installed import Extension, Installed, installed
from hostcore_hookspecs.kinds import (
    COMMANDS_GROUP,
    ENVIRONMENTS_GROUP,
    FUNCTIONS_GROUP,
    JOB_OPTIONS_GROUP,
    KINDS,
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
    SERVICE_SECTIONS_GROUP,
)
_GROUP_PREFIX = "hostcore."
#: The distribution whose commands no other may replace.
_HOST: Final = "hostcore"


class MalformedEntryPointsError(ValueError):
    """The file is not what the format says; the message says which line."""


def entry_points(text: str) -> Iterator[tuple[str, str, str]]:
    """The entry points of a file, in its order, as ``(group, name, value)``.

    :raises MalformedEntryPointsError: At the first line that is neither a group, nor ``name = value``, nor a comment.
    """
    group = None
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.strip()
        if not content or content[0] in "#;":
            continue
        if content[0] == "[":
            if content[-1] != "]":
                raise MalformedEntryPointsError(f"entry_points.txt, line {number}: no closing bracket in {content!r}")
            group = content[1:-1].strip()
            continue
        name, equals, value = content.partition("=")
        if group is None or not equals:
            raise MalformedEntryPointsError(
                f"entry_points.txt, line {number}: expected {'a [group]' if group is None else 'name = value'},"
                f" found {content!r}"
            )
        yield group, name.strip(), value.strip()


def import_path(value: str) -> tuple[str, str] | None:
    """Module and symbol of ``module:symbol``, without the extras that entry points may carry; None if it is not one."""
    match = _VALUE.fullmatch(value)
    return (match["module"], match["symbol"]) if match else None


@attrs.frozen(kw_only=True)
class BrokenDistribution:
    """Something installed that cannot be used, and why. Data, not an exception: other plugins stay usable."""

    distribution: str
    #: Its metadata folder.
    path: str
    error: str

    @property
    def sentence(self) -> str:
        """What people are told of it."""
        return f"{self.distribution} is broken: {self.error} ({self.path})"


@attrs.frozen(kw_only=True)
class Discovered:
    """What is installed."""

    #: By kind, in the order of the documentation, then by name and distribution.
    refs: tuple[PluginRef, ...]
    #: By group, name and distribution.
    extensions: tuple[Extension, ...] = ()
    broken: tuple[BrokenDistribution, ...] = ()
    #: Where the plugins of the worker's room were looked for, if that is another environment; None: here, as all.
    worker_path: tuple[str, ...] | None = None

    def path_of(self, ref: PluginRef) -> tuple[str, ...] | None:
        """Where the distribution of a plugin is installed; None: here."""
        return self.worker_path if KINDS[ref.kind].room == "worker" else None

    def extensions_of(self, group: str) -> Mapping[str, Sequence[Extension]]:
        """The extensions of a group by name: more than one, if distributions share a name."""
        named: dict[str, list[Extension]] = defaultdict(list)
        for one in self.extensions:
            if one.group == group:
                named[one.name].append(one)
        return dict(named)

    @property
    def conflicts(self) -> Mapping[tuple[str, str], tuple[PluginRef, ...]]:
        """The plugins that share kind and name, of two distributions or (by mistake) of one, by kind and name."""
        same: dict[tuple[str, str], list[PluginRef]] = defaultdict(list)
        for ref in self.refs:
            same[ref.kind, ref.name].append(ref)
        return {key: tuple(refs) for key, refs in same.items() if len(refs) > 1}


def discover(path: Sequence[str] | None = None) -> Discovered:
    """Find all installed plugins.

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
            stem = distribution.stem()
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


def _distributions(path: Sequence[str] | None, broken: list[BrokenDistribution]) -> Iterator[Installed]:
    found = installed(path)
    while True:
        try:
            distribution = next(found)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - a third-party finder on sys.meta_path
            broken.append(BrokenDistribution(distribution="?", path="sys.meta_path", error=_told(error)))
            return
        yield distribution


def _hostcore_entry_points(distribution: Installed) -> list[tuple[str, str, str]]:
    text = distribution.read("entry_points.txt")
    return [found for found in entry_points(text) if found[0].startswith(_GROUP_PREFIX)] if text else []


def _read_entry_points(
    distribution: Installed, stem: str, broken: list[BrokenDistribution]
) -> Iterator[PluginRef | Extension]:
    found = _hostcore_entry_points(distribution)
    if not found:
        return
    if stem.startswith("~"):
        raise ValueError("the remains of an interrupted pip run; delete this folder")
    name, version = name_and_version(distribution)
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


def name_and_version(distribution: Installed) -> tuple[str, str]:
    """As its metadata has them.

    :raises ValueError: When it has not.
    """
    text = distribution.read("METADATA") or distribution.read("PKG-INFO")
    if not text:
        raise ValueError("METADATA is missing or empty; reinstall the distribution")
    headers = text.partition("\n\n")[0].splitlines()  # what follows is a description, often a long one
    name, version = _header(headers, "name"), _header(headers, "version")
    if not name or not version:
        raise ValueError(f"METADATA has no {'Version' if name else 'Name'}; reinstall the distribution")
    return name, version


def _header(headers: Sequence[str], name: str) -> str | None:
    """The first header of a name, which is in small letters; None if there is none."""
    for line in headers:
        key, _, value = line.partition(":")
        if key.lower() == name:
            return value.strip()
    return None


def _broken(distribution: Installed, name: str, error: Exception) -> BrokenDistribution:
    return BrokenDistribution(distribution=name, path=distribution.path, error=_told(error))


def _taken(extension: Extension) -> BrokenDistribution:
    told = f"{extension.name!r} in {extension.group} is a command of {_HOST} itself: it needs another name"
    return BrokenDistribution(distribution=extension.dist, path=extension.value, error=told)


def _told(error: Exception) -> str:
    """Our own findings as they are; anything else with its type, which often says more than its message."""
    if type(error) in {ValueError, MalformedEntryPointsError}:
        return str(error)
    return f"{type(error).__name__}: {error}"
