"""What the optimizers of a trainer are about to apply, as it is at the moment of their step."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def gradients_seen() -> Iterator[list[Any]]:
    """Collect the gradients of every ``optimizer.step()`` of the process: a list of flat float64 vectors, one a step.

    A step without any gradient is not in it.
    """
    import torch
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    seen: list[Any] = []

    def look(optimizer: Any, _arguments: Any, _keywords: Any) -> None:
        parameters = (one for group in optimizer.param_groups for one in group["params"])
        gradients = [one.grad.detach().double().flatten().cpu() for one in parameters if one.grad is not None]
        if gradients:
            seen.append(torch.cat(gradients))

    handle = register_optimizer_step_pre_hook(look)
    try:
        yield seen
    finally:
        handle.remove()
