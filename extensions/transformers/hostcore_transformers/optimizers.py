"""Optimizers by name, of torch, transformers and bitsandbytes, and the schedules of their learning rates."""

import importlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import torch
from torch import nn

from hostcore_hookspecs import InvalidSettings, StepContext
from hostcore_transformers.hyperparams import BETAS, Hyperparams

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

_BITSANDBYTES: Final = "bitsandbytes.optim"


@attrs.frozen(kw_only=True)
class _Optimizer:
    """The class of an optimizer."""

    module: str = "torch.optim"
    name: str
    has_betas: bool = False
    options: Mapping[str, Any] = attrs.field(factory=dict)


#: As ``transformers.Trainer`` makes them.
_KINDS: Final[Mapping[str, _Optimizer]] = {
    "adamw": _Optimizer(name="AdamW", has_betas=True),
    "sgd": _Optimizer(name="SGD"),
    "rmsprop": _Optimizer(name="RMSprop"),
    "adagrad": _Optimizer(name="Adagrad"),
    "adafactor": _Optimizer(
        module="transformers.optimization",
        name="Adafactor",
        options={"scale_parameter": False, "relative_step": False},
    ),
    "lion": _Optimizer(module=_BITSANDBYTES, name="Lion", has_betas=True),
    "adamw_8bit": _Optimizer(module=_BITSANDBYTES, name="AdamW", has_betas=True, options={"optim_bits": 8}),
    "lion_8bit": _Optimizer(module=_BITSANDBYTES, name="Lion", has_betas=True, options={"optim_bits": 8}),
    "paged_adamw": _Optimizer(module=_BITSANDBYTES, name="AdamW", has_betas=True, options={"is_paged": True}),
    "paged_adamw_8bit": _Optimizer(
        module=_BITSANDBYTES, name="AdamW", has_betas=True, options={"optim_bits": 8, "is_paged": True}
    ),
}
#: Optimizers of a parameter whose parts are spread over the ranks.
_SPREAD: Final = ("adamw", "sgd", "rmsprop", "adagrad")


def make_optimizer(model: nn.Module, hyperparams: Hyperparams, ctx: StepContext) -> "Optimizer":
    """Make the job's optimizer of the parameters that are trained.

    :raises InvalidSettings: When its library is not installed, or it does not work on this device or these ranks, or
        does not take its options.
    """
    kind = _KINDS[hyperparams.optimizer]
    _check(kind, hyperparams, ctx)
    options: dict[str, Any] = {**kind.options, **({"betas": hyperparams.adam_betas} if kind.has_betas else {})}
    made = getattr(_library(kind, hyperparams.optimizer), kind.name)
    groups = _groups(model, hyperparams.weight_decay)
    try:
        optimizer: Optimizer = made(groups, lr=hyperparams.learning_rate, **options, **hyperparams.optimizer_options)
    except (TypeError, ValueError, RuntimeError) as error:
        message = f'"{hyperparams.optimizer}" does not take them: {error}'
        raise InvalidSettings("/optimizer_options", message, hint=f"they are arguments of {kind.name}") from error
    if kind.options.get("optim_bits") == 8:
        manager = importlib.import_module(_BITSANDBYTES).GlobalOptimManager.get_instance()
        for one in model.modules():
            if isinstance(one, nn.Embedding):  # whose updates are too few and too large for 8 bits
                manager.register_module_override(one, "weight", {"optim_bits": 32})
    return optimizer


def make_schedule(hyperparams: Hyperparams, optimizer: "Optimizer", steps: int) -> "LRScheduler":
    """Make the schedule of the learning rate over all steps of the run.

    :raises InvalidSettings: When it does not take its options.
    """
    from transformers import get_scheduler

    try:
        made: LRScheduler = get_scheduler(
            hyperparams.schedule,
            optimizer,
            num_warmup_steps=hyperparams.warmup_steps or math.ceil(steps * hyperparams.warmup_ratio),
            num_training_steps=steps,
            scheduler_specific_kwargs=dict(hyperparams.schedule_options),
        )
    except (TypeError, ValueError) as error:
        raise InvalidSettings(
            "/schedule_options",
            f'the schedule "{hyperparams.schedule}" does not take them: {error}',
            hint='for instance "min_lr_rate" of cosine_with_min_lr, or "num_decay_steps" of warmup_stable_decay',
        ) from error
    return made


def _check(kind: _Optimizer, hyperparams: Hyperparams, ctx: StepContext) -> None:
    name = hyperparams.optimizer
    if not kind.has_betas and hyperparams.adam_betas != BETAS:
        raise InvalidSettings("/adam_betas", f'"{name}" has none', hint="remove them")
    if hyperparams.strategy == "fsdp2" and ctx.world_size > 1 and name not in _SPREAD:
        message = f'"{name}" does not update parameters that fsdp2 has spread over the ranks'
        hint = f'choose one of {", ".join(_SPREAD)}, or "strategy": "ddp"'
        raise InvalidSettings("/optimizer", message, hint=hint)
    if "is_paged" in kind.options and torch.device(ctx.device).type != "cuda":
        message = f'"{name}" pages its state out of the memory of a GPU, and the device is {ctx.device}'
        raise InvalidSettings("/optimizer", message, hint=f'use "{name.removeprefix("paged_")}"')


def _library(kind: _Optimizer, name: str) -> Any:
    try:
        return importlib.import_module(kind.module)
    except ImportError as error:
        message = f'"{name}" needs {kind.module.partition(".")[0]}, which is not installed'
        raise InvalidSettings(
            "/optimizer", message, hint='pip install "bitsandbytes>=0.50", or use "adamw" or "adafactor"'
        ) from error


def _groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """The parameters to train: those that decay, and biases and those of normalizations, which do not."""
    names: Any = importlib.import_module("transformers.trainer_pt_utils").get_parameter_names

    patterns = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]
    decaying = set(names(model, [nn.LayerNorm], patterns))
    trained = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    return [
        {"params": [one for name, one in trained if name in decaying], "weight_decay": weight_decay},
        {"params": [one for name, one in trained if name not in decaying], "weight_decay": 0.0},
    ]
