"""The life of a trainer in this process: from its setup to its teardown, whatever comes between."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import torch

from hostcore.interruption import is_by_signal
from hostcore.plugins.errors import one_line
from hostcore.toolkit import seed_everything
from hostcore.worker import randomness
from hostcore.worker.assembly import Assembly
from hostcore.worker.training import nothing
from hostcore_hookspecs import events

T = TypeVar("T")


def live(parts: Assembly, work: Callable[[Any], T]) -> T:
    """Set the trainer up, do something with its state, and tear it down.

    After an error ``on_exception`` comes first, then ``teardown``; what these raise is a warning.

    :param work: Takes what the trainer's ``configure`` returned.
    """
    job = parts.prepared.job
    seed_everything(job.seed)
    if job.deterministic != torch.are_deterministic_algorithms_enabled():  # setting it imports torch._dynamo: 1.8 s
        torch.use_deterministic_algorithms(job.deterministic)
    teardown: Callable[..., Any] = nothing
    try:
        parts.of_trainer("setup")(parts.ctx)
        state = parts.of_trainer("configure")(parts.ctx)
        randomness.part_ways(job.seed, parts.ranks.rank)
        teardown = partial(parts.of_trainer("teardown") or nothing, state, parts.ctx)
        done = work(state)
        last, teardown = teardown, nothing
        last()
    except BaseException as error:
        guarded(parts, "on_exception", parts.hook("on_exception"), error, parts.progress.state, parts.ctx)
        guarded(parts, "teardown", teardown)
        raise
    return done


def guarded(parts: Assembly, name: str, call: Callable[..., Any], *arguments: Any) -> None:
    """Call something after an error; what it raises is a warning."""
    try:
        call(*arguments)
    except BaseException as error:
        if is_by_signal(error):
            raise
        with suppress(OSError):
            parts.emit(events.Warning(code="plugin.failed", message=f"{name} raised {one_line(error)}"))
