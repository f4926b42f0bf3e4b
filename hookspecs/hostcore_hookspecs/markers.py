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

_F = TypeVar("_F", bound=Callable[..., Any])


def not_a_hook(method: _F) -> _F:
    """Say that a public method is not a hook, though its name comes close to one.

    hostcore refuses a component whose method is called ``train_stpe``, because it would never be called. This marker is
    for the rare method that is meant to have such a name.
    """
    setattr(method, NOT_A_HOOK, True)
    return method
