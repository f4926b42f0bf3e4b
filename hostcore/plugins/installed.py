"""The distributions that are installed, and the files of their metadata folders.

Every command line waits for this module. It lists the folders of ``sys.path`` itself: ``importlib.metadata`` takes
longer to be imported than 200 distributions to be looked through, and is asked about what is in no folder alone.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.machinery import PathFinder
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol

import attrs

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_ENDINGS = (".dist-info", ".egg-info")


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


class Installed(Protocol):
    """A distribution."""

    #: Its metadata folder.
    path: str

    def stem(self) -> str:
        """Its name, as far as that can be told without reading a file of a folder."""

    def read(self, file: str) -> str | None:
        """A metadata file; None if there is none.

        :raises OSError: When it cannot be read: that would hide a plugin silently.
        :raises ValueError: When it is not UTF-8.
        """


def installed(path: Sequence[str] | None = None) -> Iterator[Installed]:
    """The distributions, in the order in which ``import`` finds their modules.

    :param path: Folders to search; ``sys.path``, and what other finders find, if None.
    """
    if path is not None:
        yield from _on(path)
        return
    for finder in sys.meta_path:
        find = getattr(finder, "find_distributions", None)
        if finder is PathFinder:
            yield from _on(sys.path)
        elif find is not None:
            from importlib.metadata import DistributionFinder

            yield from map(_Foreign, find(DistributionFinder.Context()))


def distribution_on(path: Sequence[str] | None, name: str) -> "Distribution":
    """A distribution, with all that its metadata says.

    :param path: Folders to search; None: where this process imports from.
    :raises importlib.metadata.PackageNotFoundError: When it is not there.
    """
    from importlib import metadata

    if path is None:
        return metadata.distribution(name)
    for found in metadata.distributions(name=name, path=list(path)):
        return found
    raise metadata.PackageNotFoundError(name)


def _on(path: Sequence[str]) -> Iterator[Installed]:
    for place in path:
        if not isinstance(place, str):  # in sys.path; `import` leaves it out, too
            continue
        try:
            names = os.listdir(place or ".")  # noqa: PTH208 - names alone are needed
        except OSError:
            names = []
        if names and not place.endswith(".egg"):
            yield from (_Folder(place, name) for name in names if name.lower().endswith(_ENDINGS))
        elif os.path.exists(place):  # noqa: PTH110 - a zip file, or an egg
            from importlib.metadata import distributions

            yield from map(_Foreign, distributions(path=[place]))


def _stem_of(name: str) -> str:
    """Of ``my_package-1.0.dist-info``, ``my_package-1.0-py3.11.egg-info``, ``my_package.egg-info``."""
    return name.removesuffix(".dist-info").removesuffix(".egg-info").partition("-")[0]


class _Folder:
    """A distribution in a folder of the path."""

    def __init__(self, place: str, name: str) -> None:
        self.path = os.path.join(place, name)  # noqa: PTH118 - hundreds of them
        self.stem = partial(_stem_of, name)

    def read(self, file: str) -> str | None:
        try:
            with open(os.path.join(self.path, file), "rb") as content:  # noqa: PTH118, PTH123 - hundreds of them
                return content.read().decode()
        except (FileNotFoundError, NotADirectoryError):
            return None


class _Foreign:
    """A distribution that ``importlib.metadata`` has found."""

    def __init__(self, distribution: "Distribution") -> None:
        self._distribution = distribution
        #: A private attribute, but only the folder's name tells the distribution without parsing METADATA.
        self._info: Any = getattr(distribution, "_path", None)
        self.path = str(self._info or "?")

    def stem(self) -> str:
        if self._info is None:
            return self._distribution.metadata["Name"]
        return _stem_of(PurePath(str(self._info)).name)

    def read(self, file: str) -> str | None:
        if self._info is None:
            return self._distribution.read_text(file)
        try:
            return str((self._info / file).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError, KeyError):
            return None
