"""One attempt in the worker: start up, wait for the word, train, and end honestly."""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import torch

from hostcore.events.writer import RankLog
from hostcore.plugins.attribution import calling
from hostcore.plugins.errors import one_line
from hostcore.runs.channel import errors_as_content
from hostcore.runs.contract import WorkerContract
from hostcore.runs.result import FAILED, INVALID, SUCCEEDED
from hostcore.toolkit import seed_everything
from hostcore.worker.checkpointing import Checkpointer, TrainerCalls, stateful
from hostcore.worker.failure import INVALID_BEFORE_FIRST_STEP, located, run_error
from hostcore.worker.feed.transform import Transformer, make_transformer
from hostcore.worker.line import SupervisorLine
from hostcore.worker.loop import train
from hostcore.worker.metrics import PROGRESS_SECONDS, Meter
from hostcore.worker.progress import Progress
from hostcore.worker.startup import Prepared, prepare
from hostcore.worker.stop import ComponentStop, StopSwitch
from hostcore.worker.training import Hooks, Training, nothing
from hostcore_hookspecs import events
from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.errors import HostcoreError, RunError

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
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
    try:
        contract = WorkerContract.read(contract_path)
        prepared = prepare(contract, local_rank=int(os.environ.get("LOCAL_RANK", "0")))
    except HostcoreError as error:
        _report_invalid(line, error)
        return INVALID
    line.send("ready", prepared.summary())
    if not line.wait_for_go():
        return SUCCEEDED

    try:
        log = RankLog(Path(contract.events_path))
    except OSError as error:
        failure = RunError(type="RunUnwritable", message=f"the worker's log cannot be written: {error}", rank=0)
        line.send("failed", attrs.asdict(failure))
        return FAILED
    attempt = _Attempt(contract, prepared, stop, log)
    try:
        attempt.run()
    except KeyboardInterrupt:
        attempt.interrupted()
    except BaseException as error:  # noqa: BLE001 - also SystemExit: the run has to end in its log
        if attempt.made_no_step and isinstance(error, INVALID_BEFORE_FIRST_STEP):
            _report_invalid(line, located(error, prepared))
            return INVALID
        attempt.fail(error, line)
        return FAILED
    finally:
        log.close()
    return SUCCEEDED


def _report_invalid(line: SupervisorLine, error: HostcoreError) -> None:
    line.send("invalid", errors_as_content(error))


def _sign_seconds(stall_seconds: float) -> float:
    """How often a training that records no metrics shows that it goes on: often enough not to be taken for stalled."""
    return min(PROGRESS_SECONDS, stall_seconds / 3) if stall_seconds else PROGRESS_SECONDS


class _Attempt:
    """Puts the parts together, runs the loop, and writes the end into the log."""

    def __init__(self, contract: WorkerContract, prepared: Prepared, stop: StopSwitch, log: RankLog) -> None:
        self._contract = contract
        self._prepared = prepared
        self._stop = stop
        self._log = log
        self._progress = Progress(prepared.feed.rows_per_step)
        self._started_at = 0
        self._ctx = StepContext(
            job=prepared.job,
            hyperparams=prepared.trainer.settings,
            device=prepared.device,
            dtype=_DTYPES[prepared.job.precision],
            run_state=self._progress.state,
            model_handles={"weights": prepared.spec.weights} if prepared.spec.weights else {},
            dataset=prepared.dataset,
            stop=ComponentStop(stop, self._name_of_asker),
        )

    def _name_of_asker(self) -> str:
        component = calling(self._prepared.components)
        return component.ref.provenance if component else "component"

    @property
    def made_no_step(self) -> bool:
        return self._progress.state.step == self._started_at

    def _emit(self, payload: events.Payload, *, step: int | None = None, epoch: int | None = None) -> None:
        state = self._progress.state
        self._log.write(
            payload, step=state.step if step is None else step, epoch=state.epoch if epoch is None else epoch
        )

    def _of_trainer(self, method: str) -> Any:
        return self._prepared.hooks.bind(method, of=self._prepared.trainer)

    def _hook(self, name: str) -> Any:
        return self._prepared.hooks.bind(name) or nothing

    def run(self) -> None:
        """Set the trainer up, train, tear down, and write the end.

        After an error ``on_exception`` comes first, then ``teardown``; what these raise is a warning.
        """
        job = self._prepared.job
        seed_everything(job.seed)
        if job.deterministic != torch.are_deterministic_algorithms_enabled():  # setting it imports torch._dynamo: 1.8 s
            torch.use_deterministic_algorithms(job.deterministic)
        teardown: Callable[..., Any] = nothing
        try:
            self._of_trainer("setup")(self._ctx)
            state = self._of_trainer("configure")(self._ctx)
            teardown = partial(self._of_trainer("teardown") or nothing, state, self._ctx)
            saver = self._checkpointer(state)
            end = self._train(state, saver)
            last, teardown = teardown, nothing
            last()
        except BaseException as error:
            self._guarded("on_exception", self._hook("on_exception"), error, self._progress.state, self._ctx)
            self._guarded("teardown", teardown)
            raise
        self._emit(end)

    def _guarded(self, name: str, call: Callable[..., Any], *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001 - an earlier error is the one to show
            with suppress(OSError):
                self._emit(events.Warning(code="plugin.failed", message=f"{name} raised {one_line(error)}"))

    def _train(self, state: Any, saver: Checkpointer) -> events.Payload:
        """Run the loop. What was being written when it failed is written to its end.

        :return: The end.
        """
        restore_randomness = saver.restore(self._prepared.resume) or nothing
        self._started_at = self._progress.state.step
        self._emit(events.RunStarted(device=str(self._prepared.device), world_size=self._ctx.world_size))
        transformer = self._transformer()
        try:
            train(self._training(state, saver, transformer), restore_randomness)
        except (Exception, SystemExit):
            self._guarded("the checkpoint that was being written", saver.finish)
            raise
        except BaseException:
            saver.abandon()  # nobody waits any more
            raise
        finally:
            if transformer is not None:
                transformer.close()
        ended = self._stop.first
        if ended and self._progress.state.step < self._prepared.total_steps:
            return _ENDS[ended.status](reason=ended.reason)
        return events.RunSucceeded()

    def _transformer(self) -> Transformer | None:
        prepared = self._prepared
        return make_transformer(
            hooks=prepared.hooks,
            components=prepared.components,
            selected=prepared.selected,
            job_dir=prepared.job_dir,
            ctx=self._ctx,
            workers=prepared.spec.dataset.workers if prepared.spec.dataset else 0,
            rows_per_step=prepared.feed.rows_per_step,
            stopping=lambda: self._stop.requested,
        )

    def _training(self, state: Any, saver: Checkpointer, transformer: Transformer | None) -> Training:
        bind = self._prepared.hooks.bind
        return Training(
            job=self._prepared.job,
            ctx=self._ctx,
            state=state,
            hooks=Hooks(
                prepare_batch=self._of_trainer("prepare_batch"),
                train_step=self._of_trainer("train_step"),
                on_train_begin=self._hook("on_train_begin"),
                on_train_end=self._hook("on_train_end"),
                on_epoch_begin=self._hook("on_epoch_begin"),
                on_epoch_end=self._hook("on_epoch_end"),
                on_batch_begin=bind("on_batch_begin"),
                on_batch_end=bind("on_batch_end"),
                on_stop_requested=self._hook("on_stop_requested"),
            ),
            feed=self._prepared.feed,
            transformer=transformer,
            progress=self._progress,
            total_steps=self._prepared.total_steps,
            saver=saver,
            stop=self._stop,
            log=self._log,
            meter=Meter(sign_seconds=_sign_seconds(self._prepared.spec.stall_seconds)),
        )

    def _checkpointer(self, state: Any) -> Checkpointer:
        contract, prepared = self._contract, self._prepared
        return Checkpointer(
            folder=Path(contract.checkpoints_dir),
            attempts=Path(contract.attempts_dir),
            attempt=contract.attempt,
            rank=self._ctx.rank,
            keep=prepared.spec.keep_checkpoints,
            required=prepared.spec.require_checkpoints,
            ctx=self._ctx,
            state=state,
            trainer=TrainerCalls(
                state_dict=self._of_trainer("state_dict"),
                load_state_dict=self._of_trainer("load_state_dict"),
                save_checkpoint=self._of_trainer("save_checkpoint"),
                load_checkpoint=self._of_trainer("load_checkpoint"),
            ),
            callbacks=stateful((one.use, one.instance) for one in prepared.callbacks),
            on_checkpoint_saved=prepared.hooks.bind("on_checkpoint_saved"),
            feed=prepared.feed,
            progress=self._progress,
            emit=self._emit,
            sync_log=self._log.sync,
        )

    def interrupted(self) -> None:
        """A second signal: end at once."""
        for request in self._stop.unheard():
            self._emit(events.StopRequested(reason=request.reason, requested_by=request.requested_by))
        first = self._stop.first
        status, reason = (first.status, first.reason) if first else ("cancelled", "interrupted by the user")
        self._emit(_ENDS["cancelled" if status == "succeeded" else status](reason=f"{reason}, twice"))

    def fail(self, error: BaseException, line: SupervisorLine) -> None:
        """Write the failure into the log; or tell it over the line, where the log cannot take it."""
        failure = run_error(error, self._prepared, rank=self._ctx.rank)
        try:
            self._emit(events.RunFailed(error=failure))
        except OSError:
            line.send("failed", attrs.asdict(failure))
