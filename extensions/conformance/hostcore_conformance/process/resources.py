"""What this process holds open: file descriptors and threads."""

import gc
import os
import re
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from hostcore_conformance.errors import NotApplicable

_FOLDERS: Final = ("/proc/self/fd", "/dev/fd")
_NUMBER: Final = re.compile(r":\[\d+\]$")


@attrs.frozen(kw_only=True)
class Held:
    """What is held open at a moment."""

    #: What descriptors lead to (a path, ``socket``), and how many lead there.
    files: Mapping[str, int]
    #: The names of the threads, by identity.
    threads: Mapping[int, str]

    def beyond(self, before: "Held") -> list[str]:
        """What is held now and was not before, in words; empty if nothing is."""
        files = Counter(self.files) - Counter(before.files)
        threads = [name for identity, name in self.threads.items() if identity not in before.threads]
        return [
            *(f"a descriptor of {name}" + (f" ({count} times)" if count > 1 else "") for name, count in files.items()),
            *(f"the thread {name!r}" for name in threads),
        ]


def held() -> Held:
    """What this process holds open now; garbage is collected first.

    :raises NotApplicable: This system does not show a process its descriptors.
    """
    gc.collect()
    files = open_files()
    if files is None:
        raise NotApplicable("this system does not show which files a process has open")
    return Held(files=files, threads={one.ident or 0: one.name for one in threading.enumerate()})


def open_files() -> "Counter[str] | None":
    """What descriptors lead to, and how many lead there; None where the system does not show them."""
    folder = next((one for one in _FOLDERS if Path(one).is_dir()), None)
    if folder is None:
        return None
    names = os.listdir(folder)  # noqa: PTH208 - of a folder that changes by being listed
    return Counter(target for name in names if (target := _target(Path(folder, name))) is not None)


def _target(descriptor: Path) -> str | None:
    try:
        found = str(descriptor.readlink())
    except FileNotFoundError:  # that of the listing itself
        return None
    except OSError:  # no link, where there is no /proc
        found = f"file descriptor {descriptor.name}"
    # A connection that was closed and made again has another number.
    return None if found.endswith("/fd") else _NUMBER.sub("", found)
