"""A worker that imports torch while its job is still planned, and is told later what it is to do.

Importing torch takes seconds, and planning a run some tenths of one. So the command that will need a worker starts it
first::

    command   start ─ import the supervisor, plan the job, open the run ─ take() ─▶ as with any worker
    worker    └▶ import torch, the feed, the loop … ─────────────────────────────┴▶ as any worker

What it is to do comes through a socket of its own: a line of JSON, with the descriptors of its line to the supervisor,
of its output, and of the leases of its GPUs. Its environment cannot change any more, except for what says which GPUs it
sees, which nothing has read before then. One that the job cannot use ends as soon as the job is known
(:meth:`EarlyWorker.look`); one that does not fit, or has died, is none: another is started.

Imports nothing heavy: it would come before torch.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from hostcore.runs.channel import SAID_LATER
from hostcore.supervisor.ranks.engine import RANK_VARIABLES, SUPERVISOR_VARIABLE, without_ranks

if TYPE_CHECKING:
    from hostcore.job.spec import JobSpec

#: What may still change after the start: torch reads it when it first asks for a GPU.
_LATE_VARIABLES: Final = ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES")


class EarlyWorker:
    """The worker of a job with one rank; a context manager, which ends it if it was not taken.

    :param is_wanted: Whether to start one. None is started either where an engine has started this process.
    """

    def __init__(self, *, is_wanted: bool = True) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if is_wanted and not any(name in os.environ for name in RANK_VARIABLES):
            with suppress(OSError):  # the worker that is started later says what is wrong
                self._start()

    def _start(self) -> None:
        self._environment = worker_environment(without_ranks(os.environ))
        with ExitStack() as opened:
            self._output = opened.enter_context(tempfile.TemporaryFile())
            self._handover, theirs = socket.socketpair()
            opened.enter_context(self._handover)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "hostcore.worker", SAID_LATER, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=self._output,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            opened.pop_all()  # until the worker has ended

    def look(self, spec: "JobSpec") -> None:
        """End it if it can be no worker of a job: one with an environment of its own, or with several ranks."""
        elsewhere = spec.environment is not None and spec.environment.used_by == "worker"
        if elsewhere or spec.ranks > 1:
            self.close()

    def take(
        self, contract: Path, descriptors: Sequence[int], environment: Mapping[str, str]
    ) -> "subprocess.Popen[bytes] | None":
        """Tell it what it is to do. It can be taken once.

        :param contract: The contract file.
        :param descriptors: Its end of the line, its output, and what it is to inherit besides.
        :param environment: All of it.
        :return: Its process; None if there is none that could do this.
        """
        process, self._process = self._process, None
        if process is None:
            return None
        late = {name: value for name, value in environment.items() if self._environment.get(name) != value}
        fits = set(late) <= set(_LATE_VARIABLES) and set(self._environment) <= set(environment)
        if fits and process.poll() is None:
            told = json.dumps({"contract": str(contract), "environment": late}).encode() + b"\n"
            with suppress(OSError), self._handover:  # it has just died
                socket.send_fds(self._handover, [told], descriptors)
                return process
        self._end(process)
        return None

    def unheard(self) -> bytes:
        """What it wrote before it was told where to; nothing once it was."""
        # Not read(), which would move the place where the worker writes.
        return os.pread(self._output.fileno(), os.fstat(self._output.fileno()).st_size, 0)

    def close(self) -> None:
        """End it, if it was not taken."""
        process, self._process = self._process, None
        if process is not None:
            self._end(process)

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        with suppress(ProcessLookupError, PermissionError):  # it is gone
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._handover.close()
        self._output.close()

    def __enter__(self) -> "EarlyWorker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment with what every worker has in it: its output is not kept back, and it knows its supervisor."""
    return {**environment, "PYTHONUNBUFFERED": "1", SUPERVISOR_VARIABLE: str(os.getpid())}
