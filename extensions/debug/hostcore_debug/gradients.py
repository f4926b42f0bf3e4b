"""The gradients of a step at the moment when an optimizer is about to use them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def before_updates(read: Callable[[], None]) -> Iterator[None]:
    """Meanwhile, call ``read`` before each update of an optimizer of this process, when its gradients are there.

    An optimizer that gets a closure computes them itself: behind each call of the closure.
    """
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    def look(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        closure = kwargs.get("closure") or next((one for one in args if one is not optimizer and one is not None), None)
        if closure is None:
            read()
            return None

        def then_read() -> Any:
            loss = closure()
            read()
            return loss

        return tuple(one for one in args if one is optimizer), {**kwargs, "closure": then_read}

    handle = register_optimizer_step_pre_hook(look)
    try:
        yield
    finally:
        handle.remove()
