"""Which gradients a trainer computes, and what its optimizers are about to apply at the moment of their step."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AnySet
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


@contextmanager
def gradients_received(parameters: Mapping[str, Any]) -> Iterator[AnySet[str]]:
    """Collect the names of the parameters that ``backward()`` gives a gradient, also one that is cleared afterwards."""
    received: set[str] = set()

    def look(name: str) -> Any:
        return lambda _: received.add(name)

    handles = [
        parameter.register_post_accumulate_grad_hook(look(name))
        for name, parameter in parameters.items()
        if parameter.requires_grad
    ]
    try:
        yield received
    finally:
        for handle in handles:
            handle.remove()
