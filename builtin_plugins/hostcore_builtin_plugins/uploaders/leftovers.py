"""Names of files that are being written, and which of them a dead process has left behind."""

import itertools
import os
import re
import socket
import time
from collections.abc import Callable
from typing import Final

import attrs

_PREFIX: Final = ".hostcore-upload-"
#: Of this process: another one may get its number.
_TOKEN: Final = os.urandom(4).hex()
_NUMBERS: Final = itertools.count(1)
_NAME: Final = re.compile(re.escape(_PREFIX) + r"(?P<host>.+)-(?P<pid>\d+)-(?P<token>[0-9a-f]{8})-\d+")

#: Another machine's process is taken for dead when its file has not changed for so long.
_SILENT_SECONDS: Final = 3600.0


@attrs.frozen(kw_only=True)
class Writer:
    """The process that writes a file."""

    host: str
    pid: int
    token: str

    @classmethod
    def of(cls, name: str) -> "Writer | None":
        """Who writes a file of that name; None if it is not one of these files."""
        found = _NAME.fullmatch(name)
        return cls(host=found["host"], pid=int(found["pid"]), token=found["token"]) if found else None

    def is_dead(self, changed: Callable[[], float], *, now: Callable[[], float] = time.time) -> bool:
        """Whether it will never finish its file.

        :param changed: When the file was changed last, in seconds since 1970.
        :param now: The clock.
        """
        if self.token == _TOKEN:
            return False
        if self.host == _host() and not _is_alive(self.pid):
            return True
        return now() - changed() > _SILENT_SECONDS


def name_for_writing() -> str:
    """A name that no other file has, hidden, for a file that gets its own name when it is whole."""
    return f"{_PREFIX}{_host()}-{os.getpid()}-{_TOKEN}-{next(_NUMBERS)}"


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9.]", "-", socket.gethostname())[:80]


def _is_alive(pid: int) -> bool:
    if pid == os.getpid():  # with another token: it was a process before this one
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return True
