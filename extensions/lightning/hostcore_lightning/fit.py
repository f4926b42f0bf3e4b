"""The order of Lightning's hooks, as its ``fit_loop``, ``training_epoch_loop`` and ``evaluation_loop`` call them.

The host decides which batch comes next, when there is a validation and when the run ends. What belongs to an epoch's
end runs behind its last step, or behind the validation that follows that step, and so before the checkpoint.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import attrs
import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.loops.optimization.automatic import Closure, ClosureResult
from lightning.pytorch.loops.optimization.manual import ManualResult
from lightning.pytorch.trainer.call import (
    _call_callback_hooks,
    _call_lightning_module_hook,
    _call_strategy_hook,
)
from lightning.pytorch.trainer.states import RunningStage, TrainerFn, TrainerStatus
from lightning.pytorch.utilities.model_helpers import is_overridden
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from lightning_utilities.core.apply_func import apply_to_collection
from torch.nn.parallel import DistributedDataParallel

from hostcore_hookspecs import StepContext, StepControl, StepResult
from hostcore_lightning.kept_step import KeptStep
from hostcore_lightning.metric_names import of_epoch, of_evaluation, of_training
from hostcore_lightning.metric_states import copied_metric_states, kept, load_metric_states
from hostcore_lightning.settings import CannotRun
from hostcore_lightning.trainer_view import Results, TrainerView
from hostcore_lightning.unsaved import Unsaved
from hostcore_toolkit.draws import random_states_kept

_STAGES: Final = {"validation": RunningStage.VALIDATING, "test": RunningStage.TESTING}
_FUNCTIONS: Final = {"validation": TrainerFn.FITTING, "test": TrainerFn.TESTING}
#: Who asks for a stop that leaves the run unfinished; components end it.
_INTERRUPTING: Final = ("user", "host")


@attrs.define(eq=False, slots=False)
class Fit:
    """The trainer's state: the module, what Lightning's code needs around it, and where its hooks stand."""

    ctx: StepContext
    module: LightningModule
    #: The module, or DDP around it.
    model: torch.nn.Module
    view: TrainerView
    #: Attributes that change in training and that no ``state_dict`` has.
    unsaved: Unsaved
    #: Entries of ``on_save_checkpoint`` that a checkpoint cannot hold, as far as a warning has named them.
    left_out: set[str] = attrs.field(factory=set)
    #: Whether ``on_fit_start`` was called in this attempt.
    fitting: bool = False
    #: Whether this attempt's training has begun: ``on_train_start`` was called.
    started: bool = False
    #: Whether the hooks that begin the present epoch were called, and not those that end it.
    in_epoch: bool = False
    #: The last batch of the epoch is done.
    epoch_is_complete: bool = False
    #: The host validates behind the present step, and some of the step is left to do then.
    awaits_validation: bool = False
    #: ``on_train_end`` was called.
    ended: bool = False
    #: The split that is evaluated; empty in training.
    evaluating: str = ""
    #: The number of the last batch in its epoch.
    last_index: int = -1
    #: Steps of optimizers within the present ``training_step``; a manual one without any leaves gradients to the next.
    stepped: int = 1
    #: The modes of all submodules that the next training batch is to find; None: as they are. The host puts all into
    #: evaluation mode for a validation, and hooks of the epoch's end run inside of it.
    modes: Mapping[str, bool] | None = None
    #: What a validation or a test stands apart from: results, the connector's place in them, states of metrics.
    _apart: tuple[Any, ...] | None = None
    #: Goes where the run has come: the state went back, and its place with it.
    place_reached: Callable[[], None] | None = None
    #: Metrics of the epoch before, which an interrupted validation has kept back.
    _late: Mapping[str, Any] = attrs.field(factory=dict)
    #: Whether the hooks that begin a test were called in this attempt.
    _tested: bool = False
    _takes_index: dict[str, bool] = attrs.field(factory=dict)

    # Training.

    def prepared(self, batch: Any) -> Any:
        """A batch on the device, after Lightning's hooks for that; the hooks that come before a batch run here."""
        self.go_on()
        if self.is_unchecked:
            return batch
        if self.ctx.split == "train":
            self._before_training_batch()
        elif self.ctx.batch_index == 0:
            self._begin_evaluation(self.ctx.split)
        batch = self.view.precision_plugin.convert_input(batch)
        batch = self.module._on_before_batch_transfer(batch, dataloader_idx=0)
        if torch.device(self.ctx.device).type == "cuda":  # else the copy would wait for all that the GPU has to do
            batch = apply_to_collection(batch, torch.Tensor, _pinned)
        return _call_strategy_hook(self._trainer, "batch_to_device", batch, dataloader_idx=0)

    def train(self, batches: Sequence[Any]) -> StepResult:
        """One step: a training batch, or as many as gradients are accumulated over."""
        ctx, view = self.ctx, self.view
        place, step = ctx.run_state.batch_in_epoch, ctx.run_state.step + 1
        first_index = place * len(batches)
        self.epoch_is_complete = first_index + len(batches) == view.num_training_batches
        self.awaits_validation = self._validates_behind(step)
        self.last_index = first_index + len(batches) - 1
        losses = []
        for number, batch in enumerate(batches):
            output = self._batch(batch, first_index + number, first=number == 0, last=number + 1 == len(batches))
            if isinstance(output.get("loss"), torch.Tensor):
                losses.append(output["loss"])
        metrics: dict[str, Any] = {}
        if self._is_recorded(step):  # of other steps nothing is read
            metrics = of_training(view._logger_connector.metrics["log"])
        if losses and "loss" not in metrics:
            metrics["loss"] = torch.stack([one.detach() for one in losses]).sum() if len(losses) > 1 else losses[0]
        found, self._late = dict(self._late), {}
        if self.awaits_validation:
            self.modes = self.modes_now()
        else:
            found |= of_training(self._after_step(step), apart_from=metrics)
        return StepResult(metrics=metrics | found, control=StepControl(record_metrics=True) if found else None)

    def keep_step(self, prepared_batch: Any) -> Callable[[], None]:
        """Keep what a step may change before its update: attributes, logged values, states of metrics, the batch.

        :raises CannotRun: The module optimizes by hand.
        """
        view, module = self.view, self.module
        if not module.automatic_optimization:
            raise CannotRun(
                "/module",
                f"a step of {type(module).__name__} cannot be made again: it optimizes by hand, in training_step",
                hint="remove replay-check from the job's callbacks",
            )
        schedulers = (one.scheduler for one in view.lr_scheduler_configs)
        around = (self, view, view._logger_connector, *view.callbacks, *schedulers)
        groups = [group for one in view.optimizers for group in one.param_groups]
        kept = KeptStep(
            [module, prepared_batch, view._results, *groups, *map(vars, around)],
            apart=(view.datamodule, *view.optimizers),
            tensors=[*module.parameters(), *module.buffers()],
        )
        if self._reads_gradients():
            kept.add_gradients(module.parameters())
        return kept.put_back

    def _reads_gradients(self) -> bool:
        """Return whether a step depends on gradients that the step before has left; Lightning sets them to zero."""
        hooked = (self.module, *self.view.callbacks)
        return is_overridden("optimizer_zero_grad", self.module) or any(
            is_overridden("on_before_zero_grad", one) for one in hooked
        )

    def _is_recorded(self, step: int) -> bool:
        """Return whether the host records the metrics of a step by its number."""
        every = self.ctx.job.metric_every
        return bool(every) and (step % every == 0 or step == self.ctx.run_state.total_steps)

    def go_on(self) -> None:
        """Behind a state that went back: stand again where the run has come."""
        reach, self.place_reached = self.place_reached, None
        if reach is not None:
            reach()

    def begin(self) -> None:
        """Call ``on_fit_start``, once: before the states of optimizers are loaded, whose groups it may change."""
        if not self.fitting:
            self.fitting = True
            self._both("on_fit_start")

    def start(self) -> None:
        """Call ``on_train_start``, once."""
        if not self.started:
            self.started, self.ended = True, False
            # A resumed attempt begins with the random states that the one before had reached.
            with random_states_kept() if self.ctx.run_state.step else nullcontext():
                self.begin()
                self._both("on_train_start")

    def _before_training_batch(self) -> None:
        self.leave_evaluation()
        if self.modes is not None:
            self._give_modes(self.modes)
            self.modes = None
        self.start()
        if self.awaits_validation:  # the job has lost its validation since, or the checkpoint is of an earlier version
            self.awaits_validation = False
            self._late = of_training(self._after_step(self.ctx.run_state.step, validated=False))
        if self.ctx.batch_index == 0:
            self.in_epoch = True
            self._both("on_train_epoch_start")

    def _batch(self, batch: Any, index: int, *, first: bool, last: bool) -> dict[str, Any]:
        connector = self.view._logger_connector
        self.view.is_last_batch = index + 1 == self.view.num_training_batches
        connector.on_batch_start(batch)
        self._callbacks("on_train_batch_start", batch, index)
        if self._of_module("on_train_batch_start", batch, index) == -1:
            raise CannotRun(
                "/module",
                "on_train_batch_start returned -1, to leave the rest of the epoch out",
                hint='the host owns the epochs: end the run by "max_steps", or by self.trainer.should_stop = True',
            )
        args = (batch, index) if self._has_index("training_step") else (batch,)
        if self.module.automatic_optimization:
            output = self._automatic(args, index, first=first, last=last)
        else:
            self.stepped = 0
            output = ManualResult.from_training_step_output(
                _call_strategy_hook(self._trainer, "training_step", *args)
            ).asdict()
        if last:
            self._step_schedulers("step", plateau=False)
        if last and self.epoch_is_complete:
            self._step_schedulers("epoch", plateau=False)
        self._callbacks("on_train_batch_end", output, batch, index)
        self._of_module("on_train_batch_end", output, batch, index)
        connector.on_batch_end()
        return dict(output)

    def _automatic(self, args: tuple[Any, ...], index: int, *, first: bool, last: bool) -> dict[str, Any]:
        trainer, optimizer = self._trainer, self.view.optimizers[0]

        def step() -> ClosureResult:
            output = _call_strategy_hook(trainer, "training_step", *args)
            if output is None and self.view.world_size > 1:
                raise CannotRun("/module", "training_step returned None, which several ranks cannot leave out alike")
            return ClosureResult.from_training_step_output(output, self.view.accumulate_grad_batches)

        def zero_grad() -> None:
            self._both("on_before_zero_grad", optimizer)
            self._of_module("optimizer_zero_grad", self.view.current_epoch, index, optimizer)

        closure = Closure(
            step_fn=step,
            backward_fn=lambda loss: _call_strategy_hook(trainer, "backward", loss, optimizer),
            zero_grad_fn=zero_grad if first else None,
        )
        if last:
            (wrapped,) = self.view.strategy._lightning_optimizers
            self._of_module("optimizer_step", self.view.current_epoch, index, wrapped, closure)
            self.view.global_step += 1
        else:
            with self.model.no_sync() if isinstance(self.model, DistributedDataParallel) else nullcontext():
                closure()
        result = closure.consume_result()
        return {} if result.loss is None else result.asdict()

    def count_manual_steps(self) -> None:
        """Have each step of an optimizer counted, where the module makes them itself."""

        def count() -> None:
            self.view.global_step += 1
            self.stepped += 1

        for one in self.view.strategy._lightning_optimizers:
            assert isinstance(one, LightningOptimizer)
            one._on_before_step = count

    def _after_step(self, step: int, *, validated: bool = True) -> dict[str, Any]:
        """Run the work after a validation, or after a step without one; return the metrics of an epoch that ends.

        :param step: Finished steps.
        :param validated: False: a validation should have come first, and was interrupted.
        """
        fresh = None if validated else self._logged_in_training()
        self._step_schedulers("step", plateau=True, fresh=fresh)
        metrics = self._end_epoch(validated=validated) if self.epoch_is_complete else {}
        if step == self.ctx.run_state.total_steps:
            self.end()
        return metrics

    def _end_epoch(self, *, validated: bool) -> dict[str, Any]:
        connector = self.view._logger_connector
        connector.epoch_end_reached()
        self._callbacks("on_train_epoch_end", monitoring_callbacks=False)
        self._of_module("on_train_epoch_end")
        fresh = None if validated else self._logged_in_training()
        with self._without(_stale(self.view.callbacks, fresh)):
            self._callbacks("on_train_epoch_end", monitoring_callbacks=True)
        connector.on_epoch_end()
        self._step_schedulers("epoch", plateau=True, fresh=fresh)
        metrics = of_epoch(connector.metrics["log"])
        connector.reset_results()
        self.in_epoch = self.epoch_is_complete = False
        self.view.current_epoch += 1
        return metrics

    def _logged_in_training(self) -> frozenset[str]:
        """Return the names of metrics that the present epoch itself has logged, and not a validation before it."""
        return frozenset(self.view._logger_connector.metrics["callback"])

    @contextmanager
    def _without(self, callbacks: Sequence[Callback]) -> Iterator[None]:
        """While entered, some callbacks are not called."""
        all_of_them = self.view.callbacks
        self.view.callbacks = [one for one in all_of_them if one not in callbacks]
        try:
            yield
        finally:
            self.view.callbacks = all_of_them

    def end(self) -> None:
        """Call ``on_train_end``, once."""
        if self.started and not self.ended:
            self.ended = True
            self._both("on_train_end")

    @property
    def is_over(self) -> bool:
        """True if the training has come to its end, or to one that a component asked for."""
        state = self.ctx.run_state
        if self.awaits_validation:
            return False
        if state.step == state.total_steps:
            return True
        first = state.stop_requests[0].requested_by if state.stop_requests else "user"
        return not (first in _INTERRUPTING or first.startswith("signal:"))

    def tear_down(self) -> None:
        """Call the hooks that end a fit; those of the training unless it was interrupted or has failed."""
        self.leave_evaluation()
        self.go_on()
        error = sys.exception()
        if error is not None:
            self.view.state.status = TrainerStatus.INTERRUPTED
            self._callbacks("on_exception", error)
            if self.view.datamodule is not None:
                self.view.datamodule.on_exception(error)
        elif self.started and self.is_over:
            self.end()
            self._both("on_fit_end")
        stages = ["fit", "test"] if self._tested else ["fit"]
        for stage in stages:
            if self.view.datamodule is not None:
                self.view.datamodule.teardown(stage)
            self._both("teardown", stage)

    def _validates_behind(self, step: int) -> bool:
        job, every = self.ctx.job, self.ctx.job.validate_every
        if job.validation is None or not every:
            return False
        if every == "epoch":
            every = self.view.num_training_batches // job.accumulate
        return step % int(every) == 0 or step == self.ctx.run_state.total_steps

    def _step_schedulers(self, interval: str, *, plateau: bool, fresh: frozenset[str] | None = None) -> None:
        """As ``_TrainingEpochLoop._update_learning_rates``.

        :param fresh: The metrics that plateau schedulers may look at; None: all.
        """
        if not self.module.automatic_optimization:
            return
        count = (self.last_index if interval == "step" else self.view.current_epoch) + 1
        for config in self.view.lr_scheduler_configs:
            if config.reduce_on_plateau != plateau or config.interval != interval or count % config.frequency:
                continue
            if plateau and fresh is not None and config.monitor not in fresh:
                continue
            value = self.view.callback_metrics.get(config.monitor) if plateau else None
            if plateau and value is None:
                if config.strict:
                    known = ", ".join(sorted(self.view.callback_metrics)) or "none"
                    raise CannotRun(
                        "/module",
                        f"a scheduler waits for the metric {config.monitor!r}, which was not logged; known: {known}",
                        hint='log it, or have it validated before: "validate_every": "epoch"',
                    )
                continue
            self._of_module("lr_scheduler_step", config.scheduler, value)

    # Evaluation.

    def evaluate(self, batch: Any, split: str) -> StepResult:
        """One batch of a validation or a test."""
        index, view = self.ctx.batch_index, self.view
        if self.is_unchecked:
            return StepResult()
        with nullcontext() if self.ctx.batch_counts else kept(self.module, view._results):
            view._logger_connector.on_batch_start(batch)
            self._both(f"on_{split}_batch_start", batch, index)
            args = (batch, index) if self._has_index(f"{split}_step") else (batch,)
            output = _call_strategy_hook(self._trainer, f"{split}_step", *args)
            self._both(f"on_{split}_batch_end", output, batch, index)
            view._logger_connector.on_batch_end()
        return StepResult()

    def _begin_evaluation(self, split: str) -> None:
        view, connector = self.view, self.view._logger_connector
        self.leave_evaluation()
        if self._ends_step(split):  # also where an attempt begins with it
            self.start()
        self._apart = (
            view._results,
            connector._first_loop_iter,
            connector._current_fx,
            copied_metric_states(self.module),
            [
                dict(one)
                for one in (connector._callback_metrics, connector._logged_metrics, connector._progress_bar_metrics)
            ],
        )
        self.evaluating = split
        view.state.fn, view.state.stage = _FUNCTIONS[split], _STAGES[split]
        if self.ctx.sanity_checking:
            view.state.stage = RunningStage.SANITY_CHECKING
            self._callbacks("on_sanity_check_start")
        view._results = Results(training=False)
        connector._first_loop_iter = connector._current_fx = None
        if split == "test" and not self._tested:
            self._tested = True  # the data module's was called where its loader was made
            self._callbacks("setup", stage="test")
            self._of_module("setup", stage="test")
        if self.in_epoch:
            self._of_module("on_validation_model_zero_grad")
        self._of_module(f"on_{split}_model_eval")
        self._both(f"on_{split}_start")
        self._both(f"on_{split}_epoch_start")

    def evaluated(self) -> dict[str, Any]:
        """The end of a validation or a test, and of the step that it follows: the metrics of both."""
        if self.is_unchecked:
            return {}
        view, split, checking = self.view, self.evaluating, self.view.sanity_checking
        connector = view._logger_connector
        connector.epoch_end_reached()
        connector.update_eval_epoch_metrics()
        self._both(f"on_{split}_epoch_end")
        connector.on_epoch_end()
        logged = connector.metrics["log"] if checking else connector.update_eval_epoch_metrics()
        metrics = of_evaluation(logged, split)
        self._both(f"on_{split}_end")
        counts = self._ends_step(split)
        if is_overridden(f"on_{split}_model_train", self.module):  # else the modes are as they were before
            self._of_module(f"on_{split}_model_train")
            if counts:
                self.modes = self.modes_now()
        view._results.reset()
        if checking:
            self._callbacks("on_sanity_check_end")
            self.leave_evaluation()
            return metrics
        self._back_to_training(as_if_never=not counts)
        if counts:
            self.awaits_validation = False
            with self._as_in_training():
                found = of_training(self._after_step(self.ctx.run_state.step))
            metrics |= {name if "/" in name else f"train/{name}": value for name, value in found.items()}
        return metrics

    @property
    def is_unchecked(self) -> bool:
        """Return whether the check before the first step is left out.

        ``on_fit_start`` comes before it in Lightning, and with the first training batch here: the random numbers that
        it draws are the training's.
        """
        hooked = (self.module, *self.view.callbacks)
        return self.ctx.sanity_checking and any(is_overridden("on_fit_start", one) for one in hooked)

    def _ends_step(self, split: str) -> bool:
        """Return whether an evaluation is the validation behind the present step; none is in `hostcore evaluate`."""
        return split == "validation" and self.awaits_validation and bool(self.ctx.job.validate_every)

    def leave_evaluation(self) -> None:
        """Leave a validation or a test that was interrupted, as if it had not begun."""
        if self._apart is not None:
            load_metric_states(self.module, self._apart[3])
            self._back_to_training(as_if_never=True)

    def _back_to_training(self, *, as_if_never: bool) -> None:
        """:param as_if_never: What was logged is forgotten, too: the training does not wait for it."""
        view, connector = self.view, self.view._logger_connector
        assert self._apart is not None
        view._results, connector._first_loop_iter, connector._current_fx, _, logged = self._apart
        if as_if_never:
            connector._callback_metrics, connector._logged_metrics, connector._progress_bar_metrics = logged
        view.state.fn, view.state.stage = TrainerFn.FITTING, RunningStage.TRAINING
        self.evaluating, self._apart = "", None

    @contextmanager
    def _as_in_training(self) -> Iterator[None]:
        """Modes and gradients as the training has them, inside of the host's evaluation; what hooks change is kept."""
        evaluated = self.modes_now()
        self._give_modes(self.modes or evaluated)
        try:
            with torch.enable_grad():
                yield
        finally:
            self.modes = self.modes_now()
            self._give_modes(evaluated)

    def modes_now(self) -> dict[str, bool]:
        """Return the training mode of each submodule, by name."""
        return {name: one.training for name, one in self.module.named_modules()}

    def _give_modes(self, modes: Mapping[str, bool]) -> None:
        for name, one in self.module.named_modules():
            one.training = modes.get(name, one.training)

    # Hooks.

    @property
    def _trainer(self) -> Any:
        return self.view

    def _both(self, hook: str, *args: Any) -> None:
        self._callbacks(hook, *args)
        self._of_module(hook, *args)

    def _callbacks(self, hook: str, *args: Any, **options: Any) -> None:
        _call_callback_hooks(self._trainer, hook, *args, **options)

    def _of_module(self, hook: str, *args: Any, **options: Any) -> Any:
        return _call_lightning_module_hook(self._trainer, hook, *args, **options)

    def _has_index(self, method: str) -> bool:
        """Return whether a step method takes the number of the batch."""
        if method not in self._takes_index:
            self._takes_index[method] = is_param_in_hook_signature(
                getattr(self.module, method), "batch_idx", min_args=2
            )
        return self._takes_index[method]


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of main memory in pinned memory, as a loader with ``pin_memory`` does; others as they are."""
    return tensor.pin_memory() if tensor.device.type == "cpu" and tensor.layout is torch.strided else tensor


def _stale(callbacks: Sequence[Callback], fresh: frozenset[str] | None) -> list[Callback]:
    """Those that would look at a metric of an earlier validation.

    :param fresh: The metrics that are none; None: all.
    """
    if fresh is None:
        return []
    monitoring = [one for one in callbacks if isinstance(one, (EarlyStopping, Checkpoint))]
    return [one for one in monitoring if getattr(one, "monitor", None) not in fresh]
