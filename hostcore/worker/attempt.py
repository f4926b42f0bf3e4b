"""One attempt in the worker: start up, wait for the word, train, and end honestly."""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import attrs
import torch

from hostcore.events.writer import RankLog
from hostcore.interruption import is_by_signal
from hostcore.plugins.errors import one_line
from hostcore.runs.result import FAILED, INVALID, SUCCEEDED
from hostcore.worker import randomness
from hostcore.worker.assembly import Assembly
from hostcore.worker.failure import INVALID_BEFORE_FIRST_STEP, located, run_error
from hostcore.worker.line import SupervisorLine
from hostcore.worker.loop import train
from hostcore.worker.ranks.group import join
from hostcore.worker.startup import Prepared, check, report_invalid
from hostcore.worker.stop import StopSwitch
from hostcore.worker.training import nothing, steps_between_validations
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import HostcoreError, RunError
from hostcore_toolkit import seed_everything

T = TypeVar("T")

_ENDS: dict[str, Callable[..., events.Payload]] = {
    "succeeded": events.RunSucceeded,
    "cancelled": events.RunCancelled,
    "preempted": events.RunPreempted,
}


def run_attempt(contract_path: Path, line: SupervisorLine, stop: StopSwitch) -> int:
    """Run a worker to its end.

    :param contract_path: The contract file.
    :param line: The line to the supervisor.
    :return: The worker's exit code; how the run ended is in its log.
    """
    checked = check(contract_path, line)
    if checked is None:
        return INVALID
    contract, prepared = checked
    if not line.wait_for_go():
        return SUCCEEDED

    try:
        log = RankLog(Path(contract.events_path))
        if prepared.trace is not None:
            prepared.trace.open(Path(contract.trace_path))
    except OSError as error:
        failure = RunError(type="RunUnwritable", message=f"the worker's log cannot be written: {error}", rank=0)
        line.send("failed", attrs.asdict(failure))
        return FAILED
    try:
        ranks = join(prepared.rank_info, torch.device(prepared.device))
    except HostcoreError as error:
        line.send("failed", attrs.asdict(run_error(error, prepared, rank=prepared.rank_info.rank)))
        log.close()
        return FAILED
    parts = Assembly(contract, prepared, stop, log, ranks)
    try:
        return _evaluate(parts, line) if contract.evaluate else _train(parts, line, stop)
    finally:
        ranks.close()
        log.close()
        if prepared.trace is not None:
            prepared.trace.close()


def _train(parts: Assembly, line: SupervisorLine, stop: StopSwitch) -> int:
    attempt = _Attempt(parts, stop)
    try:
        attempt.run()
    except BaseException as error:  # noqa: BLE001 - also SystemExit: the run has to end in its log
        if attempt.is_forced_by(error):
            attempt.interrupted()
            return SUCCEEDED
        if attempt.made_no_step and isinstance(error, INVALID_BEFORE_FIRST_STEP):
            report_invalid(line, located(error, parts.prepared))
            return INVALID
        attempt.fail(error, line)
        return FAILED
    return SUCCEEDED


def _evaluate(parts: Assembly, line: SupervisorLine) -> int:
    """Evaluate in place of training. There is no run, so the result goes to the supervisor over the line."""
    try:
        line.send("evaluated", evaluate_alone(parts))
    except BaseException as error:  # noqa: BLE001 - also SystemExit: the supervisor needs the error
        if isinstance(error, INVALID_BEFORE_FIRST_STEP):
            report_invalid(line, located(error, parts.prepared))
            return INVALID
        line.send("failed", attrs.asdict(run_error(error, parts.prepared, rank=parts.ctx.rank)))
        return FAILED
    return SUCCEEDED


class _Attempt:
    """Runs the loop, and writes the end into the log."""

    def __init__(self, parts: Assembly, stop: StopSwitch) -> None:
        self._parts = parts
        #: This rank's own.
        self._stop = stop
        self._started_at = 0

    @property
    def made_no_step(self) -> bool:
        return self._parts.progress.state.step == self._started_at

    def is_forced_by(self, error: BaseException) -> bool:
        """Return whether a signal asks for the run to end at once. A plugin's own KeyboardInterrupt is a failure."""
        return isinstance(error, KeyboardInterrupt) and (self._stop.signalled or is_by_signal(error))

    def run(self) -> None:
        """Set the trainer up, train, tear down, and write the end, once all ranks have come that far."""
        end = live(self._parts, self._train)
        self._parts.ranks.barrier()
        self._parts.emit(end)

    def _train(self, state: Any) -> events.Payload:
        """Run the loop. What was being written when it failed is written to its end.

        :return: The end.
        """
        parts, saver = self._parts, self._parts.checkpointer(state)
        restore_randomness = saver.restore(parts.prepared.resume) or nothing
        self._started_at = parts.progress.state.step
        parts.emit(_started(parts.prepared, world_size=parts.ctx.world_size))
        with ExitStack() as open_ones:
            try:
                complete = train(parts.training(state, saver, open_ones), restore_randomness)
            except BaseException as error:
                parts.progress.give_up()
                if self.is_forced_by(error):
                    saver.abandon()  # a forced end does not wait
                else:
                    guarded(parts, "the checkpoint that was being written", saver.finish_alone)
                raise
        first = parts.stop.first
        if complete:
            early = parts.progress.state.step < parts.prepared.total_steps
            return events.RunSucceeded(reason=first.reason if early and first else None)
        ended = parts.stop.interrupted or first
        assert ended is not None
        return _ENDS[ended.status](reason=ended.reason)

    def interrupted(self) -> None:
        """A second signal: end at once."""
        self._parts.progress.give_up()
        for request in self._parts.stop.unheard():
            self._parts.emit(events.StopRequested(reason=request.reason, requested_by=request.requested_by))
        first = self._parts.stop.first
        status, reason = (first.status, first.reason) if first else ("cancelled", "interrupted by the user")
        self._parts.emit(_ENDS["cancelled" if status == "succeeded" else status](reason=f"{reason}, twice"))

    def fail(self, error: BaseException, line: SupervisorLine) -> None:
        """Write the failure into the log; or send it over the line, where the log cannot take it."""
        step = self._parts.progress.state.step + 1
        failure = run_error(error, self._parts.prepared, rank=self._parts.ctx.rank, step=step)
        try:
            self._parts.emit(events.RunFailed(error=failure))
        except OSError:
            line.send("failed", attrs.asdict(failure))


def _started(prepared: Prepared, *, world_size: int) -> events.RunStarted:
    """The beginning of the training, with what is due in it beside the steps."""
    job, samples = prepared.job, len(prepared.sample_requests)
    return events.RunStarted(
        device=prepared.device_name,
        world_size=world_size,
        validate_every=steps_between_validations(job, prepared.feed) if prepared.validation else 0,
        sample_every=job.sample_every if samples else 0,
        samples=samples,
        test=prepared.test is not None,
    )


def evaluate_alone(parts: Assembly) -> dict[str, Any] | None:
    """Load the checkpoint that was found, validate or test, and tear down. No other hook of the loop is called.

    :return: The message for the supervisor: the split, metrics and weight, as the events have them, and the checkpoint
        they are of. None when the run was asked to stop before the end.
    """
    search, ctx, run_state = parts.prepared.resume, parts.ctx, parts.progress.state
    split = "validation" if parts.prepared.test is None else "test"  # its start-up leaves one of them
    assert search.point is not None
    begin, end = parts.hook(f"on_{split}_begin"), parts.hook(f"on_{split}_end")

    def work(state: Any) -> dict[str, Any] | None:
        parts.checkpointer(state).restore(search)
        with ExitStack() as open_ones:
            evaluation = parts.evaluation(split, state, open_ones)
            assert evaluation is not None
            begin(run_state, ctx)
            evaluated = evaluation.run()
            if evaluated is None:
                return None
            parts.progress.remember(evaluated.metrics)
            end(evaluated.metrics, run_state, ctx)
        return evaluated.content()

    content = live(parts, work)
    if content is None:
        return None
    return {
        **content,
        "split": split,
        "step": run_state.step,
        "run_id": search.point.host["run_id"],
        "checkpoint": str(search.point.found.folder),
        "skipped": [{"path": str(one.path), "reason": one.reason} for one in search.skipped],
    }


def live(parts: Assembly, work: Callable[[Any], T]) -> T:
    """Set the trainer up, do something with its state, and tear it down.

    After an error ``on_exception`` comes first, then ``teardown``; what these raise is a warning.

    :param work: Takes what the trainer's ``configure`` returned.
    """
    job = parts.prepared.job
    seed_everything(job.seed)
    if job.deterministic != torch.are_deterministic_algorithms_enabled():  # setting it imports torch._dynamo: 1.8 s
        torch.use_deterministic_algorithms(job.deterministic)
    teardown: Callable[..., Any] = nothing
    configured: Any = ...
    try:
        parts.of_trainer("setup")(parts.ctx)
        state = configured = parts.of_trainer("configure")(parts.ctx)
        randomness.part_ways(job.seed, parts.ranks.rank)
        teardown = partial(parts.of_trainer("teardown") or nothing, state, parts.ctx)
        done = work(state)
        last, teardown = teardown, nothing
        last()
    except BaseException as error:
        if configured is None and "NoneType" in one_line(error):
            vars(error).setdefault("hint", "configure returned None; the other methods get what it returns as `state`")
        guarded(parts, "on_exception", parts.hook("on_exception"), error, parts.progress.state, parts.ctx)
        guarded(parts, "teardown", teardown)
        raise
    return done


def guarded(parts: Assembly, name: str, call: Callable[..., Any], *arguments: Any) -> None:
    """Call something after an error; what it raises is a warning."""
    try:
        call(*arguments)
    except BaseException as error:
        if is_by_signal(error):
            raise
        with suppress(OSError):
            parts.emit(events.Warning(code="plugin.failed", message=f"{name} raised {one_line(error)}"))
