"""A whole run in this process: the supervisor in a thread, the worker where it was called, the usual line between.

For notebooks and debuggers. What a separate process gives is lost here: a worker that crashes takes the supervisor
along.
"""

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import attrs

from hostcore.notebook import errors_in_plain_words
from hostcore.runs.channel import Channel
from hostcore.runs.result import RunResult
from hostcore.supervisor.attempt.journal import Listener
from hostcore.supervisor.attempt.restarting import Restart, run_attempts
from hostcore.supervisor.attempt.supervise import supervise
from hostcore.supervisor.authorizing import authorize_here
from hostcore.supervisor.engine import Engine
from hostcore.supervisor.environment import UnusableEnvironment
from hostcore.supervisor.interrupts import Asked, Interrupts
from hostcore.supervisor.opening import Opening, open_run
from hostcore.supervisor.plan import RunPlan, make_plan
from hostcore.supervisor.remote.bringing import bring_here
from hostcore.supervisor.submit import require_no_engine
from hostcore.supervisor.workers.spawn import WorkerExit
from hostcore_builtin_plugins.control_characters import visible
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.events import Event

_SIGNAL: Final = "signal:"


@errors_in_plain_words()
def run(
    job: str | Path | Mapping[str, Any],
    on_event: Callable[[Event], object] | None = None,
    *,
    overrides: Sequence[str] = (),
    profile: str | None = None,
    trace_hooks: bool = False,
) -> RunResult:
    """Run a job in this process.

    :param job: The path of a job file, or the job itself.
    :param on_event: Called with every event, from another thread; an exception in it does not hurt the run.
    :param overrides: ``key=value``, as with ``--set``.
    :param profile: One of the job's ``profiles``.
    :param trace_hooks: Write down every call of a hook or of the trainer, in ``logs/hooks.rank-0.attempt-1.log``.
    :return: The fields of ``result.json``. A run that failed is a result too, not an exception.
    :raises HostcoreError: When the job is invalid, or a policy refuses it; nothing was started then.
    """
    plan = make_plan(job if isinstance(job, Mapping) else Path(job), overrides=overrides, profile=profile)
    plan = attrs.evolve(plan, trace_hooks=trace_hooks)
    require_one_rank(plan)
    require_no_engine(plan)
    authorize_here(plan)
    with Interrupts() as interrupts:
        plan, _ = bring_here(plan, lambda line: print(visible(line), file=sys.stderr))
        opened = open_run(plan)
        if isinstance(opened, RunResult):
            return opened
        listeners = [Listener(label="on_event", report_event=on_event)] if on_event else []
        return run_attempts(plan, opened, partial(run_here, interrupts, listeners=listeners))


def require_one_rank(plan: RunPlan) -> None:
    """See that a run can be one of this process alone.

    :raises SeveralRanks: When the job asks for several devices, or this process is one of several ranks.
    :raises UnusableEnvironment: When the job has an environment of its own.
    """
    if plan.spec.environment is not None:
        python = plan.python or plan.programs_python
        raise UnusableEnvironment(
            f"a run in this process has its Python, and the job's environment has {python}",
            pointer="/environment",
            hint="use `hostcore run` without --in-process, or remove the key",
        )
    if plan.spec.ranks > 1:
        devices = ", ".join(plan.spec.requested_devices)
        raise SeveralRanks(
            f"a run in this process has one rank, and the job asks for {plan.spec.ranks}: {devices}",
            pointer="/devices",
            hint="name one device, or use `hostcore run`, which starts a process for each",
        )
    if engine := Engine.of(os.environ):
        raise SeveralRanks(
            f"a run in this process has one rank, and this process is rank {engine.rank} of {engine.world_size}",
            hint="start `python -m hostcore run JOB` with torchrun, or unset RANK and WORLD_SIZE",
        )


def run_here(
    interrupts: Interrupts,
    plan: RunPlan,
    opening: Opening,
    restart: Restart | None = None,
    *,
    listeners: Sequence[Listener] = (),
) -> RunResult:
    """Run an opened attempt in this process.

    :param restart: Why it is started, if it is one more after a failure.
    """
    workers: SimpleQueue[_WorkerHere | None] = SimpleQueue()

    def spawn(rank: int, contract: Path, output: Path) -> _WorkerHere:  # noqa: ARG001 - its output stays in the terminal
        workers.put(worker := _WorkerHere(contract, interrupts))
        return worker

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="hostcore supervisor") as threads:
        supervised = threads.submit(
            supervise,
            plan,
            opening,
            interrupts,
            restart=restart,
            listeners=listeners,
            spawn=spawn,
        )
        supervised.add_done_callback(lambda _: workers.put(None))
        if (worker := workers.get()) is not None:  # else the supervisor has given up before it needed one
            worker.work()
        return supervised.result()


class SeveralRanks(HostcoreError):
    """A run of several ranks was asked for in a single process."""

    code = "run.one_process"


def _is_a_signal(requested_by: str) -> bool:
    """Return whether the request came from outside of the process, and not from one of its own components."""
    return requested_by == "user" or requested_by.startswith(_SIGNAL)


class _WorkerHere:
    """A worker in the calling thread."""

    def __init__(self, contract: Path, interrupts: Interrupts) -> None:
        self.channel, self._own_end = Channel.pair()
        self._interrupts = interrupts
        self._contract = contract
        self._over = threading.Event()
        self._code = 1

    def work(self) -> None:
        """Be the worker, to its end."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        try:
            from hostcore.worker.attempt import run_attempt
            from hostcore.worker.line import SupervisorLine
            from hostcore.worker.stop import StopSwitch, noted_by

            stop = StopSwitch()
            with closing(SupervisorLine(self._own_end, stop)) as line:
                with suppress(KeyboardInterrupt), noted_by(stop) if in_main_thread else nullcontext():
                    self._code = run_attempt(self._contract, line, stop)
                if stop.first and (not line.may_go or _is_a_signal(stop.first[2])):
                    status, reason, requested_by = stop.first
                    asked = Asked(status=status, reason=reason, requested_by=requested_by)
                    self._interrupts.hear(asked, hurried=requested_by.startswith(_SIGNAL), forced=False)
        finally:
            self._own_end.close()
            self._over.set()

    @property
    def pid(self) -> int:
        """The number of this process."""
        return os.getpid()

    def poll(self) -> WorkerExit | None:
        """Return its exit; None while it works."""
        return WorkerExit(self._code) if self._over.is_set() else None

    def wait(self) -> WorkerExit:
        """Wait for its end."""
        self._over.wait()
        return WorkerExit(self._code)

    def kill(self) -> None:
        """A thread cannot be killed: hang up, upon which it stops after its step."""
        self.channel.hang_up()

    def abort(self) -> None:
        """There is no way to look into a thread that hangs, either."""
        self.kill()

    def close(self) -> None:
        """Close the line to it."""
        self.channel.close()
