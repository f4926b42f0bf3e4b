"""A launcher whose runs see nothing of the folder that they were submitted from: they have a folder of their own."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from hostcore_hookspecs import LaunchHandle, LaunchPlan, LaunchStatus, LogChunk

#: Runs the command, and writes down who runs it and how it has ended.
_KEEPER = """
import pathlib, subprocess, sys
here = pathlib.Path(sys.argv[1])
with (here / "output").open("wb") as output:
    process = subprocess.Popen(sys.argv[2:], stdout=output, stderr=subprocess.STDOUT)
(here / "pid").write_text(str(process.pid))
code = process.wait()
(here / "making").write_text(str(code))
(here / "making").rename(here / "exit")
"""
_STATUSES = {0: "succeeded", 75: "preempted", 130: "cancelled"}


class Far:
    """Starts what it is told in the folder ``HOSTCORE_TEST_FAR``."""

    sees_run_dir = False

    def plan(self, ctx: Any) -> LaunchPlan:
        return LaunchPlan(summary="a process far away", document=json.dumps(dict(ctx.document)))

    def launch(self, ctx: Any) -> LaunchHandle:
        here = Path(os.environ["HOSTCORE_TEST_FAR"], ctx.launch_id)
        handle = LaunchHandle(launcher="far", id=ctx.launch_id, details={"here": str(here)})
        try:
            here.mkdir(parents=True)
        except FileExistsError:
            return handle  # an earlier try has started it
        job = here / "job.json"
        job.write_text(json.dumps(dict(ctx.document)))
        command = [str(job) if word == ctx.job_path else word for word in ctx.command]
        subprocess.Popen(
            [sys.executable, "-c", _KEEPER, str(here), *command],
            cwd=here,
            env={**os.environ, "HOSTCORE_RUNS_DIR": str(here / "runs")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return handle

    def poll(self, handle: Any) -> LaunchStatus:
        here = Path(handle.details["here"])
        if not (here / "exit").exists():
            return LaunchStatus(status="running" if (here / "pid").exists() else "submitted")
        code = int((here / "exit").read_text())
        return LaunchStatus(status=_STATUSES.get(code, "failed"), exit_code=code)

    def cancel(self, handle: Any, grace_seconds: float) -> None:
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int(Path(handle.details["here"], "pid").read_text()), signal.SIGINT)

    def read_logs(self, handle: Any, since: str) -> LogChunk:
        begin = int(since or 0)
        try:
            with Path(handle.details["here"], "output").open("rb") as output:
                output.seek(begin)
                text = output.read(64)  # in small pieces
        except FileNotFoundError:
            text = b""
        return LogChunk(text=text.decode(errors="replace"), next=str(begin + len(text)))
