"""Resolutions of requirements, remembered for a while, so that a new run need not ask the package index again.

An index is asked anew when the time is over, and when any input of uv has changed: the requirements, Python, hostcore's
own requirements, ``UV_*`` and the files that they name, ``uv.toml`` and ``pyproject.toml`` in the folder of the job and
above it. Packages at a path or an address may change at any time: their resolutions are not kept.
"""

import hashlib
import os
import secrets
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Final

import attrs

from hostcore_environments.cache import InvalidSetting

#: For how many seconds a resolution is taken again; 0: never.
REUSED_VARIABLE: Final = "HOSTCORE_ENVIRONMENTS_REUSE_SECONDS"
REUSED_SECONDS: Final = 3600
#: Variables with the names of files, whose content counts.
_FILES: Final = ("UV_CONSTRAINT", "UV_OVERRIDE", "UV_EXCLUDE", "UV_BUILD_CONSTRAINT", "UV_CONFIG_FILE")
_SETTINGS: Final = ("uv.toml", "pyproject.toml")


@attrs.frozen
class Resolution:
    """A place for the lock of some requirements."""

    #: None: it is not kept.
    file: Path | None

    @classmethod
    def of(
        cls, requirements: Sequence[str], *, needs: Iterable[str], python: str, job_dir: Path, folder: Path
    ) -> "Resolution":
        """That of requirements.

        :param needs: What else decides: what hostcore itself requires, and the machine.
        :param python: The version, or an interpreter.
        :param job_dir: Where relative paths start, and uv looks for its settings.
        :param folder: Of all resolutions.
        :raises InvalidSetting: See :func:`_seconds`.
        """
        if not _seconds() or any("/" in one or "@" in one for one in requirements):
            return cls(None)
        whole = hashlib.sha256()
        for part in (*needs, python, metadata.version("uv"), str(job_dir), *requirements, *_settings(job_dir)):
            whole.update(f"{len(part)} {part}".encode())
        return cls(folder / f"{whole.hexdigest()[:24]}.toml")

    def read(self) -> tuple[str, float] | None:
        """The lock, and how many seconds old it is; None if it is not there, or too old."""
        if self.file is None:
            return None
        try:
            seconds = time.time() - self.file.stat().st_mtime
            return (self.file.read_text(), seconds) if 0 <= seconds < _seconds() else None
        except FileNotFoundError:
            return None

    def write(self, lock: str) -> None:
        """Remember it, and forget those that are too old."""
        if self.file is None:
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        forget(self.file.parent, seconds=_seconds())
        whole = self.file.with_suffix(f".{secrets.token_hex(8)}")  # a pid may be that of a process elsewhere, too
        whole.write_text(lock)
        with suppress(FileNotFoundError):  # another process forgets all
            whole.replace(self.file)


def forget(folder: Path, *, seconds: float = 0) -> None:
    """Forget the resolutions that are older than so many seconds."""
    for one in folder.glob("*.*"):
        with suppress(FileNotFoundError):  # another process has forgotten it in between
            if time.time() - one.stat().st_mtime >= seconds:
                one.unlink()


def _settings(job_dir: Path) -> list[str]:
    """Return uv's other settings."""
    told = {name: value for name, value in sorted(os.environ.items()) if name.startswith("UV_")}
    files = [job_dir / one for name in _FILES for one in told.get(name, "").split()]
    files += [folder / name for folder in (job_dir, *job_dir.parents) for name in _SETTINGS]
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - there may be no home
    files += [Path(place, "uv", "uv.toml") for place in (home, "/etc")]
    return [f"{name}={value}" for name, value in told.items()] + [
        f"{file} {file.read_text(errors='replace')}" for file in files if file.is_file()
    ]


def _seconds() -> int:
    """For how long a resolution is taken again.

    :raises InvalidSetting: When the variable is no number.
    """
    told = os.environ.get(REUSED_VARIABLE) or str(REUSED_SECONDS)
    if not told.isdecimal():
        raise InvalidSetting(f"{REUSED_VARIABLE} is {told!r}", hint="give seconds; with 0, each new run asks the index")
    return int(told)
