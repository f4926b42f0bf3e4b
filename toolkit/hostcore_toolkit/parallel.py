"""A model on several ranks, by torch's own means: DDP, FSDP2, or a copy on each rank."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import torch
import torch.distributed as dist
from torch import nn

from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.errors import HostcoreError

Strategy = Literal["ddp", "fsdp2", "replicate"]

_STRATEGIES: Final = ("ddp", "fsdp2", "replicate")
#: Where torch has collectives.
_DEVICES: Final = ("cpu", "cuda")


class CannotParallelize(HostcoreError):
    """A model cannot be trained on several ranks in the way that was asked for."""

    code = "toolkit.parallel"


def parallelize(
    model: nn.Module,
    ctx: StepContext,
    *,
    strategy: Strategy = "ddp",
    blocks: Sequence[str | type[nn.Module]] | None = None,
    **options: Any,
) -> nn.Module:
    """Let a model train on all ranks of the run. To be called in ``configure``, before the optimizer is made.

    On one rank the model comes back as it is. On several, its gradients become the mean over the ranks, so a loss that
    is a mean over the rows of a batch learns from the global batch.

    - ``ddp``: each rank has the whole model. It comes back wrapped in ``DistributedDataParallel``, as its ``module``.
    - ``fsdp2``: each rank has a part of every parameter (``fully_shard``). The same model comes back. In bf16 or fp16
      it computes in that precision, with gradients reduced in fp32.
    - ``replicate``: each rank has the whole model, as the first rank has it now. The same model comes back, and
      ``train_step`` calls :func:`average_gradients` behind its last ``backward``. Slower than ``ddp``, which exchanges
      gradients while it computes others; but a step for which memory runs out can be made again
      (``Capabilities.split_on_oom``), which with the other two would leave ranks waiting for one another.

    :param model: On any device; it moves to ``ctx.device``.
    :param blocks: For ``fsdp2``: what is gathered at once, besides the rest of the model. Names of submodules (of a
        list or a sequence its members are meant) or classes. None: the members of every ``ModuleList`` of alike ones.
    :param options: For ``DistributedDataParallel`` (``find_unused_parameters=True``) or ``fully_shard``
        (``reshard_after_forward=False``). None for ``replicate``.
    :raises CannotParallelize: When torch cannot do that with this model or device.
    """
    if strategy not in _STRATEGIES:
        raise CannotParallelize(f"there is no strategy {strategy!r}", hint=f"known are: {', '.join(_STRATEGIES)}")
    if ctx.world_size == 1:
        return model
    device = torch.device(ctx.device)
    _check(model, device, strategy)
    if strategy == "replicate":
        return _replicated(model.to(device), options)
    ctx.keep_batches_whole(f"on several ranks, {strategy} exchanges values before the update; replicate does not")
    if strategy == "ddp":
        index = None if device.type == "cpu" else [torch.device(device).index or 0]
        return nn.parallel.DistributedDataParallel(model.to(device), device_ids=index, **options)
    return _shard(model, device, _blocks(model, blocks), ctx.dtype, options)


def average_gradients(model: nn.Module, ctx: StepContext) -> None:
    """Make the gradients the means over the ranks. A collective; does nothing on one rank.

    For models of ``parallelize(…, strategy="replicate")``, between ``ctx.begin_update()`` and the optimizer's step. For
    those of ``ddp`` and ``fsdp2``, whose gradients are the means already, it does nothing. A parameter that requires a
    gradient and has none, because no batch of this rank came to it, counts as 0, and has one afterwards.

    :param model: Parameters and gradients are dense.
    """
    if ctx.world_size == 1 or isinstance(model, nn.parallel.DistributedDataParallel) or _is_sharded(model):
        return
    begun = []
    for parameter in model.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            begun.append((parameter.grad, dist.all_reduce(parameter.grad, async_op=True)))
    for gradient, work in begun:
        work.wait()
        gradient.div_(ctx.world_size)


def _check(model: nn.Module, device: torch.device, strategy: Strategy) -> None:
    if not dist.is_initialized():
        raise CannotParallelize("the ranks are not connected", hint="call it with the context of a run, in configure")
    if device.type not in _DEVICES:
        raise CannotParallelize(f"torch has no collectives on {device.type}", hint="use one rank there")
    if isinstance(model, nn.parallel.DistributedDataParallel) or _is_sharded(model):
        raise CannotParallelize("the model is parallel already", hint="call parallelize once, on the whole model")
    parameters = list(model.parameters())
    if any(isinstance(one, nn.parameter.UninitializedParameter) for one in parameters):
        raise CannotParallelize("the model has lazy layers", hint="run a batch through it first, or give them sizes")
    if strategy != "fsdp2" and not any(one.requires_grad for one in parameters):
        raise CannotParallelize("no parameter of the model requires a gradient", hint="leave it as it is on all ranks")


def _replicated(model: nn.Module, options: Any) -> nn.Module:
    """The model with the first rank's parameters and buffers."""
    if options:
        raise CannotParallelize(f"replicate takes no options, such as {next(iter(options))}", hint="leave them out")
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), src=0)
    return model


def _is_sharded(model: nn.Module) -> bool:
    return any(type(one).__name__ == "DTensor" for one in model.parameters())


def _shard(
    model: nn.Module, device: torch.device, blocks: Iterable[nn.Module], dtype: torch.dtype | None, options: Any
) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    options = {"mesh": init_device_mesh(device.type, (dist.get_world_size(),)), **options}
    if dtype in (torch.bfloat16, torch.float16):
        options.setdefault("mp_policy", MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32))
    for block in blocks:
        fully_shard(block, **options)
    fully_shard(model, **options)
    return model


def _blocks(model: nn.Module, asked: Sequence[str | type[nn.Module]] | None) -> list[nn.Module]:
    """The blocks, inner ones first: what is in one is gathered with it."""
    modules = dict(model.named_modules())
    if asked is None:
        found = [one for parent in modules.values() if _is_list_of_alike(parent) for one in parent.children()]
    else:
        found = [one for each in asked for one in _asked(each, modules)]
    order = {id(one): number for number, one in enumerate(modules.values())}
    return sorted({id(one): one for one in found}.values(), key=lambda one: -order[id(one)])


def _is_list_of_alike(parent: nn.Module) -> bool:
    kinds = {type(one) for one in parent.children()}
    return isinstance(parent, nn.ModuleList) and len(kinds) == 1 and any(True for _ in parent.parameters())


def _asked(name: str | type[nn.Module], modules: dict[str, nn.Module]) -> list[nn.Module]:
    if not isinstance(name, str):
        found = [one for one in modules.values() if isinstance(one, name)]
    elif name in modules:
        one = modules[name]
        found = list(one.children()) if isinstance(one, nn.ModuleList | nn.ModuleDict | nn.Sequential) else [one]
    else:
        found = []
    if not found:
        raise CannotParallelize(f"the model has no block {name!r}", hint=f"its parts are: {', '.join(_named(modules))}")
    return found


def _named(modules: dict[str, nn.Module]) -> list[str]:
    names = [name for name in modules if name]
    return [*names[:10], "…"] if len(names) > 10 else names
