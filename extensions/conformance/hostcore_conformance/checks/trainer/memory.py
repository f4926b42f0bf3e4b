"""That steps leave no tensors behind."""

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final

import attrs

from hostcore_conformance.check import check
from hostcore_conformance.checks.trainer.stage import Stage, live_tensors, on_stage, tensors_in
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.subject import Subject

#: Looked at after so many steps each.
_STEPS: Final = 4
_LOOKS: Final = 4
#: A graph is not followed further than this.
_MOST_NODES: Final = 20_000


@attrs.frozen
class _Look:
    """Tensors alive between two steps."""

    tensors: int
    #: Of autograd's graph, reachable from these tensors.
    nodes: int
    #: Tensors by type and shape.
    shapes: Counter[str]


@check("trainer.memory_flat", level="should", requires=("trainer.trains",))
def memory_flat(subject: Subject) -> None:
    """Steps leave no tensors behind.

    The kit trains sixteen steps of the example, and counts after every fourth the tensors that Python holds and the
    nodes of autograd's graph behind them. What grows from each look to the next keeps growing until the memory is
    full.

    The classic is self.losses.append(loss), which keeps the graph of every step, or self.total += loss, where one
    tensor keeps all of them. Keep loss.detach(), or better nothing: the host records what a step returns. A collection
    that grows on purpose, such as a replay buffer, is best allocated at its full size.
    """

    def scene(stage: Stage) -> tuple[list[_Look], str]:
        import torch

        looks = []
        optimizers = [one for one in gc.get_objects() if issubclass(type(one), torch.optim.Optimizer)]
        with _before_set_aside():
            for number, result in enumerate(stage.steps(_STEPS * _LOOKS), 1):
                del result
                if number % _STEPS == 0:
                    looks.append(_look(optimizers))
        grown = _grows([one.tensors for one in looks])
        return looks, _holder((looks[-1].shapes - looks[0].shapes).most_common(1)) if grown else ""

    looks, held = on_stage(subject, scene, max_steps=_STEPS * _LOOKS)
    after = ", ".join(str(_STEPS * number) for number in range(1, _LOOKS + 1))
    tensors, nodes = [one.tensors for one in looks], [one.nodes for one in looks]
    if _grows(tensors):
        raise ConformanceError(
            expected="as many live tensors after every step",
            got=f"{', '.join(map(str, tensors))} after {after} steps{held}",
            fix="Keep no tensor of a step: append loss.item() or nothing at all, and let StepResult report it.",
        )
    if _grows(nodes):
        raise ConformanceError(
            expected="a graph that ends with its step",
            got=f"{', '.join(map(str, nodes))} nodes of autograd's graph alive after {after} steps",
            fix="Add up loss.detach() in place of loss: a sum of losses keeps the graph of every step.",
        )


@contextmanager
def _before_set_aside() -> Iterator[None]:
    """Have the collector look at new objects alone: with torch imported there are hundreds of thousands of old ones.

    What the process has set aside before stays so: there is no telling it apart from the rest.
    """
    stays_so = gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not stays_so:
            gc.unfreeze()


def _grows(counts: list[int]) -> bool:
    return all(later > earlier for earlier, later in pairwise(counts))


def _look(optimizers: Sequence[Any]) -> _Look:
    """Count what is alive, but for the states of optimizers, which some fill up to a history of steps."""
    kept = {id(one) for optimizer in optimizers for one in tensors_in(dict(optimizer.state))}
    tensors = [one for one in live_tensors() if id(one) not in kept]
    shapes = Counter(f"{one.dtype} of shape {tuple(one.shape)}" for one in tensors)
    return _Look(len(tensors), _nodes(tensors), shapes)


def _nodes(tensors: Any) -> int:
    """The nodes of the graphs behind tensors."""
    waiting = [one.grad_fn for one in tensors if one.grad_fn is not None]
    seen: set[Any] = set(waiting)
    while waiting and len(seen) < _MOST_NODES:
        for node, _ in waiting.pop().next_functions:
            if node is not None and node not in seen:
                seen.add(node)
                waiting.append(node)
    return len(seen)


def _holder(grown: list[tuple[str, int]]) -> str:
    """Describe the tensors that have become more, and the holder of one of them, as far as the collector knows."""
    if not grown:
        return ""
    text = f"; most of what came is {grown[0][0]}"
    tensors = [one for one in live_tensors() if f"{one.dtype} of shape {tuple(one.shape)}" == grown[0][0]]
    for tensor in reversed(tensors):
        for container in gc.get_referrers(tensor):
            if container is tensors or not isinstance(container, (list, dict)):
                continue
            for owner in gc.get_referrers(container):
                members = owner if isinstance(owner, dict) else getattr(owner, "__dict__", {})
                name = next((key for key, value in members.items() if value is container), None)
                if isinstance(name, str) and not isinstance(owner, type(gc)) and name != "tensors":
                    return f"{text}, held by the {type(container).__name__} {name!r}"
    return text
