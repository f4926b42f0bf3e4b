"""The moment when an optimizer is about to use the gradients of a step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook


@contextmanager
def before_updates(read: Callable[[Optimizer], None]) -> Iterator[None]:
    """Meanwhile, call ``read`` before each update of an optimizer of this process, when its gradients are there.

    An optimizer that gets a closure computes them itself: behind each call of the closure.

    :param read: Gets the optimizer; what it raises comes out of ``optimizer.step()``.
    """

    def look(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        closure = kwargs.get("closure") or next((one for one in args if one is not optimizer and one is not None), None)
        if closure is None:
            read(optimizer)
            return None

        def then_read() -> Any:
            loss = closure()
            read(optimizer)
            return loss

        return tuple(one for one in args if one is optimizer), {**kwargs, "closure": then_read}

    handle = register_optimizer_step_pre_hook(look)
    try:
        yield
    finally:
        handle.remove()
