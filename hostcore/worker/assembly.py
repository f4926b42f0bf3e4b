"""Putting together what an attempt works with: from what start-up prepared to the loop's parts."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch

from hostcore.events.writer import RankLog
from hostcore.plugins.attribution import attribute, author_of, calling, plugin_place
from hostcore.plugins.errors import one_line
from hostcore.runs.contract import WorkerContract
from hostcore.worker.checkpoints.capture import CaptureSource
from hostcore.worker.checkpoints.checkpointer import Checkpointer, stateful
from hostcore.worker.checkpoints.trainer_state import TrainerCalls
from hostcore.worker.devices import dtype_of, make_scaler
from hostcore.worker.evaluation import EvaluationLoop
from hostcore.worker.feed.splitting import Splitting
from hostcore.worker.feed.transform import Transformer, make_transformer
from hostcore.worker.metrics import PROGRESS_SECONDS, Meter
from hostcore.worker.mistakes import Mistakes, ModelHandles, context_class
from hostcore.worker.progress import TrainingProgress
from hostcore.worker.ranks.meeting import convene, in_words
from hostcore.worker.ranks.nodes import Nodes
from hostcore.worker.ranks.protocol import Ranks
from hostcore.worker.requests import Requests
from hostcore.worker.sampling import Sampling
from hostcore.worker.startup import Prepared
from hostcore.worker.stop import StopSwitch
from hostcore.worker.training import LoopCalls, Training, nothing
from hostcore_hookspecs import events
from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.errors import HostcoreError

#: What the loop calls of the trainer inside a step.
_OF_A_STEP: Final = ("prepare_batch", "train_step")
_METHODS: Final = {"validation": "validate_step", "test": "test_step"}
#: What metric names without a slash begin with.
_PREFIXES: Final = {"validation": "val", "test": "test"}
_ENDS: Final = (events.RunSucceeded, events.RunFailed, events.RunCancelled, events.RunPreempted)


class Assembly:
    """The parts of an attempt: those that there are from the start, and how the others are made."""

    def __init__(
        self, contract: WorkerContract, prepared: Prepared, stop: StopSwitch, log: RankLog, ranks: Ranks
    ) -> None:
        self.prepared = prepared
        self.log = log
        self.ranks = ranks
        self.progress = TrainingProgress(
            prepared.feed.rows_per_step,
            prepared.total_steps,
            several_ranks=ranks.world_size > 1,
            callbacks=stateful(prepared.callbacks).values(),
        )
        #: Held while an event is written that must not come behind the end.
        self._ending = threading.Lock()
        self._has_ended = False
        self.meter = Meter(sign_seconds=_sign_seconds(prepared.spec.stall_seconds))
        self._contract = contract
        self._requests = Requests(
            stop,
            is_stopping=lambda: self.stop.requested,
            asker=self._name_of_asker,
            ranks=ranks,
            emit=self.emit,
            author_of=self._name_of_author,
            run_state=self.progress.state,
            metric_every=prepared.job.metric_every,
            checkpoint_seconds=prepared.job.checkpoint_seconds,
        )
        if prepared.trainer.capabilities.split_on_oom:
            self._requests.splitting = Splitting(
                ranks=ranks, progress=self.progress, recorded=self._requests.recorded, emit=self.emit
            )
        self.stop, self.meeting = convene(stop, ranks, where=lambda: in_words(self.progress.state, self._requests))
        self._handles = ModelHandles(prepared.handles)
        device = torch.device(prepared.device)
        self.ctx = context_class(prepared.trainer)(
            job=prepared.job,
            hyperparams=prepared.trainer.settings,
            device=device,
            dtype=dtype_of(prepared.job.precision),
            rank=ranks.rank,
            local_rank=ranks.local_rank,
            world_size=ranks.world_size,
            run_state=self.progress.state,
            model_handles=self._handles,
            dataset=prepared.dataset,
            steps_per_epoch=prepared.feed.steps_per_epoch or 0,
            scaler=make_scaler(prepared.job.precision, device),
            run_dir=contract.run_dir,
            host=self._requests,
        )
        if prepared.trace is not None:
            prepared.trace.follow(self.progress.state)

    def _name_of_asker(self) -> str:
        component = calling(self.prepared.components)
        return component.ref.provenance if component else "component"

    def _name_of_author(self, frame: FrameType) -> str:
        component = author_of(frame, self.prepared.components)
        return component.ref.provenance if component else f"{frame.f_code.co_qualname} ({frame.f_code.co_filename})"

    def emit(self, payload: events.Payload, *, step: int | None = None, epoch: int | None = None) -> None:
        """Write an event into the rank's log; of the present step, unless ``step`` is given.

        The first rank writes for all. The others write their own ends, and their own failures.
        """
        if self.ranks.rank > 0 and not _is_its_own(payload):
            return
        if isinstance(payload, _ENDS):
            self.progress.give_up()
            with self._ending:
                self._has_ended = True
        else:
            self.progress.settle()  # what was recorded before is written before
        state = self.progress.state
        self.log.write(
            payload, step=state.step if step is None else step, epoch=state.epoch if epoch is None else epoch
        )

    def warn(self, warning: HostcoreError) -> None:
        """Write a warning into the rank's log, with its hint."""
        self.emit(events.Warning(code=warning.code, message="; ".join(filter(None, (warning.message, warning.hint)))))

    def emit_beside(self, payload: events.Payload, *, step: int, epoch: int) -> None:
        """The same from another thread, of an earlier step. Nothing is written behind the end."""
        if self.ranks.rank > 0 and not _is_its_own(payload):
            return
        with self._ending:
            if not self._has_ended:
                self.log.write(payload, step=step, epoch=epoch)

    def of_trainer(self, method: str) -> Any:
        """A method of the trainer, inside all that wraps it; None if it has none."""
        bound = self.prepared.hooks.bind(method, of=self.prepared.trainer)
        return bound if method in _OF_A_STEP else self._requests.outside(bound)

    def hook(self, name: str) -> Callable[..., Any]:
        """A lifecycle hook that is not called at every step."""
        return self._requests.outside(self.prepared.hooks.bind(name)) or nothing

    def checkpointer(self, state: Any) -> Checkpointer:
        """Create the object that saves and restores the run.

        :param state: What the trainer's ``configure`` returned.
        :raises HostcoreError: When the contract's default is to store it, and cannot.
        """
        contract, prepared = self._contract, self.prepared
        folder = Path(contract.checkpoints_dir)
        trainer = TrainerCalls(
            component=prepared.trainer,
            state_dict=self.of_trainer("state_dict"),
            load_state_dict=self.of_trainer("load_state_dict"),
            save_checkpoint=self.of_trainer("save_checkpoint"),
            load_checkpoint=self.of_trainer("load_checkpoint"),
        )
        trainer.check_default(state)
        saver = Checkpointer(
            folder=folder,
            attempts=Path(contract.attempts_dir),
            attempt=contract.attempt,
            keep=prepared.spec.keep_checkpoints,
            required=prepared.spec.require_checkpoints,
            mirrored=prepared.spec.is_mirrored and contract.is_supervised,
            source=CaptureSource(
                ranks=self.ranks,
                ctx=self.ctx,
                state=state,
                trainer=trainer,
                callbacks=stateful(prepared.callbacks),
                feed=prepared.feed,
                progress=self.progress,
                requests=self._requests,
                nodes=Nodes.of(self.ranks, folder, is_apart=contract.apart),
                mistakes=Mistakes(trainer=prepared.trainer, ctx=self.ctx, state=state, warn=self.warn),
            ),
            on_checkpoint_saved=self._requests.outside(prepared.hooks.bind("on_checkpoint_saved")),
            emit=self.emit,
            sync_log=self.log.sync,
        )
        self.meeting.carry(saver, self._requests)
        return saver

    def training(self, state: Any, saver: Checkpointer, open_ones: ExitStack) -> Training:
        """Everything that the loop works with.

        :param open_ones: Takes what has to be closed behind the loop.
        """
        prepared = self.prepared
        unread = self._handles.warnings(prepared.trainer.ref.provenance)  # before the feed takes a copy
        training = Training(
            job=prepared.job,
            ctx=self.ctx,
            state=state,
            hooks=self._hooks(),
            feed=prepared.feed,
            transformer=self._transformer(
                open_ones,
                "train",
                workers=prepared.spec.dataset.workers if prepared.spec.dataset else 0,
                stride=prepared.feed.rows_per_step // prepared.spec.micro_batches,
                first=self.ranks.rank,
            ),
            progress=self.progress,
            total_steps=prepared.total_steps,
            saver=saver,
            prove_resume=prepared.spec.prove_resume,
            sanity_batches=prepared.spec.sanity_batches,
            check_failed=self._warn_of_failed_check,
            validation=self.evaluation("validation", state, open_ones),
            test=self.evaluation("test", state, open_ones),
            sampling=self._sampling(state),
            stop=self.stop,
            requests=self._requests,
            ranks=self.ranks,
            meeting=self.meeting,
            emit=self.emit,
            emit_beside=self.emit_beside,
            meter=self.meter,
        )
        for one in (*prepared.job_warnings, *unread):
            self.warn(one)
        return training

    def _hooks(self) -> LoopCalls:
        bind, hook = self.prepared.hooks.bind, self.hook
        prepare_batch, train_step = self.of_trainer("prepare_batch"), self._train_step()
        if self.prepared.trainer.capabilities.repeatable:
            train_step = self._requests.repeating(train_step)
        if self._requests.splitting is not None:
            prepare_batch, train_step = self._requests.splitting.around(prepare_batch, train_step)
        return LoopCalls(
            prepare_batch=prepare_batch,
            train_step=train_step,
            on_train_begin=hook("on_train_begin"),
            on_train_end=hook("on_train_end"),
            on_epoch_begin=hook("on_epoch_begin"),
            on_epoch_end=hook("on_epoch_end"),
            on_batch_begin=bind("on_batch_begin"),
            on_batch_end=bind("on_batch_end"),
            on_sanity_checked=hook("on_sanity_checked"),
            on_validation_begin=hook("on_validation_begin"),
            on_validation_end=hook("on_validation_end"),
            on_test_begin=hook("on_test_begin"),
            on_test_end=hook("on_test_end"),
            on_stop_requested=hook("on_stop_requested"),
        )

    def _train_step(self) -> Callable[..., Any]:
        """That of the trainer. Wrappers that are marked ``@when_recorded`` are around it where metrics are recorded."""
        recorded, hooks, run_state = self.of_trainer("train_step"), self.prepared.hooks, self.progress.state
        if not hooks.is_wrapped_when_recorded("train_step"):
            return recorded  # type: ignore[no-any-return]
        between = hooks.bind("train_step", of=self.prepared.trainer, recorded=False)
        assert between is not None
        every, last = self.prepared.job.metric_every, self.prepared.total_steps
        if not every:
            return between

        def train_step(prepared_batch: Any, state: Any, ctx: StepContext) -> Any:
            step = run_state.step + 1
            if step % every == 0 or step == last:
                return recorded(prepared_batch, state, ctx)
            return between(prepared_batch, state, ctx)

        return train_step

    def evaluation(self, split: str, state: Any, open_ones: ExitStack) -> EvaluationLoop | None:
        """Create the validation (``validation``) or test (``test``); None without data for it.

        :param open_ones: Takes what has to be closed behind it.
        """
        prepared, method = self.prepared, _METHODS[split]
        feed, data = getattr(prepared, split), getattr(prepared.spec, split)
        if feed is None:
            return None
        return EvaluationLoop(
            split=split,
            prefix=_PREFIXES[split],
            feed=feed,
            transformer=self._transformer(
                open_ones, split, workers=data.workers, stride=data.batch_size, first=feed.first_row
            ),
            prepare_batch=self._requests.outside(self.of_trainer("prepare_batch")),
            step=self.of_trainer(method),
            method=method,
            evaluation_metrics=self.of_trainer("evaluation_metrics"),
            state=state,
            ctx=self.ctx,
            ranks=self.ranks,
            meeting=self.meeting,
            stop=self.stop,
            alive=self._show_life,
            too_few=self._warn_of_sanity_check,
        )

    def _show_life(self) -> None:
        """Emit progress while no step is done, if it is due."""
        if self.meter.clock() > self.meter.sign_due:
            self.meter.sign_of_life(self.progress.state.samples_seen)
            self.emit(events.Progress())

    def _warn_of_sanity_check(self, reason: str) -> None:
        message = f"{reason} after the first batches: the check before the first step takes all of the validation data"
        hint = '"sanity_batches" sets how many it takes; 0 turns it off'
        self.emit(events.Warning(code="sanity.all", message=f"{message}; {hint}"))

    def _warn_of_failed_check(self, error: Exception) -> None:
        culprit = attribute(error, self.prepared.components)
        place = plugin_place(error, culprit) if culprit else None
        found = f"{one_line(error)} ({place})" if place else one_line(error)
        message = f"the validation does not work before the first step: {found}"
        hint = 'if it works after a step, "sanity_batches": 0 leaves this check out'
        self.warn(HostcoreError(message, code="sanity.failed", hint=hint))

    def _sampling(self, state: Any) -> Sampling | None:
        if not self.prepared.sample_requests:
            return None
        return Sampling(
            requests=self.prepared.sample_requests,
            folder=Path(self._contract.samples_dir),
            is_apart=self._contract.apart,
            generate_sample=self.of_trainer("generate_sample"),
            on_sample_saved=self.hook("on_sample_saved"),
            state=state,
            ctx=self.ctx,
            ranks=self.ranks,
            stop=self.stop,
            emit=self.emit,
        )

    def _transformer(
        self, open_ones: ExitStack, split: str, *, workers: int, stride: int, first: int
    ) -> Transformer | None:
        prepared = self.prepared
        transformer = make_transformer(
            hooks=prepared.hooks,
            components=prepared.components,
            selected=prepared.selected,
            job_dir=prepared.spec.job_dir,
            ctx=self.ctx,
            split=split,
            workers=workers,
            stride=stride,
            first=first,
            stopping=lambda: self.stop.requested,
        )
        if transformer is not None:
            open_ones.callback(transformer.close)
        return transformer


def _is_its_own(payload: events.Payload) -> bool:
    """Return whether an event is about its rank alone."""
    if isinstance(payload, events.Warning):
        return payload.code in ("plugin.failed", "component")  # all others are about what all ranks do alike
    return isinstance(payload, _ENDS)


def _sign_seconds(stall_seconds: float) -> float:
    """Return the interval of progress events without metrics: short enough for the run not to be taken for stalled."""
    return min(PROGRESS_SECONDS, stall_seconds / 3) if stall_seconds else PROGRESS_SECONDS
