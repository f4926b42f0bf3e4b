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
from typing import Any

import attrs
from reference_plugins.launcher import ReferenceLauncher, ThisMachine

from hostcore_hookspecs import LaunchContext, LaunchHandle, LaunchPlan, LaunchStatus, LogChunk


class Impatient(ThisMachine):
    """For launchers with which the checks wait in vain."""

    patience_seconds = 3.0


class PlanWithARandomName(ReferenceLauncher):
    """Makes the name up while planning."""

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        return attrs.evolve(super().plan(ctx), document=f"name: run-{uuid.uuid4()}")


class PlanThatWritesTheScript(ReferenceLauncher):
    """Writes already what it would submit."""

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        plan = super().plan(ctx)
        Path(ctx.run_dir, "submit.sh").write_text(plan.document)
        return plan


class PlanThatStarts(ReferenceLauncher):
    """Starts it, to see whether it would."""

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        subprocess.Popen(list(ctx.command), start_new_session=True)
        return super().plan(ctx)


class PlanOfManyLines(ReferenceLauncher):
    """Has the whole manifest as its summary."""

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        return LaunchPlan(summary="\n".join(ctx.command))


class PlanWithSecrets(ReferenceLauncher):
    """Shows what is in the environment."""

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        return LaunchPlan(summary="a process", document="\n".join(f"{name}={ctx.env[name]}" for name in ctx.env))


class WaitsForTheEnd(ReferenceLauncher):
    """Returns when it is over."""

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        handle = super().launch(ctx)
        while self.poll(handle).status == "running":
            time.sleep(0.02)
        return handle


class HandleWithAPath(ReferenceLauncher):
    """Has an object in the handle."""

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        handle = super().launch(ctx)
        return attrs.evolve(handle, details={**handle.details, "folder": Path(handle.details["folder"])})


class DropsEmptyArguments(ReferenceLauncher):
    """Splits the line that it has joined."""

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        return super().launch(attrs.evolve(ctx, command=[one for one in ctx.command if one.strip()]))


class ValuesOnOneLine(ReferenceLauncher):
    """Writes the environment as NAME=VALUE lines."""

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        first_lines = {name: value.partition("\n")[0] for name, value in ctx.env.items()}
        return super().launch(attrs.evolve(ctx, env=first_lines))


class LogOfASimplePath(ReferenceLauncher):
    """Makes the path of the run directory fit for a script, and reads the log there."""

    def read_logs(self, handle: LaunchHandle, since: str) -> LogChunk:
        simple = handle.details["folder"].replace(" ", "_")
        return super().read_logs(attrs.evolve(handle, details={**handle.details, "folder": simple}), since)


class _Direct(ReferenceLauncher):
    """Starts the command itself, to do it wrongly."""

    def start(self, ctx: LaunchContext, **how: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(list(ctx.command), env={**os.environ, **ctx.env}, stdin=subprocess.DEVNULL, **how)


class RaisesWhatPythonRaises(_Direct):
    """Does not say that the command cannot be started."""

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        if not Path(ctx.command[0]).exists():
            self.start(ctx)
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


class GoneIsSucceeded(ReferenceLauncher):
    """Takes what is not running any more for a success."""

    def poll(self, handle: LaunchHandle) -> LaunchStatus:
        status = super().poll(handle)
        return status if status.status == "running" else LaunchStatus(status="succeeded")


class GuessesTheExitCode(ReferenceLauncher):
    """Says 1 for everything that went wrong."""

    def poll(self, handle: LaunchHandle) -> LaunchStatus:
        status = super().poll(handle)
        return attrs.evolve(status, exit_code=1) if status.exit_code else status


class RaisesForWhatIsGone(ReferenceLauncher):
    """Expects the log to be there for ever."""

    def read_logs(self, handle: LaunchHandle, since: str) -> LogChunk:
        Path(handle.details["folder"], "log").stat()
        return super().read_logs(handle, since)


class EndedBeforeItBegan(ReferenceLauncher):
    """Says lost as long as there is no result."""

    def poll(self, handle: LaunchHandle) -> LaunchStatus:
        if not Path(handle.details["run_dir"], "result.json").exists():
            return LaunchStatus(status="lost")
        return super().poll(handle)


class OutputInAPipe(ReferenceLauncher):
    """Gives the command a pipe, and reads it when the log is asked for, if ever."""

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        keep_open = "import subprocess, sys, time\nprocess = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)\n"
        keep_open += "process.wait()"
        command = [sys.executable, "-I", "-S", "-c", keep_open, *ctx.command]
        return super().launch(attrs.evolve(ctx, command=command))

    def cancel(self, handle: LaunchHandle, grace_seconds: float) -> None:
        super().cancel(handle, 0.0)


class KillsAtOnce(ReferenceLauncher):
    """Does not ask."""

    def cancel(self, handle: LaunchHandle, grace_seconds: float) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(handle.details["pid"], signal.SIGKILL)


class NoGrace(ReferenceLauncher):
    """Asks, and does not wait for the answer."""

    def cancel(self, handle: LaunchHandle, grace_seconds: float) -> None:
        super().cancel(handle, 0.0)


class OnlyAsks(ReferenceLauncher):
    """Never kills."""

    def cancel(self, handle: LaunchHandle, grace_seconds: float) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(handle.details["pid"], signal.SIGINT)


class CancelsOnce(ReferenceLauncher):
    """Is surprised by what has ended."""

    def cancel(self, handle: LaunchHandle, grace_seconds: float) -> None:
        if self.poll(handle).status != "running":
            raise ProcessLookupError(handle.id)
        super().cancel(handle, grace_seconds)


class StrictDecoder(ReferenceLauncher):
    """Believes that everything is UTF-8."""

    def read_logs(self, handle: LaunchHandle, since: str) -> LogChunk:
        data = Path(handle.details["folder"], "log").read_bytes()[int(since or 0) :]
        return LogChunk(text=data.decode(), next=str(int(since or 0) + len(data)))


class NoStandardError(ReferenceLauncher):
    """Throws standard error away."""

    def launch(self, ctx: LaunchContext) -> LaunchHandle:
        quiet = "import os, sys\nos.dup2(os.open(os.devnull, os.O_WRONLY), 2)\nos.execv(sys.argv[1], sys.argv[1:])"
        return super().launch(attrs.evolve(ctx, command=[sys.executable, "-I", "-S", "-c", quiet, *ctx.command]))


class CountsCharacters(ReferenceLauncher):
    """Takes the length of the text for the place in the file."""

    def read_logs(self, handle: LaunchHandle, since: str) -> LogChunk:
        chunk = super().read_logs(handle, since)
        return attrs.evolve(chunk, next=str(int(since or 0) + len(chunk.text)))


class BeginsADecoderForEachChunk(ReferenceLauncher):
    """Cuts characters in two."""

    def read_logs(self, handle: LaunchHandle, since: str) -> LogChunk:
        data = Path(handle.details["folder"], "log").read_bytes()[int(since or 0) :]
        return LogChunk(text=data.decode(errors="replace"), next=str(int(since or 0) + len(data)))
