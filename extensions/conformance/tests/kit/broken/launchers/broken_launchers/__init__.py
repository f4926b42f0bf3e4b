"""Launchers that are the reference, with one thing broken each."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

from attrs import evolve
from reference_plugins.breaking import after, before, broken, given, instead, then
from reference_plugins.launcher import ReferenceLauncher, ThisMachine

from hostcore_hookspecs import LaunchContext, LaunchHandle, LaunchPlan, LaunchStatus, LogChunk

_PYTHON = [sys.executable, "-I", "-S", "-c"]
_KEEPS_A_PIPE_OPEN = """
import subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
process.wait()
"""
_QUIET = "import os, sys\nos.dup2(os.open(os.devnull, os.O_WRONLY), 2)\nos.execv(sys.argv[1], sys.argv[1:])"


class Impatient(ThisMachine):
    """For launchers with which the checks wait in vain."""

    patience_seconds = 3.0


def _elsewhere(handle: LaunchHandle, folder: object) -> LaunchHandle:
    return evolve(handle, details={**handle.details, "folder": folder})


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _new_log(handle: LaunchHandle, since: str) -> bytes:
    return Path(handle.details["folder"], "log").read_bytes()[int(since or 0) :]


def _decoded(since: str, data: bytes, errors: str) -> LogChunk:
    return LogChunk(text=data.decode(errors=errors), next=str(int(since or 0) + len(data)))


broken(
    globals(),
    ReferenceLauncher,
    # Makes the name up while planning; writes already what it would submit; starts it, to see whether it would.
    PlanWithARandomName=after("plan", lambda result: evolve(result, document=f"name: run-{uuid.uuid4()}")),
    PlanThatWritesTheScript=then(
        "plan", lambda result, ctx: Path(ctx.run_dir, "submit.sh").write_text(result.document)
    ),
    PlanThatStarts=before("plan", lambda ctx: subprocess.Popen(list(ctx.command), start_new_session=True)),
    # Has the whole manifest as its summary.
    PlanOfManyLines=instead("plan", lambda ctx: LaunchPlan(summary="\n".join(ctx.command))),
    # Shows what is in the environment.
    PlanWithSecrets=instead("plan", lambda ctx: LaunchPlan(summary="a process", document=repr(dict(ctx.env)))),
    # Has an object in the handle.
    HandleWithAPath=after("launch", lambda result: _elsewhere(result, Path(result.details["folder"]))),
    # Splits the line that it has joined.
    DropsEmptyArguments=given(
        "launch", ctx=lambda ctx: evolve(ctx, command=[one for one in ctx.command if one.strip()])
    ),
    # Writes the environment as NAME=VALUE lines.
    ValuesOnOneLine=given(
        "launch", ctx=lambda ctx: evolve(ctx, env={name: text.partition("\n")[0] for name, text in ctx.env.items()})
    ),
    # Makes the path of the run directory fit for a script, and reads the log there.
    LogOfASimplePath=given(
        "read_logs", handle=lambda handle: _elsewhere(handle, handle.details["folder"].replace(" ", "_"))
    ),
    # Takes what is not running any more for a success.
    GoneIsSucceeded=after(
        "poll", lambda result: result if result.status == "running" else LaunchStatus(status="succeeded")
    ),
    # Says 1 for everything that went wrong.
    GuessesTheExitCode=after("poll", lambda result: evolve(result, exit_code=1) if result.exit_code else result),
    # Expects the log to be there for ever.
    RaisesForWhatIsGone=before("read_logs", lambda handle: Path(handle.details["folder"], "log").stat()),
    # Does not ask; asks, and does not wait for the answer; never kills.
    KillsAtOnce=instead("cancel", lambda handle: _kill(handle.details["pid"], signal.SIGKILL)),
    NoGrace=given("cancel", grace_seconds=lambda: 0.0),
    OnlyAsks=instead("cancel", lambda handle: _kill(handle.details["pid"], signal.SIGINT)),
    # Believes that everything is UTF-8; cuts characters in two; takes the length of the text for the place in the file.
    StrictDecoder=instead("read_logs", lambda handle, since: _decoded(since, _new_log(handle, since), "strict")),
    BeginsADecoderForEachChunk=instead(
        "read_logs", lambda handle, since: _decoded(since, _new_log(handle, since), "replace")
    ),
    CountsCharacters=after(
        "read_logs", lambda result, since: evolve(result, next=str(int(since or 0) + len(result.text)))
    ),
    # Throws standard error away.
    NoStandardError=given("launch", ctx=lambda ctx: evolve(ctx, command=[*_PYTHON, _QUIET, *ctx.command])),
)


class WaitsForTheEnd(ReferenceLauncher):
    """Returns when it is over."""

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        handle = super().launch(ctx)
        while self.poll(handle).status == "running":
            time.sleep(0.02)
        return handle


class RaisesWhatPythonRaises(ReferenceLauncher):
    """Does not say that the command cannot be started."""

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        if not Path(ctx.command[0]).exists():
            subprocess.Popen(list(ctx.command))
        return super().launch(ctx)


class DiesWithItsParent(ReferenceLauncher):
    """Leaves the process in the group of the one that starts it."""

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        popen = subprocess.Popen
        subprocess.Popen = lambda *args, **how: popen(*args, **{**how, "start_new_session": False})  # type: ignore
        try:
            return super().launch(ctx)
        finally:
            subprocess.Popen = popen  # type: ignore


class KnowsItsOwnLaunches(ReferenceLauncher):
    """Keeps in the instance what it has launched."""

    def __init__(self, settings: ReferenceLauncher.Settings) -> None:
        super().__init__(settings)
        self._mine: set[str] = set()

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        handle = super().launch(ctx)
        self._mine.add(handle.id)
        return handle

    def poll(self, handle: LaunchHandle) -> LaunchStatus:
        return super().poll(handle) if handle.id in self._mine else LaunchStatus(status="lost")


class EndedBeforeItBegan(ReferenceLauncher):
    """Says lost as long as there is no result."""

    def poll(self, handle: LaunchHandle) -> LaunchStatus:
        if not Path(handle.details["run_dir"], "result.json").exists():
            return LaunchStatus(status="lost")
        return super().poll(handle)


class OutputInAPipe(ReferenceLauncher):
    """Gives the command a pipe, and reads it when the log is asked for, if ever."""

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        return super().launch(evolve(ctx, command=[*_PYTHON, _KEEPS_A_PIPE_OPEN, *ctx.command]))

    def cancel(self, handle: LaunchHandle, grace_seconds: float) -> None:
        super().cancel(handle, 0.0)


class CancelsOnce(ReferenceLauncher):
    """Is surprised by what has ended."""

    def cancel(self, handle: LaunchHandle, grace_seconds: float) -> None:
        if self.poll(handle).status != "running":
            raise ProcessLookupError(handle.id)
        super().cancel(handle, grace_seconds)
