"""``python two_ranks.py RANK STORE``: ``grad-clip`` and ``nonfinite-guard`` on two processes, as asserted below."""

import copy
import logging
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from wrapped_step import wrapped_step

from hostcore_builtin_plugins.callbacks.grad_clip import GradClip
from hostcore_builtin_plugins.callbacks.nonfinite_guard import NonfiniteGuard, NotFinite
from hostcore_hookspecs import Job, RunState, StepContext, StepResult

MAX_NORM = 0.01
NAN = float("nan")


class Host:
    """What a callback asks of the host on several ranks."""

    def warn(self, message: str) -> None:
        logging.getLogger("warnings").warning(message)

    def any_rank(self, flag: bool) -> bool:
        told = torch.tensor(int(flag))
        dist.all_reduce(told)
        return bool(told)


def plain_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def sharded(model: torch.nn.Module) -> torch.nn.Module:
    return fully_shard(model, mesh=init_device_mesh("cpu", (2,)))


def data(rank: int) -> torch.Tensor:
    return torch.linspace(-1, 1 + rank, 12).reshape(3, 4)


def context(model: torch.nn.Module, rank: int) -> tuple[StepContext, torch.optim.Optimizer]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    ctx = StepContext(job=Job(metric_every=1), rank=rank, world_size=2, run_state=RunState(), host=Host())  # type: ignore[arg-type]
    ctx.register_optimizer(optimizer)
    return ctx, optimizer


def step(callback: Any, ctx: StepContext, model: torch.nn.Module, factor: float = 1.0) -> StepResult:
    def train_step() -> StepResult:
        loss = model(data(ctx.rank)).square().mean() * factor
        ctx.optimizer.zero_grad()
        loss.backward()
        ctx.optimizer.step()
        return StepResult(metrics={"loss": loss.detach()})

    return wrapped_step(callback, ctx, train_step)


def whole(model: torch.nn.Module) -> list[torch.Tensor]:
    full = [one.full_tensor() if hasattr(one, "full_tensor") else one for one in model.parameters()]
    return [one.detach().clone() for one in full]


def clipped_alone() -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The norm, and the parameters after a step, as one process finds them with the data of both ranks."""
    model = plain_model()
    for rank in range(2):
        (model(data(rank)).square().mean() / 2).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
    return norm, [one.detach() - one.grad for one in model.parameters()]


def check_clipping(wrap: Any, rank: int) -> None:
    model = wrap(plain_model())
    ctx, _ = context(model, rank)
    callback = GradClip(settings=GradClip.Settings(max_norm=MAX_NORM, error_if_nonfinite=True))
    callback.on_train_begin(ctx=ctx)
    found = step(callback, ctx, model).metrics["train/grad_norm"]
    norm, parameters = clipped_alone()
    torch.testing.assert_close(found, norm)
    for one, other in zip(whole(model), parameters, strict=True):
        torch.testing.assert_close(one, other)


def check_skipping(wrap: Any, rank: int) -> None:
    """Rank 1 alone has a loss that is NaN; neither makes the update, not even without an exchange of gradients."""
    model = wrap(plain_model())
    ctx, _ = context(model, rank)
    callback = NonfiniteGuard(settings=NonfiniteGuard.Settings(action="skip"))
    callback.on_train_begin(ctx=ctx)
    step(callback, ctx, model)
    before = copy.deepcopy(whole(model))
    assert step(callback, ctx, model, NAN if rank else 1.0).metrics["train/skipped_steps"] == 1
    for one, other in zip(whole(model), before, strict=True):
        assert torch.equal(one, other)


def check_stopping(rank: int) -> None:
    model = plain_model()
    ctx, _ = context(model, rank)
    callback = NonfiniteGuard(settings=NonfiniteGuard.Settings())
    callback.on_train_begin(ctx=ctx)
    try:
        step(callback, ctx, model, NAN if rank else 1.0)
    except NotFinite as error:
        assert error.message.endswith("(found on rank 1)"), error.message
    else:
        raise AssertionError("all ranks stop")


def main() -> None:
    rank, store = int(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    for wrap in (DistributedDataParallel, sharded):
        check_clipping(wrap, rank)
    for wrap in (lambda model: model, DistributedDataParallel, sharded):
        check_skipping(wrap, rank)
    check_stopping(rank)
    dist.destroy_process_group()
    # The wrapped models still hold groups, whose threads may be giving tensors back while Python is already ending;
    # the process would die of that (https://github.com/pytorch/pytorch/pull/179291), and of none of the checks.
    os._exit(0)


if __name__ == "__main__":
    main()
