"""Open resources of this process: threads, file descriptors and child processes."""

import gc
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from hostcore_conformance.errors import NotApplicable

_FOLDERS: Final = ("/proc/self/fd", "/dev/fd")
_NUMBER: Final = re.compile(r":\[\d+\]$")


@attrs.frozen(kw_only=True)
class Held:
    """Open resources at a moment: a count by name."""

    #: ``threads``, ``child processes``, and ``files`` where the system shows a process its descriptors.
    counts: Mapping[str, Counter[str]]

    def beyond(self, before: "Held") -> Mapping[str, Counter[str]]:
        """Return the resources in addition to those before; an empty counter where there is none."""
        return {what: count - before.counts[what] for what, count in self.counts.items()}

    def leaks(self, before: "Held") -> list[str]:
        """The threads and files beyond those of before, in words; empty if there are none.

        :raises NotApplicable: This system does not show a process its descriptors.
        """
        if "files" not in self.counts:
            raise NotApplicable("this system does not show which files a process has open")
        more = self.beyond(before)
        files, threads = more["files"].items(), more["threads"]
        return [
            *(f"a descriptor of {name}" + (f" ({count} times)" if count > 1 else "") for name, count in files),
            *(f"the thread {name!r}" for name in threads.elements()),
        ]


def held() -> Held:
    """Count the open resources of this process; garbage is collected first."""
    gc.collect()
    # Numbers distinguish threads of one pool: pool-1_0, pool-2_0.
    threads = ("".join(letter for letter in one.name if not letter.isdigit()) for one in threading.enumerate())
    counts = {"threads": Counter(threads), "child processes": Counter(_children())}
    folder = next((one for one in _FOLDERS if Path(one).is_dir()), None)
    return Held(counts=counts if folder is None else {**counts, "files": Counter(_files(folder))})


def _children() -> Iterator[str]:
    """Yield the ids of child processes; nothing where the system does not list them."""
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            yield from task.read_text().split()


def _files(folder: str) -> Iterator[str]:
    """Yield the targets of the descriptors: a path, ``socket``."""
    for name in os.listdir(folder):  # noqa: PTH208 - of a folder that changes by being listed
        try:
            found = str(Path(folder, name).readlink())
        except FileNotFoundError:  # that of the listing itself
            continue
        except OSError:  # no link, where there is no /proc
            found = f"file descriptor {name}"
        if not found.endswith("/fd"):
            yield _NUMBER.sub("", found)  # a connection that was closed and made again has another number
