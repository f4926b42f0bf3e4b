"""A control group with little memory, where this machine lets us make one."""

import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs

_ROOT = Path("/sys/fs/cgroup")


class NoControlGroup(Exception):
    """No control group can be made; says why not."""


@attrs.frozen
class MemoryGroup:
    """A control group."""

    path: Path

    def command(self, *command: str) -> list[str]:
        """A command that runs another one in the group."""
        return ["sh", "-c", 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"', "sh", str(self.path), *command]


@contextmanager
def memory_group(limit: int) -> Iterator[MemoryGroup]:
    """A control group that may take so many bytes of memory, and no swap.

    :raises NoControlGroup: When none can be made.
    """
    path = _make(limit)
    try:
        yield MemoryGroup(path)
    finally:
        _remove(path)


def _make(limit: int) -> Path:
    refusals = []
    for parent, files in _places():
        path = parent / f"hostcore-test-{uuid.uuid4().hex[:8]}"
        try:
            if "memory.max" in files:  # version 2: the parent has to hand the controller down
                (parent / "cgroup.subtree_control").write_text("+memory")
            path.mkdir()
            _set(path, files, limit)
            _try(path)
        except (OSError, subprocess.CalledProcessError) as error:
            refusals.append(f"{parent}: {error}")
            with suppress(OSError):
                path.rmdir()
        else:
            return path
    raise NoControlGroup("no memory control group can be made: " + "; ".join(refusals or ["there is none"]))


def _places() -> Iterator[tuple[Path, dict[str, bool]]]:
    """Folders that may take a group, with the files that limit it, and whether each must be there."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        if "memory" in controllers.split(","):
            root, files = _ROOT / "memory", {"memory.limit_in_bytes": True, "memory.memsw.limit_in_bytes": False}
        elif controllers == "" and (_ROOT / "cgroup.controllers").exists():
            root, files = _ROOT, {"memory.max": True, "memory.swap.max": False}
        else:
            continue
        for parent in dict.fromkeys((root / own.lstrip("/"), (root / own.lstrip("/")).parent, root)):
            if parent.is_dir() and parent.is_relative_to(root):
                yield parent, files


def _set(path: Path, files: dict[str, bool], limit: int) -> None:
    for name, needed in files.items():
        value = 0 if name == "memory.swap.max" else limit
        if needed or (path / name).exists():
            (path / name).write_text(str(value))


def _try(path: Path) -> None:
    """See that a process may enter."""
    subprocess.run(MemoryGroup(path).command("true"), check=True, capture_output=True)


def _remove(path: Path) -> None:
    """Remove the group. The kernel needs a moment after its last process."""
    for _ in range(1000):
        with suppress(OSError):
            path.rmdir()
        if not path.exists():
            return
        time.sleep(0.01)
    raise AssertionError(f"{path} still has processes: {(path / 'cgroup.procs').read_text()}")


def is_required() -> bool:
    """Whether a machine on which none can be made fails the suite."""
    return os.environ.get("CI") == "true"
