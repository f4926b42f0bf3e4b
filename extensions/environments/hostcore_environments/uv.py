"""Calls of uv: with its own settings (``UV_*``, ``uv.toml``), its progress reported as it comes, its errors as one.

Its output as it was recorded with uv 0.13: steps as ``Resolved 41 packages in 0.5s``, ``Downloading torch (195.1MiB)``;
an error as ``error: …``, indented ``cause: …``, and ``hint: …``.
"""

import ctypes
import os
import re
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

import attrs
from uv import find_uv_bin

from hostcore.cli.wording import lasting
from hostcore.events.bounds import bounded
from hostcore.secrets.scrub import scrub
from hostcore_hookspecs.errors import HostcoreError

#: Variables that would make uv work in another environment than the given one.
_MISLEADING: Final = ("UV_PYTHON", "UV_SYSTEM_PYTHON", "UV_PROJECT_ENVIRONMENT", "VIRTUAL_ENV", "CONDA_PREFIX")
#: What counts while requirements are resolved. Beside a lock uv refuses the first; all three would have it take other
#: versions of hostcore than the wheels that it is given, or none. UV_BUILD_CONSTRAINT is for builds: it always counts.
_FOR_RESOLVING: Final = ("UV_CONSTRAINT", "UV_OVERRIDE", "UV_EXCLUDE")
#: It takes nothing without a hash, which a wheel that was made here a moment ago does not have.
_HASHES: Final = "UV_REQUIRE_HASHES"
_INDEX: Final = "UV_INDEX"
_STEP: Final = re.compile(r"\s*(Resolved|Downloading|Downloaded|Building|Built|Prepared|Installed|Updating|Updated)\b")
#: What ``uv pip check`` finds.
_UNMET: Final = re.compile(r"The package `(?P<who>[^`]+)` requires `(?P<what>[^`]+)`, but (?P<but>.*)")
#: Seconds of uv's silence before a message about its progress.
QUIET_SECONDS: Final = 3.0
_MOST_WORDS: Final = 1_000
#: Looked up before there is a child, which shares the locks of all threads.
_PRCTL: Final = getattr(ctypes.CDLL(None), "prctl", None)
_PR_SET_PDEATHSIG: Final = 1


class EnvironmentFailed(HostcoreError):
    """An environment cannot be resolved or built."""

    code = "environment.failed"


@attrs.frozen
class Uv:
    """Runs uv for one environment."""

    #: Where relative paths of requirements start, and uv looks for its settings.
    folder: Path
    #: Receives all output of uv.
    log: Path
    #: Called with each step.
    tell: Callable[[str], object]
    #: Package indexes that are asked first.
    indexes: Sequence[str] = ()
    #: When the environment was begun with, by the monotonic clock.
    began: float = attrs.field(factory=time.monotonic)

    @property
    def age(self) -> str:
        """Time since the environment was begun, for people."""
        return lasting(time.monotonic() - self.began)

    def __call__(
        self,
        *arguments: str | Path,
        resolves: bool = False,
        made_here: bool = False,
        doing: str = "uv works",
        hint: str = "",
    ) -> None:
        """Run a command of uv.

        :param resolves: Whether constraints and overrides of the user count.
        :param made_here: Whether the packages to install have been made by this process, and have no hashes.
        :param doing: Message about it every few seconds.
        :param hint: What to do if it fails, beside uv's own hint.
        :raises EnvironmentFailed: When it fails, with uv's reason.
        """
        said: list[str] = []
        try:
            process = subprocess.Popen(
                [find_uv_bin(), *map(str, arguments)],
                cwd=self.folder,
                env=_environment(self.indexes, resolves=resolves, made_here=made_here),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - a single system call
            )
        except OSError as error:
            raise EnvironmentFailed(
                f"uv cannot be started: {error}", hint="pip install --force-reinstall uv"
            ) from error
        assert process.stderr is not None
        with _ended_with(process), self.log.open("a") as log:
            log.write(f"$ uv {shlex.join(map(str, arguments))}\n")
            for line in _lines(process.stderr):
                if line is None:
                    self.tell(f"environment: {_under_way(said) or doing}, {self.age}")
                    continue
                log.write(f"{scrub(line)}\n")
                said.append(line.rstrip())
                if _STEP.match(line):
                    self.tell(f"environment: {line.strip()}")
            code = process.wait()
        if code:
            failed = _failure(said, code, self.log)
            failed.hint = "; ".join(filter(None, [hint, failed.hint]))
            raise failed


def _lines(stream: IO[bytes]) -> Iterator[str | None]:
    """The lines of a pipe as they come; None whenever there was none for some seconds."""
    rest = b""
    with selectors.DefaultSelector() as selector:  # select.select takes no number of a file above 1023
        selector.register(stream, selectors.EVENT_READ)
        while True:
            if not selector.select(QUIET_SECONDS):
                yield None
                continue
            read = os.read(stream.fileno(), 1 << 16)
            *lines, rest = (rest + read).split(b"\n")
            for line in [*lines, rest] if not read and rest else lines:
                yield line.decode(errors="replace")
            if not read:
                return


def _under_way(said: Sequence[str]) -> str:
    """Return the present downloads and builds: ``downloading torch (195.1MiB), building mine``."""
    begun: dict[str, str] = {}
    for line in said:
        word, _, rest = line.strip().partition(" ")
        if word in ("Downloading", "Building"):
            begun[rest.partition(" ")[0]] = f"{word.lower()} {rest}"
        elif word in ("Downloaded", "Built"):
            begun.pop(rest.partition(" ")[0], None)
        elif word == "Prepared":
            begun.clear()
    return ", ".join(begun.values())


def _end_with_parent() -> None:
    """Have the kernel kill this process once its parent has ended, however that was; Linux alone can."""
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def _ended_with(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """End the process, and the builds that it has started, on exit."""
    try:
        yield
    finally:
        with suppress(ProcessLookupError, PermissionError):  # it has ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment(indexes: Sequence[str], *, resolves: bool, made_here: bool) -> dict[str, str]:
    left_out = {*_MISLEADING, *(() if resolves else _FOR_RESOLVING), *((_HASHES,) if made_here else ())}
    asked = {_INDEX: " ".join(filter(None, [*indexes, os.environ.get(_INDEX)]))} if indexes else {}
    return {**{name: value for name, value in os.environ.items() if name not in left_out}, **asked, "NO_COLOR": "1"}


def _failure(said: Sequence[str], code: int, log: Path) -> EnvironmentFailed:
    """Uv's error, its causes in one sentence each, and its hint."""
    begin = next((at for at, line in enumerate(said) if line.startswith("error:")), None)
    if begin is None and (unmet := [found for line in said if (found := _UNMET.match(line))]):
        missing = dict.fromkeys(found["what"] for found in unmet if "not installed" in found["but"])
        others = [f"{found['who']} requires {found['what']}, but {found['but']}" for found in unmet]
        wrong = [other for found, other in zip(unmet, others, strict=True) if found["what"] not in missing]
        lacking = [f"it lacks {', '.join(missing)}"] if missing else []
        told = f"the environment has not all that its packages need: {'; '.join([*lacking, *wrong])}"
        return EnvironmentFailed(bounded(scrub(told), _MOST_WORDS), hint=f"everything that uv said is in {log}")
    if begin is None:
        last = said[-1] if said else f"uv exited with {code}"
        return EnvironmentFailed(bounded(scrub(last), _MOST_WORDS), hint=f"everything that uv said is in {log}")
    reasons: list[str] = []
    hint = ""
    for line in said[begin:]:
        word, _, rest = line.strip().partition(": ")
        if word == "hint":
            hint = rest
        elif word in ("error", "cause"):
            reasons.append(rest.rstrip("."))
        elif reasons and not hint and word:
            reasons[-1] += f" {line.strip()}"
    told = ": ".join(dict.fromkeys(reasons))
    everything = f"everything that uv said is in {log}"
    return EnvironmentFailed(bounded(scrub(told), _MOST_WORDS), hint=f"{hint}; {everything}" if hint else everything)
