"""The callback ``chaos``: does to its own run what a machine, a scheduler or a person may do to any."""

import errno
import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from itertools import chain
from pathlib import Path
from types import MethodType
from typing import Annotated, Any, Final, NoReturn

import attrs
import orjson
from annotated_types import Ge

from hostcore_builtin_plugins.processes import shares_pids
from hostcore_chaos.faults import POINTS, Fault, faults_of
from hostcore_chaos.record import FaultRecord
from hostcore_hookspecs import Checkpoint, RunState, StepContext, hookimpl

_SIGNALS: Final = {"sigterm": signal.SIGTERM, "sigint": signal.SIGINT, "sigusr1": signal.SIGUSR1}
#: The last rename of a commit, from which on the checkpoint exists.
_COMMIT_RECORD: Final = re.compile(r"step-([0-9]+)\.json")


@attrs.frozen(kw_only=True)
class _PendingFault:
    """A fault of this rank that is still to be injected."""

    fault: Fault
    #: In the job's list.
    position: int
    #: The step, or the number of the checkpoint or call.
    at: int


class Chaos:
    """Injects faults, each once per run, and writes down each before it does."""

    CHANGES_TRAINING = True

    @attrs.frozen(kw_only=True)
    class Settings:
        """Settings of the callback ``chaos``."""

        faults: tuple[str, ...] = attrs.field(
            metadata={"help": "`ACTION@WHEN`, such as `sigterm@step=37` or `kill@checkpoint=2`."}
        )
        seed: Annotated[int, Ge(0)] = attrs.field(
            default=0, metadata={"help": "Draws the place of each fault that names a range: `kill@step=10..200`."}
        )

    def __init__(self, settings: Settings) -> None:
        faults = enumerate(faults_of(settings.faults))
        self._all = [_PendingFault(fault=one, position=at, at=one.number(settings.seed, at)) for at, one in faults]
        #: By point; nothing before ``setup``.
        self._pending: dict[str, list[_PendingFault]] = {}
        self._calls = Counter[str]()
        self._ctx = StepContext()
        self._record = FaultRecord("", "")
        for method in {one.fault.point for one in self._all} - {*POINTS, "setup"}:
            setattr(self, f"_around_{method}", MethodType(_wrapper(method), self))

    @hookimpl(wrapper=True, specname="setup")
    def around_setup(self, ctx: StepContext) -> Generator[None, Any, Any]:
        """See what is left to be done: the trainer's ``setup`` is the first call of an attempt."""
        self._ctx, self._record = ctx, FaultRecord(ctx.run_dir, f"rank-{ctx.rank}")
        done = self._record.positions() if ctx.run_dir else {one.position for one in self._all}
        for one in self._all:
            if one.fault.rank == ctx.rank and (one.fault.every or one.position not in done):
                self._pending.setdefault(one.fault.point, []).append(one)
        if "checkpoint" in self._pending:
            sys.addaudithook(self._note_rename)
        return (yield from self._around("setup"))

    def on_batch_end(self, run_state: RunState) -> None:
        """Inject what is due after a step."""
        self._reach("step", run_state.step)

    def on_checkpoint_saved(self, checkpoint: Checkpoint) -> None:
        """Inject what is due when a checkpoint is there."""
        if "saved" in self._pending:
            self._reach("saved", self._number_of_checkpoint("saved", checkpoint.step))

    def on_train_end(self, run_state: RunState, ctx: StepContext) -> None:
        """Warn about faults whose point a finished run has never reached: the drill was none."""
        if run_state.step == run_state.total_steps:
            for one in chain.from_iterable(self._pending.values()):
                if not one.fault.every and one.fault.point != "teardown":
                    ctx.warn(f"the fault {_told(one)} was never injected: the run has not come there")
        self._pending.pop("checkpoint", None)

    def on_exception(self) -> None:
        """Leave the checkpoints of later runs of this process alone."""
        self._pending.pop("checkpoint", None)

    def _around(self, method: str) -> Generator[None, Any, Any]:
        """A call of a method of the trainer."""
        self._calls[method] += 1
        due = self._due(method, self._calls[method])
        if due is None:
            return (yield)
        if due.fault.action.startswith("kill"):
            _at_first_file(lambda: self._inject(due))
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            self._inject(due)

    def _note_rename(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Audit hook for renames of this process, before they are done; the last of a commit makes it a checkpoint."""
        if event == "os.rename" and "checkpoint" in self._pending:
            found = _COMMIT_RECORD.fullmatch(Path(os.fsdecode(arguments[1])).name)
            if found:
                self._reach("checkpoint", self._number_of_checkpoint("checkpoint", int(found[1])))

    def _number_of_checkpoint(self, point: str, step: int) -> int:
        """Return a checkpoint's number in the run, over all attempts. A checkpoint written again keeps its number."""
        steps = {line[point] for line in self._record.lines() if point in line}
        if step not in steps:
            self._record.add(**{point: step})
        return len({other for other in steps if other < step}) + 1

    def _reach(self, point: str, number: int) -> None:
        due = self._due(point, number)
        if due is not None:
            self._inject(due)

    def _due(self, point: str, number: int) -> _PendingFault | None:
        return next((one for one in self._pending.get(point, ()) if one.at == number), None)

    def _inject(self, due: _PendingFault) -> None:
        pending = self._pending[due.fault.point]
        if due not in pending:
            return  # it was injected when the method created a file
        pending.remove(due)
        self._record.add(fault=due.fault.text, position=due.position, at=due.at)
        self._ctx.warn(f"injected fault {_told(due)}")
        action = due.fault.action
        if action in _SIGNALS:
            os.kill(os.getpid(), _SIGNALS[action])
        elif action == "disk-full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._ctx.run_dir))
        elif action == "hang":
            _hang()
        else:
            if action in ("kill-supervisor", "kill-all"):
                self._kill_supervisor()
            if action in ("kill", "kill-all"):
                os.kill(os.getpid(), signal.SIGKILL)

    def _kill_supervisor(self) -> None:
        """Kill the process that holds the run's lease, which lives as long as its workers."""
        holder = orjson.loads(Path(self._ctx.run_dir, "lease.json").read_bytes())["process"]
        if shares_pids(holder["host"], holder["boot_id"], holder["pid_namespace"]):
            os.kill(holder["pid"], signal.SIGKILL)
        else:
            self._ctx.warn("the supervisor is not killed: it runs on another machine or in another container")


def _told(one: _PendingFault) -> str:
    drawn = f" ({one.fault.point}={one.at} was drawn)" if one.fault.first < one.fault.last else ""
    return f"{one.fault.text}{drawn}"


def _wrapper(method: str) -> Callable[..., Generator[None, Any, Any]]:
    def wrap(self: Chaos) -> Generator[None, Any, Any]:
        return (yield from self._around(method))

    marked: Callable[..., Generator[None, Any, Any]] = hookimpl(wrapper=True, specname=method)(wrap)
    return marked


def _hang() -> NoReturn:
    while True:
        time.sleep(3600)


def _at_first_file(act: Callable[[], None]) -> None:
    """Act as soon as this thread has created or emptied a file, and before anything is written into it."""
    here = threading.get_ident()
    opening: list[str] = []

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and threading.get_ident() == here and _is_to_write(*arguments):
            opening.append(event)

    def look(_frame: Any, event: str, _argument: Any) -> None:
        if opening and event == "c_return":
            sys.setprofile(None)
            act()

    sys.addaudithook(note)
    sys.setprofile(look)


def _is_to_write(path: Any, mode: str | None, flags: int) -> bool:
    if not isinstance(path, str | bytes | os.PathLike):
        return False  # a descriptor
    parts = Path(os.fsdecode(path)).parts
    writes = bool(set(mode) & set("wax+")) if mode else bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    return writes and "__pycache__" not in parts and parts[:2] != ("/", "dev")
