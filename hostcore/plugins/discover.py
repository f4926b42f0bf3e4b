"""Discovery: which plugins are installed. Reads metadata alone and imports no plugin."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from email.parser import HeaderParser
from importlib import metadata
from typing import Any

import attrs

from hostcore.plugins.entry_points import MalformedEntryPointsError, entry_points, import_path
from hostcore_hookspecs.kinds import KINDS
from hostcore_hookspecs.plan import PluginRef

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_KIND_BY_GROUP = {kind.group: kind.name for kind in KINDS.values()}
_GROUP_PREFIX = "hostcore."


@attrs.frozen(kw_only=True)
class BrokenDistribution:
    """Something installed that cannot be used, and why. Data, not an exception: it breaks nobody else."""

    distribution: str
    #: Its metadata folder.
    path: str
    error: str


@attrs.frozen(kw_only=True)
class Discovered:
    """What is installed."""

    #: By kind, in the order of the documentation, then by name and distribution.
    refs: tuple[PluginRef, ...]
    broken: tuple[BrokenDistribution, ...] = ()

    @property
    def conflicts(self) -> Mapping[tuple[str, str], tuple[PluginRef, ...]]:
        """The plugins that share kind and name, of two distributions or (by mistake) of one, by kind and name."""
        same: dict[tuple[str, str], list[PluginRef]] = defaultdict(list)
        for ref in self.refs:
            same[ref.kind, ref.name].append(ref)
        return {key: tuple(refs) for key, refs in same.items() if len(refs) > 1}


def canonical(distribution: str) -> str:
    """The name of a distribution as package indexes compare it: ``My_Package`` is ``my-package`` (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def discover(path: Sequence[str] | None = None) -> Discovered:
    """Find all installed plugins.

    Of several installations of one distribution the first on the path counts, as it does for ``import``; also when it
    registers nothing.

    :param path: Folders to search; ``sys.path`` if None.
    """
    refs: set[PluginRef] = set()
    broken: list[BrokenDistribution] = []
    seen: set[str] = set()
    for distribution in _distributions(path, broken):
        stem = "?"
        try:
            stem = _stem(distribution)
            if canonical(stem) in seen:
                continue
            seen.add(canonical(stem))
            found = _hostcore_entry_points(distribution)
            if found:
                refs.update(_refs(distribution, stem, found, broken))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one of them is data, and hides no other
            broken.append(_broken(distribution, stem, error))
    order = {name: position for position, name in enumerate(KINDS)}
    return Discovered(
        refs=tuple(sorted(refs, key=lambda ref: (order[ref.kind], ref.name, ref.dist or "", ref.value))),
        broken=tuple(broken),
    )


def _distributions(path: Sequence[str] | None, broken: list[BrokenDistribution]) -> Iterator[metadata.Distribution]:
    found = iter(metadata.distributions() if path is None else metadata.distributions(path=list(path)))
    while True:
        try:
            distribution = next(found)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - a finder that somebody put on sys.meta_path
            broken.append(BrokenDistribution(distribution="?", path="sys.meta_path", error=_told(error)))
            return
        yield distribution


def _info_folder(distribution: metadata.Distribution) -> Any:
    """The ``.dist-info`` or ``.egg-info`` folder; None for distributions that are not files.

    The attribute is private, but only the folder's name tells the distribution without parsing METADATA, which for
    60 distributions would take longer than everything else that ``hostcore --help`` does.
    """
    return getattr(distribution, "_path", None)


def _stem(distribution: metadata.Distribution) -> str:
    info = _info_folder(distribution)
    if info is None:
        return distribution.metadata["Name"]
    # my_package-1.0.dist-info, my_package-1.0-py3.11.egg-info, my_package.egg-info
    return str(info.name).removesuffix(".dist-info").removesuffix(".egg-info").partition("-")[0]


def _read(distribution: metadata.Distribution, file: str) -> str | None:
    """A metadata file; None if there is none.

    ``Distribution.read_text`` answers None for a file without permission as well, which would hide a plugin silently.
    """
    info = _info_folder(distribution)
    if info is None:
        return distribution.read_text(file)
    try:
        return str((info / file).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, KeyError):
        return None


def _hostcore_entry_points(distribution: metadata.Distribution) -> list[tuple[str, str, str]]:
    text = _read(distribution, "entry_points.txt")
    return [found for found in entry_points(text) if found[0].startswith(_GROUP_PREFIX)] if text else []


def _refs(
    distribution: metadata.Distribution,
    stem: str,
    found: Sequence[tuple[str, str, str]],
    broken: list[BrokenDistribution],
) -> Iterator[PluginRef]:
    if stem.startswith("~"):
        raise ValueError("the remains of an interrupted pip run; delete this folder")
    name, version = _name_and_version(distribution)
    for group, plugin, value in found:
        kind = _KIND_BY_GROUP.get(group)
        problem = None
        if kind is None:
            problem = f"hostcore has no entry-point group {group!r}; it has {', '.join(_KIND_BY_GROUP)}"
        elif not _NAME.fullmatch(plugin):
            problem = f"{plugin!r} in {group} is not a valid name: a-z, 0-9, '.', '_', '-', starting with a-z or 0-9"
        elif import_path(value) is None:
            problem = f"{plugin} = {value!r} in {group} is not of the form module:symbol"
        if kind is None or problem:
            broken.append(_broken(distribution, name, ValueError(problem)))
        else:
            yield PluginRef(kind=kind, name=plugin, value=value, dist=name, version=version)


def _name_and_version(distribution: metadata.Distribution) -> tuple[str, str]:
    text = _read(distribution, "METADATA") or _read(distribution, "PKG-INFO")
    if not text:
        raise ValueError("METADATA is missing or empty; reinstall the distribution")
    headers = HeaderParser().parsestr(text.partition("\n\n")[0])
    name, version = headers["Name"], headers["Version"]
    if not name or not version:
        raise ValueError(f"METADATA has no {'Version' if name else 'Name'}; reinstall the distribution")
    return name, version


def _broken(distribution: metadata.Distribution, name: str, error: Exception) -> BrokenDistribution:
    return BrokenDistribution(distribution=name, path=str(_info_folder(distribution) or "?"), error=_told(error))


def _told(error: Exception) -> str:
    """Our own findings as they are; anything else with its type, which often says more than its message."""
    if type(error) in {ValueError, MalformedEntryPointsError}:
        return str(error)
    return f"{type(error).__name__}: {error}"
