"""The callback ``grad-clip``: keeps gradients below a norm or a value."""

from collections.abc import Generator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import attrs
from annotated_types import Gt

from hostcore_builtin_plugins.callbacks.optimizer_hook import OptimizerHook, parameters_with_gradients, refuse_closure
from hostcore_builtin_plugins.callbacks.step_metrics import with_metrics
from hostcore_hookspecs import HostcoreError, InvalidSettings, StepContext, hookimpl, when_recorded

if TYPE_CHECKING:
    import torch

NAME = "grad-clip"


class NonfiniteNorm(HostcoreError):
    """The norm of the gradients is NaN or infinite, so clipping would make all of them so."""

    code = "gradients.nonfinite"


class GradClip:
    """Clips the gradients of the optimizer that the trainer registered, before every update."""

    CHANGES_TRAINING = True

    @attrs.frozen(kw_only=True)
    class Settings:
        """One of ``max_norm`` and ``max_value``."""

        max_norm: Annotated[float, Gt(0)] | None = attrs.field(
            default=None,
            metadata={"help": "Scale all gradients together, so that their norm is at most this."},
        )
        max_value: Annotated[float, Gt(0)] | None = attrs.field(
            default=None,
            metadata={"help": "Cut every element of the gradients to the range from minus this to this."},
        )
        norm_type: Annotated[float, Gt(0)] | Literal["inf"] = attrs.field(
            default=2.0, metadata={"help": 'Which norm: 2 is the Euclidean one, "inf" the largest element.'}
        )
        error_if_nonfinite: bool = attrs.field(
            default=False,
            metadata={
                "help": "Fail the run when the norm is NaN or infinite. Reads the norm at every step, for which a GPU "
                "has to be waited for."
            },
        )
        report: bool = attrs.field(
            default=True,
            metadata={"help": "Record the norm before clipping as `train/grad_norm` when metrics are recorded."},
        )

    def __init__(self, *, settings: Settings) -> None:
        if (settings.max_norm is None) == (settings.max_value is None):
            given = "neither is" if settings.max_norm is None else "both are"
            raise InvalidSettings("", f"{NAME} needs one of max_norm and max_value, but {given} given")
        if settings.max_value is not None and (settings.error_if_nonfinite or settings.norm_type != 2.0):
            name = "error_if_nonfinite" if settings.error_if_nonfinite else "norm_type"
            raise InvalidSettings(f"/{name}", f"{name} is about max_norm; with max_value no norm is computed")
        self._settings = settings
        self._norm_type = float(settings.norm_type)
        self._hook = OptimizerHook(self._before_step, name=NAME, instead=f"remove {NAME} from the job's callbacks")
        #: Of the update made last, before clipping; unread.
        self._norm: torch.Tensor | None = None

    def on_train_begin(self, ctx: StepContext) -> None:
        """Begin to clip."""
        self._hook.attach(ctx)

    def on_train_end(self) -> None:
        """End."""
        self._hook.detach()

    def on_exception(self) -> None:
        """End."""
        self._hook.detach()

    @hookimpl(wrapper=True)
    def load_state_dict(self, ctx: StepContext) -> Generator[None, Any, Any]:
        """The trainer may make a new optimizer when it goes back to a checkpoint."""
        result = yield
        self._hook.follow(ctx)
        return result

    @hookimpl(wrapper=True)
    @when_recorded
    def train_step(self) -> Generator[None, Any, Any]:
        """Add the norm to the metrics that are recorded."""
        self._norm = None  # an update may be skipped
        result = yield
        if self._norm is None or not self._settings.report:
            return result
        return with_metrics(result, {"train/grad_norm": _whole(self._norm)})

    def _before_step(self, optimizer: "torch.optim.Optimizer", args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        import torch

        refuse_closure(NAME, optimizer, args, kwargs)
        parameters = parameters_with_gradients(optimizer)
        if not parameters:
            return  # the update is skipped; a norm of 0 would look like one
        _unscale(optimizer, parameters)
        if self._settings.max_value is not None:
            torch.nn.utils.clip_grad_value_(parameters, self._settings.max_value)
            return
        assert self._settings.max_norm is not None
        self._norm = clip_to_norm(parameters, self._settings.max_norm, self._norm_type)
        if self._settings.error_if_nonfinite and not torch.isfinite(_whole(self._norm)):
            raise NonfiniteNorm(
                f"the norm of the gradients is {float(_whole(self._norm))}, so they cannot be clipped",
                hint="lower the learning rate, or look for the cause with torch.autograd.set_detect_anomaly(True); "
                "the callback nonfinite-guard, put before this one, can skip such updates",
            )


def clip_to_norm(parameters: "list[torch.Tensor]", max_norm: float, norm_type: float) -> "torch.Tensor":
    """Clip as ``torch.nn.utils.clip_grad_norm_`` does, bit for bit; in fewer calls where all gradients are of one kind.

    :param parameters: With gradients.
    :return: The norm before clipping, unread.
    """
    import torch

    gradients = [one.grad for one in parameters if one.grad is not None]
    kinds = {(type(one), one.device, one.dtype, one.layout) for one in gradients}
    if len(kinds) > 1 or type(gradients[0]) is not torch.Tensor or gradients[0].layout is not torch.strided:
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)
    with torch.no_grad():
        norm: torch.Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients, norm_type)), norm_type)
        torch._foreach_mul_(gradients, torch.clamp(max_norm / (norm + 1e-6), max=1.0))
    return norm


def _unscale(optimizer: "torch.optim.Optimizer", parameters: "list[torch.Tensor]") -> None:
    """Divide by the scale of a gradient scaler, if it has left that to the optimizer.

    It does for fused optimizers: they find the scale in ``grad_scale``, where None means 1, and whether anything is
    infinite in ``found_inf``.
    """
    scale = getattr(optimizer, "grad_scale", None)
    if scale is None:
        return
    for one in parameters:
        assert one.grad is not None
        one.grad.div_(scale.to(one.grad.device))
    optimizer.grad_scale = None  # type: ignore[attr-defined]


def _whole(norm: "torch.Tensor") -> "torch.Tensor":
    """The norm over all shards of a sharded model, on every rank; a collective there."""
    full_tensor = getattr(norm, "full_tensor", None)
    whole: torch.Tensor = norm if full_tensor is None else full_tensor()
    return whole
