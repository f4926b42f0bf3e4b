"""The callback ``lr-monitor``: records the learning rate of every parameter group."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import attrs

from hostcore_builtin_plugins.callbacks.step_metrics import kept, with_metrics
from hostcore_hookspecs import InvalidSettings, StepContext, hookimpl, when_recorded


class LrMonitor:
    """Adds ``train/lr`` to the metrics of each cadence step; ``train/lr/<group>`` if there are several groups.

    It is the rate that the optimizer's ``step`` was made with, whether the trainer sets it before or steps a scheduler
    after it. A group is called by its ``name``, if all have different ones, else by its number.
    """

    @attrs.frozen(kw_only=True)
    class Settings:
        """Further metrics to record."""

        momentum: bool = attrs.field(
            default=False, metadata={"help": "Also record `train/momentum`: the momentum, or the first of the betas."}
        )
        weight_decay: bool = attrs.field(default=False, metadata={"help": "Also record `train/weight_decay`."})

    def __init__(self, *, settings: Settings) -> None:
        self._wanted = [setting for setting, wanted in attrs.asdict(settings).items() if wanted]

    def on_train_begin(self, ctx: StepContext) -> None:
        """Refuse a trainer whose optimizer is not known.

        :raises InvalidSettings: When the trainer has registered none, or it has not what is asked for.
        """
        if ctx.optimizer is None:
            raise InvalidSettings(
                "",
                "the trainer has registered no optimizer, so there is no learning rate to record",
                hint="call ctx.register_optimizer(optimizer) in its configure, or leave lr-monitor out",
            )
        for setting in self._wanted:
            if all(_value(group, setting) is None for group in ctx.optimizer.param_groups):
                raise InvalidSettings(f"/{setting}", f"{type(ctx.optimizer).__name__} has no {setting}")

    @hookimpl(wrapper=True)
    @when_recorded
    def train_step(self, ctx: StepContext) -> Generator[None, Any, Any]:
        """Read the rates when the optimizer is about to use them."""
        read: dict[str, Any] = {}
        optimizer: Any = ctx.optimizer
        register = getattr(optimizer, "register_step_pre_hook", None)  # what is no torch.optim.Optimizer has none
        handle = register and register(lambda *_: read.update(self._rates(optimizer.param_groups)))
        try:
            result = yield
        finally:
            if handle is not None:
                handle.remove()
        return with_metrics(result, read or self._rates(optimizer.param_groups))  # a step may be skipped

    def _rates(self, groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for suffix, group in zip(_suffixes(groups), groups, strict=True):
            for key in ("lr", *self._wanted):
                value = _value(group, key)
                if value is not None:
                    found[f"train/{key}{suffix}"] = value
        return found


def _suffixes(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    if len(groups) == 1:
        return [""]
    names = [group["name"] for group in groups if isinstance(group.get("name"), str)]
    if len(set(names)) < len(groups):
        return [f"/{number}" for number in range(len(groups))]
    return [f"/{name}" for name in names]


def _value(group: Mapping[str, Any], key: str) -> Any:
    value: Any = group.get(key)
    if value is None and key == "momentum" and group.get("betas"):
        value = group["betas"][0]
    return kept(value)
