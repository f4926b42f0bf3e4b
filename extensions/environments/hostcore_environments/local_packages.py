"""What a ``pylock.toml`` (PEP 751) has from this machine: folders, archives, wheels. They may change at any time."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

_PATH: Final = re.compile(r"""(?P<key>\bpath\s*=\s*)(?P<quote>["'])(?P<path>[^"'\n]+)(?P=quote)""")
#: What is written when a package is used or built, and does not belong to it.
_PASSING: Final = ("__pycache__", ".git", ".venv", "build", "dist")


def with_absolute_paths(lock: str, folder: Path) -> str:
    """A lock that means the same in any folder.

    :param folder: That its relative paths start at.
    """

    def absolute(found: "re.Match[str]") -> str:
        path = os.path.normpath(folder / found["path"])
        return f"{found['key']}{found['quote']}{path}{found['quote']}"

    return _PATH.sub(absolute, lock)


def local_packages(lock: str) -> Mapping[str, Path]:
    """The packages that are installed from a path, by name; none in what is no lock, which uv refuses."""
    try:
        packages = tomllib.loads(lock).get("packages", [])
    except tomllib.TOMLDecodeError:
        return {}
    return {package["name"]: Path(path) for package in packages for path in _paths(package)}


def _paths(package: Mapping[str, Any]) -> Iterator[str]:
    for source in (package.get("directory"), package.get("archive"), package.get("sdist"), *package.get("wheels", [])):
        if source and "path" in source:
            yield source["path"]


def state(path: Path) -> str:
    """Names, sizes and times of the files of a package: another text once one of them was changed."""
    files = [path] if path.is_file() else sorted(_files(path))
    return "\n".join(f"{file}\0{(at := file.stat()).st_size}\0{at.st_mtime_ns}" for file in files)


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [one for one in folders if one not in _PASSING and not one.endswith(".egg-info")]
        yield from (file for name in names if (file := Path(parent, name)).is_file())
