"""One attempt in the worker: start up, wait for the word, train, and end honestly."""

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
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
from hostcore.worker.evaluation import Evaluation
from hostcore.worker.failure import INVALID_BEFORE_FIRST_STEP, located, run_error
from hostcore.worker.feed.transform import Transformer, make_transformer
from hostcore.worker.line import SupervisorLine
from hostcore.worker.loop import train
from hostcore.worker.metrics import PROGRESS_SECONDS, Meter
from hostcore.worker.precision import DTYPES, make_scaler
from hostcore.worker.progress import Progress
from hostcore.worker.ranks.one import NoMeeting, OneRank
from hostcore.worker.ranks.place import Place
from hostcore.worker.ranks.protocol import Meeting, Ranks
from hostcore.worker.requests import Requests
from hostcore.worker.sampling import Sampling
from hostcore.worker.startup import Prepared, prepare
from hostcore.worker.stop import StopSwitch
from hostcore.worker.training import Hooks, Training, nothing
from hostcore_hookspecs import events
from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.errors import HostcoreError, RunError

_METHODS = {"validation": "validate_step", "test": "test_step"}
#: What metric names without a slash begin with.
_PREFIXES = {"validation": "val", "test": "test"}
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
        prepared = prepare(contract, Place.of(os.environ))
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
    attempt = _Attempt(contract, prepared, stop, log, OneRank())
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

    def __init__(
        self, contract: WorkerContract, prepared: Prepared, stop: StopSwitch, log: RankLog, ranks: Ranks
    ) -> None:
        self._contract = contract
        self._prepared = prepared
        self._stop = stop
        self._log = log
        self._ranks = ranks
        self._meeting: Meeting = NoMeeting()
        self._progress = Progress(prepared.feed.rows_per_step, prepared.total_steps)
        self._meter = Meter(sign_seconds=_sign_seconds(prepared.spec.stall_seconds))
        self._started_at = 0
        self._requests = Requests(
            stop, is_stopping=lambda: self._stop.requested, asker=self._name_of_asker, ranks=ranks
        )
        self._ctx = StepContext(
            job=prepared.job,
            hyperparams=prepared.trainer.settings,
            device=prepared.device,
            dtype=DTYPES[prepared.job.precision],
            rank=ranks.rank,
            local_rank=ranks.local_rank,
            world_size=ranks.world_size,
            run_state=self._progress.state,
            model_handles={"weights": prepared.spec.weights} if prepared.spec.weights else {},
            dataset=prepared.dataset,
            scaler=make_scaler(prepared.job.precision, prepared.device),
            run_dir=contract.run_dir,
            host=self._requests,
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
        with ExitStack() as open_ones:
            try:
                complete = train(self._training(state, saver, open_ones), restore_randomness)
            except (Exception, SystemExit):
                self._guarded("the checkpoint that was being written", saver.finish)
                raise
            except BaseException:
                saver.abandon()  # nobody waits any more
                raise
        if complete:
            early = self._progress.state.step < self._prepared.total_steps
            return events.RunSucceeded(reason=self._stop.first.reason if early and self._stop.first else None)
        ended = self._stop.interrupted or self._stop.first
        assert ended is not None
        return _ENDS[ended.status](reason=ended.reason)

    def _transformer(self, open_ones: ExitStack, *, workers: int, stride: int, first: int) -> Transformer | None:
        prepared = self._prepared
        transformer = make_transformer(
            hooks=prepared.hooks,
            components=prepared.components,
            selected=prepared.selected,
            job_dir=prepared.job_dir,
            ctx=self._ctx,
            workers=workers,
            stride=stride,
            first=first,
            stopping=lambda: self._stop.requested,
        )
        if transformer is not None:
            open_ones.callback(transformer.close)
        return transformer

    def _training(self, state: Any, saver: Checkpointer, open_ones: ExitStack) -> Training:
        """Everything that the loop works with.

        :param open_ones: Takes what has to be closed behind the loop.
        """
        prepared = self._prepared
        training = Training(
            job=prepared.job,
            ctx=self._ctx,
            state=state,
            hooks=self._hooks(),
            feed=prepared.feed,
            transformer=self._transformer(
                open_ones,
                workers=prepared.spec.dataset.workers if prepared.spec.dataset else 0,
                stride=prepared.feed.rows_per_step // prepared.spec.micro_batches,
                first=self._ranks.rank,
            ),
            progress=self._progress,
            total_steps=prepared.total_steps,
            saver=saver,
            validation=self._evaluation("validation", state, open_ones),
            test=self._evaluation("test", state, open_ones),
            sampling=self._sampling(state),
            stop=self._stop,
            requests=self._requests,
            ranks=self._ranks,
            meeting=self._meeting,
            emit=self._emit,
            meter=self._meter,
        )
        if prepared.spec.validation is not None and not training.validate_every:
            message = '"validation" is given, but "validate_every" is 0: only `hostcore evaluate` reads it'
            self._emit(events.Warning(code="validation.unused", message=message))
        return training

    def _hooks(self) -> Hooks:
        bind, hook = self._prepared.hooks.bind, self._hook
        return Hooks(
            prepare_batch=self._of_trainer("prepare_batch"),
            train_step=self._of_trainer("train_step"),
            on_train_begin=hook("on_train_begin"),
            on_train_end=hook("on_train_end"),
            on_epoch_begin=hook("on_epoch_begin"),
            on_epoch_end=hook("on_epoch_end"),
            on_batch_begin=bind("on_batch_begin"),
            on_batch_end=bind("on_batch_end"),
            on_validation_begin=hook("on_validation_begin"),
            on_validation_end=hook("on_validation_end"),
            on_test_begin=hook("on_test_begin"),
            on_test_end=hook("on_test_end"),
            on_stop_requested=hook("on_stop_requested"),
        )

    def _evaluation(self, split: str, state: Any, open_ones: ExitStack) -> Evaluation | None:
        prepared, method = self._prepared, _METHODS[split]
        feed, data = getattr(prepared, split), getattr(prepared.spec, split)
        if feed is None:
            return None
        return Evaluation(
            prefix=_PREFIXES[split],
            feed=feed,
            transformer=self._transformer(open_ones, workers=data.workers, stride=data.batch_size, first=0),
            prepare_batch=self._of_trainer("prepare_batch"),
            step=self._of_trainer(method),
            method=method,
            state=state,
            ctx=self._ctx,
            ranks=self._ranks,
            meeting=self._meeting,
            stop=self._stop,
            alive=self._show_life,
        )

    def _show_life(self) -> None:
        """Show that the run goes on, if it is time to, while no step is done."""
        if self._meter.clock() > self._meter.sign_due:
            self._meter.sign_of_life(self._progress.state.samples_seen)
            self._emit(events.Progress())

    def _sampling(self, state: Any) -> Sampling | None:
        if not self._prepared.spec.samples:
            return None
        return Sampling(
            requests=self._prepared.spec.samples,
            folder=Path(self._contract.samples_dir),
            generate_sample=self._of_trainer("generate_sample"),
            on_sample_saved=self._hook("on_sample_saved"),
            state=state,
            ctx=self._ctx,
            ranks=self._ranks,
            emit=self._emit,
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
