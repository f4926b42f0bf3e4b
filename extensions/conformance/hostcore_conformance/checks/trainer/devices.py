"""Checks of devices: a trainer puts its model and its batches where the job wants them."""

from contextlib import suppress
from typing import Any

from hostcore_conformance.check import check
from hostcore_conformance.checks.trainer.stage import Stage, models_of, on_stage, tensors_in
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.subject import Subject


@check("trainer.uses_device", requires=("trainer.trains",))
def uses_device(subject: Subject) -> None:
    """Model and batches are on ctx.device.

    No GPU is needed to see this: the kit configures the trainer with torch's "meta" device as ctx.device, on which
    tensors have shapes and no memory. All parameters of the modules in the state must be there; and if a step can be
    made at all, no operation may mix tensors of it with tensors that were left on the CPU.

    What breaks it: no .to(ctx.device) for the model, or for a part of it that is built later; "cuda" if available in
    place of ctx.device, which puts every rank on the first GPU; a batch that stays where prepare_batch has read it; a
    mask or a table of positions that train_step makes without device=ctx.device.
    """

    def scene(stage: Stage) -> tuple[list[str], list[str]]:
        import torch

        meta, ctx = torch.device("meta"), stage.ctx
        own, ctx.device = ctx.device, meta
        try:
            state = stage.call("configure", ctx)
            parameters = models_of(state)
            if not parameters:
                raise NotApplicable("there is no torch module in the state that configure returns")
            elsewhere = [f"{name} on {one.device}" for name, one in parameters.items() if one.device != meta]
            return elsewhere, _step(stage, state)
        except NotApplicable:
            raise
        except Exception as error:
            text = subject.in_words(error)
            raise NotApplicable(
                f'it cannot be configured on the device "meta", so there is nothing to see: {text}'
            ) from error
        finally:
            ctx.device = own

    elsewhere, mixed = on_stage(subject, scene)
    if elsewhere:
        raise ConformanceError(
            expected="all parameters on ctx.device",
            got=f"{len(elsewhere)} elsewhere: {', '.join(elsewhere[:3])}",
            fix="Write model.to(ctx.device) in configure, before the optimizer is built.",
        )
    if mixed:
        raise ConformanceError(
            expected="batches and whatever else a step computes with on ctx.device",
            got=f"tensors of another device in {', '.join(dict.fromkeys(mixed))}",
            fix="Return tensors on ctx.device from prepare_batch (toolkit.to_tensors takes device=ctx.device), and make"
            " new ones with device=ctx.device.",
        )


def _step(stage: Stage, state: Any) -> list[str]:
    """Make a step on the meta device, as far as that goes: the operations that mix devices."""
    from torch.utils._python_dispatch import TorchDispatchMode

    mixed: list[str] = []

    class DeviceWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        """Notes operations that take tensors of the meta device and of another one."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            tensors = [one for one in tensors_in([args, kwargs]) if one.dim() > 0]
            if any(one.is_meta for one in tensors) and not all(one.is_meta for one in tensors):
                name = str(func).rpartition("aten.")[2]
                if not name.startswith(("copy_", "_to_copy")):
                    shape = next(tuple(one.shape) for one in tensors if not one.is_meta)
                    mixed.append(f"{name.partition('.')[0]} (shape {shape})")
            return func(*args, **(kwargs or {}))

    size, ctx = stage.training.job.accumulate, stage.ctx
    # Some operations need values, which there are none of: what was seen until then counts.
    with suppress(Exception), DeviceWatch():  # type: ignore[no-untyped-call]
        group = [stage.call("prepare_batch", stage.transformed(one), state, ctx) for one in stage.raw_batches(size)]
        stage.call("train_step", tuple(group) if size > 1 else group[0], state, ctx)
    return mixed
