"""Libraries that a plugin needs, and the command that installs an extra of hostcore."""

import importlib.metadata
import importlib.util
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from hostcore_hookspecs import HostcoreError

#: A requirement of another distribution of the project, with its extras.
_OURS: Final = re.compile(r"hostcore-([a-z-]+)(\[[a-z0-9,-]+\])?")
#: The distributions of the host, with their folders in a clone.
_HOST: Final = {
    "hostcore-hookspecs": "hookspecs",
    "hostcore-toolkit": "toolkit",
    "hostcore-builtin-plugins": "builtin_plugins",
    "hostcore": "",
}


def install_command(extra: str | None = None, *, python: str | None = None) -> str:
    """Render the command that installs hostcore, or an extra of it: from the clone, if hostcore came from one.

    :param extra: None for hostcore itself, in the versions that are installed here.
    :param python: The interpreter whose pip it is; the ``pip`` of the PATH if None.
    """
    pip = f"{shlex.quote(python)} -m pip" if python else "pip"
    clone = clone_of_hostcore()
    if extra is None:
        wanted = [str(clone / folder) for folder in _HOST.values()] if clone else list(_versions())
        return f"{pip} install {shlex.join(wanted)}"
    line = re.compile(rf""".*;.*extra *== *['"]{extra}['"]""")
    needs = [need for need in importlib.metadata.requires("hostcore") or () if line.fullmatch(need)]
    folders = dict.fromkeys(folder for need in needs for folder in _folders(need, clone)) if clone else {}
    return f"{pip} install {shlex.join(folders) if folders else repr(f'hostcore[{extra}]')}"


def pip_source(distribution: str) -> str:
    """Return what pip installs an installed distribution from: the folder that it came from, else its name."""
    folder, is_editable = _installed_from(distribution)
    return f"{'-e ' * is_editable}{shlex.quote(str(folder))}" if folder else distribution


def clone_of_hostcore() -> Path | None:
    """Return the folder that hostcore was installed from, editable or not; None where it came as a package."""
    clone, _ = _installed_from("hostcore")
    return clone if clone and (clone / "extensions").is_dir() else None


def source_folders() -> dict[Path, str]:
    """Return the folders that distributions were installed from, with their names."""
    return {folder: one.name for one in importlib.metadata.distributions() if (folder := _source(one)[0])}


def _installed_from(distribution: str) -> tuple[Path | None, bool]:
    """Return the folder of a distribution, and whether it is installed in editable mode."""
    try:
        return _source(importlib.metadata.distribution(distribution))
    except importlib.metadata.PackageNotFoundError:
        return None, False


def _source(distribution: importlib.metadata.Distribution) -> tuple[Path | None, bool]:
    try:
        recorded = json.loads(distribution.read_text("direct_url.json") or "{}")
        address, folder = urlsplit(recorded.get("url", "")), recorded.get("dir_info")
    except (ValueError, AttributeError):
        return None, False
    if address.scheme != "file" or folder is None:
        return None, False
    return Path(unquote(address.path)), bool(folder.get("editable"))


def _versions() -> Iterator[str]:
    """Yield the host's distributions with the versions that are installed."""
    for name in _HOST:
        try:
            yield f"{name}=={importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            yield name


def _folders(need: str, clone: Path) -> Iterator[str]:
    """Yield the folders of a requirement and of what it needs of the project, each with its extras."""
    if (found := _OURS.match(need)) is None:
        return
    name, extras = found[1], found[2] or ""
    folder = clone / ("builtin_plugins" if name == "builtin-plugins" else f"extensions/{name}")
    if (project := folder / "pyproject.toml").is_file():
        document = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        for other in document.get("dependencies", ()):
            if not other.startswith("hostcore-builtin-plugins"):  # hostcore has it
                yield from _folders(other, clone)
        yield f"{folder}{extras}"


def require(module: str, *, extra: str) -> None:
    """Check that a library is installed, without importing it.

    :param module: Its top-level module: ``mlflow``.
    :param extra: The extra that brings it.
    :raises HostcoreError: ``plugin.extra_missing``.
    """
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # ValueError: something has taken its place in sys.modules
        spec = None
    if spec is None:
        raise HostcoreError(
            f"the library {module} is not installed",
            code="plugin.extra_missing",
            hint=f"{install_command(extra)}, in the environment that hostcore runs in",
        )
