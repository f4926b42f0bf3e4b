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


def install_command(extra: str) -> str:
    """Render the command that installs an extra of hostcore: from the clone, where hostcore was installed from one."""
    clone = clone_of_hostcore()
    wanted = re.compile(rf""".*;.*extra *== *['"]{extra}['"]""")
    needs = [line for line in importlib.metadata.requires("hostcore") or () if wanted.fullmatch(line)]
    folders = dict.fromkeys(folder for need in needs for folder in _folders(need, clone)) if clone else {}
    return f"pip install {shlex.join(folders) if folders else repr(f'hostcore[{extra}]')}"


def clone_of_hostcore() -> Path | None:
    """Return the folder that hostcore was installed from, editable or not; None where it came as a package."""
    try:
        recorded = importlib.metadata.distribution("hostcore").read_text("direct_url.json")
        address = urlsplit(json.loads(recorded or "{}").get("url", ""))
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None
    clone = Path(unquote(address.path))
    return clone if address.scheme == "file" and (clone / "extensions").is_dir() else None


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
