"""A step with a callback around it, called as the host calls it."""

import inspect
from collections.abc import Callable
from typing import Any

from hostcore_builtin_plugins.callbacks.step_metrics import is_recorded
from hostcore_hookspecs import StepContext
from hostcore_hookspecs.markers import WHEN_RECORDED


def wrapped_step(callback: Any, ctx: StepContext, train_step: Callable[[], Any]) -> Any:
    """The result. A wrapper that is marked ``@when_recorded`` is left out where no metrics are recorded."""
    wrapper = callback.train_step
    if getattr(wrapper, WHEN_RECORDED, False) and not is_recorded(ctx):
        return train_step()
    around = wrapper(**({"ctx": ctx} if "ctx" in inspect.signature(wrapper).parameters else {}))
    next(around)
    result = train_step()
    try:
        around.send(result)
    except StopIteration as over:
        return over.value
    raise AssertionError("a wrapper yields once")
