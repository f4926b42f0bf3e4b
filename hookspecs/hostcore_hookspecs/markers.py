"""The markers that plugins and hook specifications carry."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import pluggy

PROJECT_NAME: Final = "hostcore"

hookspec = pluggy.HookspecMarker(PROJECT_NAME)

#: Marks a method as a hook implementation. A component's own contract methods need no mark; a wrapper around a method
#: of the selected trainer or data source does: ``@hookimpl(wrapper=True)``.
hookimpl = pluggy.HookimplMarker(PROJECT_NAME)

NOT_A_HOOK: Final = "hostcore_not_a_hook"
WHEN_RECORDED: Final = "hostcore_when_recorded"

_F = TypeVar("_F", bound=Callable[..., Any])


def not_a_hook(method: _F) -> _F:
    """Mark a public method as no hook, though its name comes close to one.

    hostcore refuses a component whose method is called ``train_stpe``, because it would never be called. This marker is
    for the rare method that is meant to have such a name.
    """
    setattr(method, NOT_A_HOOK, True)
    return method


def when_recorded(wrapper: _F) -> _F:
    """Wrap ``train_step`` only where the host records metrics: every ``metric_every`` steps, and at the last.

    At all other steps the wrapper is not called and costs nothing. For one that adds to the metrics of a step::

        @hookimpl(wrapper=True)
        @when_recorded
        def train_step(self):
            result = yield
            return attrs.evolve(result, metrics={**result.metrics, "room/degrees": self.degrees()})

    A job whose ``metric_every`` is 0 never calls it.
    """
    setattr(wrapper, WHEN_RECORDED, True)
    return wrapper
