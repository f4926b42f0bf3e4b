"""The full check of a job: what ``hostcore validate`` finds, asked of a process of its own.

Plugins are imported there and data is opened, which takes long and may fail in any way; the service only waits, and
not for ever.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
import orjson
from anyio import CapacityLimiter
from anyio.abc import Process
from fastapi import Request

from hostcore.errors import Errors
from hostcore.job.names import is_builtin
from hostcore.runs.directory import RUNS_DIR_VARIABLE
from hostcore.secrets.scrub import scrub
from hostcore.supervisor.operator_file import VARIABLE as OPERATOR_VARIABLE
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.submit import handed_on
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.http.problems import RequestError
from hostcore_service.settings import TOKEN_VARIABLE

_SECONDS: Final = 120.0
_AT_ONCE: Final = 2
#: Requests that may wait for their turn.
_WAITING: Final = 16
#: Between two looks whether the client is still there.
_LOOK_SECONDS: Final = 0.25
#: How long a check that is not wanted any more may take to end.
_LEAVE_SECONDS: Final = 5.0
_MOST_BYTES: Final = 4 << 20

#: What is wrong on this machine, and may be right where a launcher takes the job.
_OF_THIS_MACHINE: Final = frozenset({"device.unavailable", "device.shared"})


@attrs.frozen(kw_only=True)
class Checked:
    """Result of a check."""

    #: What `hostcore validate --json` prints; None if it could not be made here.
    found: Mapping[str, Any] | None = None
    #: What stays unchecked; sentences.
    unchecked: Sequence[str] = ()


class Checks:
    """The checks that a service makes, a few at a time."""

    def __init__(self) -> None:
        self.turns = CapacityLimiter(_AT_ONCE)


async def check(plan: RunPlan, request: Request) -> Checked:
    """Check a job.

    :raises HostcoreError: Everything that is wrong with it; or when too many are checked already.
    """
    environment = plan.spec.environment
    if environment is not None and environment.interpreter is None:  # nothing is built before the job runs
        return Checked(unchecked=["the job's environment, which is built when it runs, its plugins, and its data"])
    checks: Checks = request.app.state.checks
    if checks.turns.statistics().tasks_waiting >= _WAITING:
        raise RequestError(
            "too many jobs are being checked",
            code="service.busy",
            hint="try again in a moment",
            headers={"Retry-After": "10"},
        )
    async with checks.turns:
        with tempfile.TemporaryDirectory(prefix="hostcore-check-") as folder:
            return await _checked(plan, request, Path(folder))


async def _checked(plan: RunPlan, request: Request, folder: Path) -> Checked:
    job, output = folder / "job.json", folder / "output"
    # It is checked as it will run; its policies were asked, on behalf of whom it came from.
    document = handed_on(plan.spec)
    document.pop("policies", None)
    job.write_bytes(orjson.dumps(document))
    with output.open("wb") as stdout:
        process = await anyio.open_process(
            [sys.executable, "-P", "-m", "hostcore", "validate", "--json", str(job)],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=_environment(plan),
            start_new_session=True,
        )
    try:
        with anyio.move_on_after(_SECONDS):
            await _ended(process, request)
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
    if process.returncode is None or process.returncode < 0:
        return Checked(unchecked=[f"the check was not done after {_SECONDS:g} seconds: what it would have found"])
    with output.open("rb") as file:
        return _understood(file.read(_MOST_BYTES), plan)


def _environment(plan: RunPlan) -> dict[str, str]:
    """That of the service, without what is the service's alone."""
    environment = {name: value for name, value in os.environ.items() if name not in (TOKEN_VARIABLE, OPERATOR_VARIABLE)}
    return {**environment, RUNS_DIR_VARIABLE: str(plan.directory.path.parent)}


async def _ended(process: Process, request: Request) -> None:
    """Wait for the end of a check.

    :raises RequestError: Before its end, when the client is gone or the service is about to end.
    """
    while process.returncode is None:
        with anyio.move_on_after(_LOOK_SECONDS):
            await process.wait()
        if process.returncode is None and (request.app.state.streams.leaving or await request.is_disconnected()):
            raise RequestError("the check was left", code="service.busy")


async def _end(process: Process) -> None:
    """See that a check has ended. Its workers end when they find its pipe closed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with anyio.move_on_after(_LEAVE_SECONDS):
            await process.wait()


def _understood(output: bytes, plan: RunPlan) -> Checked:
    try:
        found = orjson.loads(output)
        errors = [_error(one) for one in found.pop("errors", ())]
    except (ValueError, TypeError, AttributeError, KeyError):
        return Checked(unchecked=["the check died without a word: what it would have found"])
    if errors and not is_builtin(plan.spec.launcher.use, "local") and {one.code for one in errors} <= _OF_THIS_MACHINE:
        return Checked(
            unchecked=[
                f"the job's device, which the machine of the service has not ({one.message}), and what needs it"
                for one in errors
            ]
        )
    if errors:
        raise Errors(errors)
    for key in ("job", "directory"):
        found.pop(key, None)
    return Checked(found=found)


def _error(found: Mapping[str, Any]) -> HostcoreError:
    return HostcoreError(
        scrub(found["message"]), code=found["code"], pointer=found.get("pointer"), hint=found.get("hint")
    )
