"""Hook before every update of the trainer's optimizer."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hostcore_hookspecs import HostcoreError, InvalidSettings, StepContext

if TYPE_CHECKING:
    import torch

#: Takes the optimizer, and the arguments of ``step``.
BeforeStep = Callable[["torch.optim.Optimizer", tuple[Any, ...], dict[str, Any]], None]


class OptimizerHook:
    """Has a method of a callback called before every ``optimizer.step()``; under a gradient scaler, after unscaling.

    :param before_step: What is called. It should begin with :func:`refuse_closure`.
    :param name: The callback, for messages.
    :param instead: What a user who cannot change the trainer may do.
    """

    def __init__(self, before_step: BeforeStep, *, name: str, instead: str) -> None:
        self._before_step = before_step
        self._name = name
        self._instead = instead
        self._optimizer: torch.optim.Optimizer | None = None
        self._handle: Any = None

    def attach(self, ctx: StepContext) -> None:
        """Begin.

        :raises InvalidSettings: When the trainer has made no optimizer known.
        """
        optimizer = ctx.optimizer
        if optimizer is None or not hasattr(optimizer, "register_step_pre_hook"):
            found = "none" if optimizer is None else f"one of class {type(optimizer).__name__}, which is not torch's"
            raise InvalidSettings(
                "",
                f"{self._name} works on the trainer's optimizer, and the trainer has registered {found}",
                hint=f"call ctx.register_optimizer(optimizer) in its configure, or {self._instead}",
            )
        self.detach()
        self._optimizer = optimizer
        self._handle = optimizer.register_step_pre_hook(self._before_step)

    def follow(self, ctx: StepContext) -> None:
        """Move to the optimizer that the trainer has registered by now, if it has made a new one."""
        if self._handle is not None and ctx.optimizer is not self._optimizer:
            self.attach(ctx)

    def detach(self) -> None:
        """End; nothing happens the second time."""
        if self._handle is not None:
            self._handle.remove()
        self._optimizer = self._handle = None


def refuse_closure(
    name: str, optimizer: "torch.optim.Optimizer", args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Refuse to work on gradients that are not there yet: with a closure, ``step`` computes them itself.

    :param name: The callback.
    :param args: Of ``step``.
    :raises HostcoreError: When there is a closure.
    """
    closure = kwargs.get("closure") or next((one for one in args if one is not optimizer and one is not None), None)
    if closure is not None:
        raise HostcoreError(
            f"{name} cannot see the gradients: {type(optimizer).__name__}.step was given a closure that computes them",
            code="callback.closure",
            hint="compute the gradients before step() and call it without a closure",
        )


def parameters_with_gradients(optimizer: "torch.optim.Optimizer") -> "list[torch.Tensor]":
    """The parameters of an optimizer that have a gradient."""
    return [one for group in optimizer.param_groups for one in group["params"] if one.grad is not None]
