"""Making what is trained: the module with its callbacks, optimizers and view, by the hooks that come before a fit."""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningDataModule, LightningModule
from lightning.pytorch.callbacks import (
    BatchSizeFinder,
    Checkpoint,
    DeviceStatsMonitor,
    GradientAccumulationScheduler,
    LearningRateFinder,
    LearningRateMonitor,
    ProgressBar,
    StochasticWeightAveraging,
    Timer,
)
from lightning.pytorch.trainer.call import _call_callback_hooks, _call_configure_model, _call_lightning_module_hook

from hostcore_hookspecs import StepContext
from hostcore_lightning.checkpoint import load_weights
from hostcore_lightning.fit import Fit
from hostcore_lightning.making import check_class, overrides
from hostcore_lightning.parts import CONFIGURED, classes_of, made_parts
from hostcore_lightning.settings import CannotRun, Hyperparams
from hostcore_lightning.trainer_arguments import check_hyperparams, check_job
from hostcore_lightning.trainer_view import TrainerView
from hostcore_lightning.unsaved import Unsaved
from hostcore_toolkit import parallelize

#: Callbacks that steer a Trainer, and what does the same here.
_STEERING: Final[Mapping[type, str]] = {
    Checkpoint: 'hostcore writes the checkpoints: "checkpoint_every", and the callback "best-checkpoint"',
    ProgressBar: "hostcore shows the progress in the terminal",
    LearningRateMonitor: 'it needs a logger; use the hostcore callback "lr-monitor"',
    StochasticWeightAveraging: "use lightning.pytorch.callbacks.WeightAveraging, which needs no Trainer",
    Timer: 'set "max_steps" or "epochs", or stop the run with `hostcore cancel`',
    DeviceStatsMonitor: "it needs a logger",
    GradientAccumulationScheduler: 'set "accumulate", which holds for the whole run',
    BatchSizeFinder: "set the batch size in the data module",
    LearningRateFinder: "set the learning rate in the module",
}
#: Left out with a warning where a module brings them: they change nothing in what is learned, and the job has the like.
_DONE_HERE: Final = (Checkpoint, ProgressBar, LearningRateMonitor, DeviceStatsMonitor)
#: What a split of the data needs of the module.
_NEEDED: Final = {"validation": "validation_step", "test": "test_step"}


def configured(
    ctx: StepContext,
    datamodule: LightningDataModule | None,
    hyperparams: Hyperparams,
    loader: Callable[[str], Any] = lambda _: None,
) -> Fit:
    """Everything that is trained, on the device, before its state is loaded.

    :param loader: Returns the ``DataLoader`` that the rows of a split come from, or None.
    """
    parts = made_parts(hyperparams, seed=ctx.job.seed)
    module = parts.module
    _check(module, ctx, hyperparams)
    check_job(parts.trainer, ctx)
    callbacks = _run_here(parts.callbacks, ctx)
    view = TrainerView(ctx, module, datamodule, callbacks, hyperparams, loader=loader)
    trainer: Any = view
    module.trainer = trainer
    if datamodule is not None:
        datamodule.trainer = trainer
    view.callbacks = _with_those_of(module, callbacks, ctx)
    for one in view.callbacks:  # as from Lightning, for callbacks that log
        vars(one).update(log=module.log, log_dict=module.log_dict)
    module._device = torch.device(ctx.device)
    _call_callback_hooks(trainer, "setup", stage="fit")
    _call_lightning_module_hook(trainer, "setup", stage="fit")
    _call_configure_model(trainer)
    module.to(ctx.device)
    if "weights" in ctx.model_handles:
        load_weights(module, ctx.model_handles["weights"])
    model = parallelize(module, ctx, find_unused_parameters=hyperparams.find_unused_parameters)
    view.strategy.model = model
    try:
        view.strategy.setup_optimizers(trainer)
    except (MisconfigurationException, TypeError, RuntimeError) as error:
        if isinstance(error, CannotRun):
            raise
        raise CannotRun("/module", f"configure_optimizers of {type(module).__name__}: {error}") from error
    if len(view.optimizers) == 1:
        (optimizer,) = view.optimizers
        configs = view.lr_scheduler_configs
        ctx.register_optimizer(optimizer, configs[0].scheduler if len(configs) == 1 else None)
    unsaved = Unsaved(
        module,
        datamodule,
        view.callbacks,
        device=torch.device(ctx.device),
        warn=ctx.warn if ctx.rank == 0 else lambda _: None,
        stores=hyperparams.capture == "auto",
    )
    fit = Fit(ctx=ctx, module=module, model=model, view=view, unsaved=unsaved)
    if not module.automatic_optimization:
        fit.count_manual_steps()
    return fit


def _check(module: LightningModule, ctx: StepContext, hyperparams: Hyperparams) -> None:
    cls, name = type(module), type(module).__name__
    check_class(module)
    for split, method in _NEEDED.items():
        if getattr(ctx.job, split) is not None and not overrides(cls, method, LightningModule):
            raise CannotRun(
                "/module", f"{name} has no {method}, which {split} needs", hint=f"give it one, or drop {split}"
            )
    if module.automatic_optimization:
        return
    if ctx.job.accumulate > 1:
        raise CannotRun(
            "/module",
            f"{name} optimizes by hand, and the job accumulates {ctx.job.accumulate} batches for it",
            hint='remove "accumulate": the module decides itself when an optimizer makes a step',
        )
    check_clipping(module, hyperparams)


def check_clipping(module: LightningModule, hyperparams: Hyperparams) -> None:
    """Check that gradients which the job has clipped are those of automatic optimization.

    :raises CannotRun: The module optimizes by hand.
    """
    if hyperparams.gradient_clip_val is not None and not module.automatic_optimization:
        raise CannotRun(
            "/gradient_clip_val",
            f"{type(module).__name__} optimizes by hand, and gradients are clipped for automatic optimization alone",
            hint="call self.clip_gradients(optimizer, gradient_clip_val=…) in training_step",
        )


def check_parts(hyperparams: Hyperparams, *, seed: int) -> None:
    """Check the classes of the job's module and callbacks; what is named as a class is not made.

    :raises CannotRun: One cannot be made of its arguments, lacks a method, or steers a Trainer.
    """
    classes = classes_of(hyperparams, seed=seed)
    check_class(classes.module)
    check_hyperparams(classes.trainer, hyperparams)
    for cls, pointer in classes.callbacks:
        if not (pointer == CONFIGURED and issubclass(cls, _DONE_HERE)):
            _refuse_steering(cls, pointer)


def _run_here(callbacks: list[tuple[Callback, str]], ctx: StepContext) -> list[Callback]:
    """Return the callbacks that run; those of a configuration that the job has the like of are left out."""
    kept = []
    for one, pointer in callbacks:
        if pointer == CONFIGURED and isinstance(one, _DONE_HERE):
            _leave_out(one, "the config", ctx)
            continue
        _refuse_steering(type(one), pointer)
        kept.append(one)
    return kept


def _leave_out(callback: Callback, of: str, ctx: StepContext) -> None:
    if ctx.rank == 0:
        (way_out,) = (hint for cls, hint in _STEERING.items() if isinstance(callback, cls))
        ctx.warn(f"{of}'s callback {type(callback).__name__} is left out: {way_out}")


def _refuse_steering(callback: type, pointer: str) -> None:
    for cls, way_out in _STEERING.items():
        if issubclass(callback, cls):
            raise CannotRun(pointer, f"the callback {callback.__name__} needs Lightning's Trainer", hint=way_out)


def _with_those_of(module: LightningModule, callbacks: list[Callback], ctx: StepContext) -> list[Callback]:
    """The callbacks of the job with those of ``configure_callbacks``, which win over others of the same class."""
    own = _call_lightning_module_hook(cast(Any, module.trainer), "configure_callbacks")
    own = list(own) if isinstance(own, (list, tuple)) else [own]
    kept = []
    for one in own:
        if isinstance(one, _DONE_HERE):
            _leave_out(one, "the module", ctx)
            continue
        _refuse_steering(type(one), "/module")
        kept.append(one)
    classes = {type(one) for one in kept}
    return [*(one for one in callbacks if type(one) not in classes), *kept]
