"""State of a trainer, also outside its state_dict: compared when a resumed run departs, to name the cause."""

import gc
import hashlib
import importlib
import json
import operator
import os
import random
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hostcore_conformance.checks.trainer.attempts import attempt, exact_job
from hostcore_conformance.checks.trainer.stage import members
from hostcore_conformance.differences import parts, shown
from hostcore_conformance.subject import Subject
from hostcore_hookspecs import hookimpl

CALLBACK: Final = "hostcore_conformance.checks.trainer.inventory:TrainerInventory"
#: Where the inventory is written, and before which step it is taken.
_VARIABLE: Final = "HOSTCORE_CONFORMANCE_INVENTORY"
_DEEPEST: Final = 6
_OWN_STATE: Final = ".state_dict()"
_MOST_NAMED: Final = 4


class TrainerInventory:
    """A callback that writes down what the trainer carries, before one step."""

    def __init__(self) -> None:
        self._file, _, step = os.environ.get(_VARIABLE, "").rpartition(":")
        self._step = int(step or 0)

    @hookimpl(wrapper=True)
    def train_step(self, state: Any, ctx: Any) -> Generator[None, Any, Any]:
        """See what there is before the first step after the one that was asked for."""
        if self._file and ctx.run_state.step == self._step:
            Path(self._file).write_text(json.dumps(dict(_take(state, _trainer_class()))))
        return (yield)


def _trainer_class() -> Any:
    module, _, name = os.environ[f"{_VARIABLE}_CLASS"].partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _take(state: Any, trainer: Any) -> Iterator[tuple[str, tuple[str, str]]]:
    yield from _walk("state", state, 0, {})
    instance = next((one for one in gc.get_objects() if type(one) is trainer), None)
    if instance is not None:
        yield from _walk("self", instance, 0, {id(state): state})


def _walk(path: str, value: Any, depth: int, seen: dict[int, Any]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Digests of what a value consists of, by path.

    :param seen: What was looked into, by id. It is held here, for the id of something freed is soon that of another.
    """
    if id(value) in seen or depth > _DEEPEST:
        return
    inner = list(_parts(path, value))
    if not inner:
        digest = _digest(value)
        if digest is not None:
            yield path, digest
        return
    seen[id(value)] = value
    for place, part in inner:
        yield from _walk(place, part, depth + 1, seen)


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a value, by path; nothing for a leaf."""
    if isinstance(value, type) or callable(getattr(value, "__code__", None)) or hasattr(value, "dtype"):
        return
    if _has_state_dict(value):
        yield f"{path}{_OWN_STATE}", dict(_leaves(value.state_dict()))
    elif _generator_state(value) is None:
        yield from members(path, value)


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in a tree of mappings, lists and tuples that is none of these, by its path; empty ones too."""
    if not isinstance(tree, Mapping | list | tuple) or not tree:
        yield path, tree
        return
    for key, value in parts(tree).items():
        yield from _leaves(value, f"{path}.{key}" if path else str(key))


def _has_state_dict(value: Any) -> bool:
    """Return whether a value is an object of torch with a state_dict."""
    import torch

    return isinstance(value, torch.nn.Module | torch.optim.Optimizer | torch.optim.lr_scheduler.LRScheduler)


def _generator_state(value: Any) -> Any:
    """The state of a random generator; None if it is none."""
    if isinstance(value, random.Random):
        return value.getstate()
    if hasattr(value, "bit_generator"):
        return value.bit_generator.state
    if type(value).__module__ == "numpy.random.mtrand":
        return value.get_state()
    if type(value).__name__ == "Generator" and hasattr(value, "get_state") and hasattr(value, "manual_seed"):
        return value.get_state().tolist()
    return None


def _digest(value: Any) -> tuple[str, str] | None:
    """Return a leaf in a few words, and a hash that distinguishes similar ones; None if it cannot be compared."""
    generator = _generator_state(value)
    if generator is not None:
        return "a generator", _hash(repr(generator).encode())
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        return shown(value), _hash(value.detach().cpu().contiguous().float().numpy().tobytes())
    if hasattr(value, "tobytes"):
        return shown(value), _hash(value.tobytes())
    if hasattr(value, "__next__") and hasattr(value, "__length_hint__"):
        return f"an iterator with {operator.length_hint(value)} items left", ""
    return (shown(value), "") if isinstance(value, int | float | str | bytes | bool | None) else None


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:8]


def what_differs(subject: Subject, step: int) -> str:
    """Describe the differences between a trainer after a resume and without it; empty if none was found.

    :param step: The step that the run is resumed from.
    """
    found = []
    for faults in ([], [f"sigterm@step={step}"]):
        job, runs = exact_job(subject, faults=faults), subject.folder()
        job["callbacks"] = [*job["callbacks"], CALLBACK]
        file = runs / "inventory.json"
        environment = {_VARIABLE: f"{file}:{step}", f"{_VARIABLE}_CLASS": _named(subject.owner)}
        for _ in range(len(faults) + 1):
            attempt(subject, job, runs=runs, environment=environment)
        if not file.exists():
            return ""
        found.append(json.loads(file.read_text()))
    return _in_words(*found)


def _named(owner: type) -> str:
    return f"{owner.__module__}:{owner.__qualname__}"


def _in_words(one: Mapping[str, Sequence[str]], other: Mapping[str, Sequence[str]]) -> str:
    """The things that hold other values, each with the first of these."""
    held: dict[str, list[str]] = {}
    for path in {**one, **other}:
        if one.get(path) != other.get(path):
            thing, value = _split(path)
            before, after = (found.get(path, ("nothing", ""))[0] for found in (one, other))
            after = "another" if before == after else after
            held.setdefault(thing, []).append(f"{value}{before} without the stop, {after} after it")
    named = [
        f"{thing} ({values[0]}{f'; and {len(values) - 1} more values' if len(values) > 1 else ''})"
        for thing, values in list(held.items())[:_MOST_NAMED]
    ]
    return ", ".join(named) + (f" and {len(held) - _MOST_NAMED} more" if len(held) > _MOST_NAMED else "")


def _split(path: str) -> tuple[str, str]:
    """Split a path into the holder of a value and the value's name: ``state.optimizer`` and ``param_groups.0.lr: ``."""
    thing, inside, key = path.partition(f"{_OWN_STATE}['")
    if not inside:
        thing, inside, key = path.partition("['")
    return thing, f"{key.removesuffix(chr(39) + ']')}: " if inside else ""
