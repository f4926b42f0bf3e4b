"""Metrics that a callback adds to a step: around ``train_step``, and only where the host records them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from hostcore_hookspecs import StepContext, StepResult

#: Names that a trainer may give to a metric, and the name under which the host records it.
RECORDED_AS: Final[Mapping[str, str]] = MappingProxyType(
    {"loss": "train/loss", "train_loss": "train/loss", "lr": "train/lr", "learning_rate": "train/lr"}
)


def is_recorded(ctx: StepContext) -> bool:
    """Return True if the host records the metrics of the present step, unless the trainer asks it not to.

    To be asked around ``train_step``: before the step is counted.
    """
    every, step = ctx.job.metric_every, ctx.run_state.step + 1
    return every > 0 and (step % every == 0 or step == ctx.run_state.total_steps)


def kept(value: Any) -> Any:
    """Return a value of a step for a later one: a tensor as a copy on its device, unread and without its graph.

    A scheduler, or a CUDA graph, writes the next value into the same memory.
    """
    return value.detach().clone() if hasattr(value, "detach") else value


def with_metrics(result: Any, metrics: Mapping[str, Any]) -> Any:
    """A result with more metrics. What the trainer reports itself stays as it is.

    :param result: What ``train_step`` returned. One without metrics is left to the host to refuse.
    :param metrics: Numbers or tensors with one element, by recorded name.
    """
    own = getattr(result, "metrics", None)
    if not isinstance(own, Mapping):
        return result
    taken = {RECORDED_AS.get(name, name) for name in own}
    together = {**own, **{name: value for name, value in metrics.items() if name not in taken}}
    if isinstance(result, StepResult):
        return attrs.evolve(result, metrics=together)
    return StepResult(
        metrics=together,
        debug=getattr(result, "debug", None) or {},
        control=getattr(result, "control", None),
        weight=getattr(result, "weight", None),
    )
