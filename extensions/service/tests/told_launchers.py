"""Launchers that start nothing, and do what their tests told them. They write down what they were asked.

In the folder ``HOSTCORE_TEST_LEDGER``, a line with the launch_id each: ``calls``, every call of ``launch``;
``started``, every launch that was new; ``cancelled``, every call of ``cancel``. ``<launch_id>.name`` is what the engine
was to call it.
"""

import os
import time
from pathlib import Path
from typing import Any

import attrs

from hostcore_hookspecs import FatalError, LaunchHandle, LaunchPlan, LaunchStatus, LogChunk, TransientError


class Instant:
    """Whatever it launches has succeeded at once."""

    status = "succeeded"

    def plan(self, ctx: Any) -> LaunchPlan:
        return LaunchPlan(summary="nothing at all")

    def launch(self, ctx: Any) -> LaunchHandle:
        note("calls", ctx.launch_id)
        self.before(ctx)
        try:
            # As an engine does it: of two with the same launch_id, one finds what the other has started.
            with (ledger() / f"{ctx.launch_id}.name").open("x") as file:
                file.write(ctx.name)
            note("started", ctx.launch_id)
        except FileExistsError:
            pass
        return LaunchHandle(launcher="told", id=ctx.launch_id, details={"run_dir": ctx.run_dir})

    def before(self, ctx: Any) -> None:
        """What happens before the engine takes it."""

    def poll(self, handle: Any) -> LaunchStatus:
        if (ledger() / f"{handle.id}.over").exists():
            return LaunchStatus(status="cancelled", message="as was wanted")
        if (why := ledger() / f"{handle.id}.failed").exists():
            return LaunchStatus(status="failed", message=why.read_text())
        return LaunchStatus(status=self.status)

    def cancel(self, handle: Any, grace_seconds: float) -> None:
        note("cancelled", handle.id)
        (ledger() / f"{handle.id}.over").touch()

    def read_logs(self, handle: Any, since: str) -> LogChunk:
        return LogChunk(text="", next=since or "0")


class Far(Instant):
    """It runs where the run directory is not seen, and prints a line."""

    sees_run_dir = False

    def read_logs(self, handle: Any, since: str) -> LogChunk:
        return LogChunk(text="" if since else "a pod has started\n", next="all")


class Slow(Instant):
    """Takes its time to launch: seconds, or until the file ``go`` is there."""

    @attrs.frozen(kw_only=True)
    class Settings:
        seconds: float = 0.0
        until_go: bool = False

    def __init__(self, settings: Any) -> None:
        self._settings = settings

    def before(self, ctx: Any) -> None:
        time.sleep(self._settings.seconds)
        while self._settings.until_go and not (ledger() / "go").exists():
            time.sleep(0.02)


class Flaky(Instant):
    """Its engine does not answer the first times."""

    @attrs.frozen(kw_only=True)
    class Settings:
        times: int = 3

    def __init__(self, settings: Any) -> None:
        self._settings = settings

    def before(self, ctx: Any) -> None:
        if calls(ctx.launch_id) <= self._settings.times:
            raise TransientError("the engine is out for lunch", hint="wait until it is back")


class Broken(Instant):
    """Has a defect."""

    def before(self, ctx: Any) -> None:
        raise ZeroDivisionError("a defect of the launcher")


class Refusing(Instant):
    """Its engine takes nothing."""

    def before(self, ctx: Any) -> None:
        raise FatalError("the engine knows no such queue", hint="ask its operator")


class Stuck(Instant):
    """Whatever it launches runs, far away, until somebody cancels it."""

    sees_run_dir = False
    status = "running"


class Deaf(Stuck):
    """Whatever it launches runs for ever."""

    def cancel(self, handle: Any, grace_seconds: float) -> None:
        note("cancelled", handle.id)


def ledger() -> Path:
    return Path(os.environ["HOSTCORE_TEST_LEDGER"])


def note(file: str, line: str) -> None:
    with (ledger() / file).open("a") as notes:
        notes.write(f"{line}\n")


def calls(launch_id: str) -> int:
    return (ledger() / "calls").read_text().split().count(launch_id)
