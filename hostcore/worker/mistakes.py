"""Mistakes in a trainer or a job that fail nothing: each of them is a warning."""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs
import torch
from torch.optim import Optimizer

from hostcore.checkpoints.encoding import Encoded, bits_of, unstorable
from hostcore.plugins.load import Component
from hostcore.worker.modes import members_in, modules_in
from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.errors import HostcoreError

#: A trainer may accumulate gradients over this many steps by itself, in a run that ends or in a resumed one.
_STEPS_OF_A_RUN: Final = 10
_STEPS: Final = 100
#: Tensors of up to so many elements are compared as they are, larger ones by the sums of their parts.
_SMALL: Final = 256
_PART: Final = 1 << 22
#: Where every context keeps them.
_HYPERPARAMS: Final[Any] = vars(StepContext)["hyperparams"]


class ModelHandles(Mapping[str, str]):
    """``ctx.model_handles``: knows which were read."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = dict(paths)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> str:
        path = self._paths[name]
        self.read.add(name)
        return path

    def __contains__(self, name: object) -> bool:
        return name in self._paths

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def warnings(self, trainer: str) -> list[HostcoreError]:
        """The warning for weights that ``setup`` and ``configure`` did not read."""
        if "weights" not in self._paths or "weights" in self.read:
            return []
        return [
            HostcoreError(
                f'{trainer} has not read ctx.model_handles["weights"]: the run does not begin from the job\'s weights',
                code="weights.unread",
                hint='load them in configure, or remove "weights" (--weights)',
            )
        ]


class WatchedContext(StepContext):
    """A context that knows whether ``hyperparams`` were read, which stay a plain dictionary."""

    __slots__ = ("has_read_hyperparams",)

    @property
    def hyperparams(self) -> Any:
        """The job's mapping."""
        self.has_read_hyperparams = True
        return _HYPERPARAMS.__get__(self)

    @hyperparams.setter
    def hyperparams(self, value: Any) -> None:
        self.has_read_hyperparams = False
        _HYPERPARAMS.__set__(self, value)


def context_class(trainer: Component) -> type[StepContext]:
    """Return the class of the context: one that watches, where nothing has checked the job's ``hyperparams``."""
    return WatchedContext if isinstance(trainer.settings, dict) and trainer.settings else StepContext


@attrs.define(kw_only=True, eq=False)
class Mistakes:
    """Find mistakes in a trainer after the first step of an attempt, and where a checkpoint reads its state anyway."""

    trainer: Component
    ctx: StepContext
    #: What the trainer's ``configure`` returned.
    state: Any
    warn: Callable[[HostcoreError], None]
    #: The step of the first look, and the contents of the parameters then.
    _first: tuple[int, list[torch.Tensor]] | None = None
    _is_first: bool = True
    #: Whether it is known that parameters change, and that the optimizers' states are in the checkpoint.
    _changes: bool = False
    _holds: bool = False

    def look(self, encoded: Encoded, *, final: bool = False) -> None:
        """Warn of mistakes in the present state, of each once.

        :param encoded: What ``state_dict`` has returned.
        :param final: Whether the run ends here.
        """
        if self.ctx.rank > 0:
            return
        if self._is_first:
            self._is_first = False
            self._check_hyperparams()
        given = [] if self.ctx.optimizer is None else [self.ctx.optimizer]
        optimizers = list({id(one): one for one in (*given, *members_in(self.state, Optimizer))}.values())
        if not self._holds:
            self._check_optimizers(optimizers, encoded)
        if not self._changes:
            self._check_parameters(optimizers, final=final)

    def forget(self) -> None:
        """Note that the parameters have been replaced by those of an earlier step."""
        self._first = None

    def _check_hyperparams(self) -> None:
        if not getattr(self.ctx, "has_read_hyperparams", True) and not _mentions(self.trainer.instance, "hyperparams"):
            self._warn(
                "hyperparams.unread",
                "does not read ctx.hyperparams: those of the job change nothing",
                "read them in configure, or better give the trainer a class Hyperparams, by which they are checked; or "
                'remove "hyperparams" from the job',
            )

    def _check_optimizers(self, optimizers: Iterable[Any], encoded: Encoded) -> None:
        if "load_checkpoint" in self.trainer.hook_names:
            return  # may load it from files of its own
        for optimizer in optimizers:
            state = _state_of(optimizer)
            if not state:
                continue  # nothing to lose, or not yet
            self._holds = True
            if not _has(encoded, state):
                self._warn(
                    "optimizer.not_saved",
                    f"trains by {type(optimizer).__name__}, whose state is not in what state_dict returns: a resumed "
                    "run goes on with a new one",
                    "return optimizer.state_dict() in state_dict, too, and load it in load_state_dict; without "
                    "these methods, return it from configure",
                )
                return

    def _check_parameters(self, optimizers: Iterable[Any], *, final: bool) -> None:
        trained = _trained(self.state, optimizers)
        if not any(True for _ in optimizers) and all(one.grad is None for one in trained):
            return  # as far as the host can see, they are not meant to change
        step, own = self.ctx.run_state.step, [one for one in map(_local, trained) if not unstorable(one)]
        if self._first is None:
            self._first = step, [*map(_content, own)]
            return
        first, before = self._first
        pairs = zip(before, map(_content, own), strict=False)
        self._changes = len(before) != len(own) or not own or any(not torch.equal(*pair) for pair in pairs)
        if self._changes or step - first < (_STEPS_OF_A_RUN if final else _STEPS):
            return
        self._changes = True
        if all(bool(torch.isfinite(one).all()) for one in own):  # else that is what there is to know
            self._warn(
                "parameters.unchanged",
                "trains, and no parameter of its model changes",
                "call optimizer.step() in train_step, after loss.backward(), with an optimizer that configure has made "
                "of the parameters of the model that is trained, and a learning rate above 0",
            )

    def _warn(self, code: str, what: str, hint: str) -> None:
        self.warn(HostcoreError(f"{self.trainer.ref.provenance} {what}", code=code, hint=hint))


def _mentions(trainer: object, name: str) -> bool:
    """Return whether the module of a trainer's class has a name, or may have: other methods may read what it names."""
    for cls in type(trainer).__mro__[:-1]:
        try:
            source = inspect.getsource(sys.modules[cls.__module__])
        except (OSError, TypeError, KeyError):
            return True
        if name in source:
            return True
    return False


def _state_of(optimizer: Any) -> dict[str, torch.Tensor]:
    """Return a tensor of each name that an optimizer keeps about its parameters; empty for one without a state."""
    state = getattr(optimizer, "state", None)
    if not isinstance(state, Mapping):
        return {}
    return {
        str(name): value
        for values in state.values()
        if isinstance(values, Mapping)
        for name, value in values.items()
        if isinstance(value, torch.Tensor) and name != "step"
    }


def _has(encoded: Encoded, state: Mapping[str, torch.Tensor]) -> bool:
    """Return whether a trainer's state may have that of an optimizer: by its names, in bytes, or a tensor of it."""
    marks = [b"param_groups", b'"base64"', *(name.encode() for name in state)]
    if any(mark in encoded.document for mark in marks):
        return True
    kept = {leaf.source.data_ptr() for leaf in encoded.leaves if isinstance(leaf.source, torch.Tensor)}
    return any(_local(one).data_ptr() in kept for one in state.values())


def _trained(state: Any, optimizers: Iterable[Any]) -> list[torch.Tensor]:
    """Return the parameters that require gradients, of the models in a trainer's state and of optimizers."""
    of_models = (one for module in modules_in(state) for one in module.parameters())
    groups = (group for optimizer in optimizers for group in getattr(optimizer, "param_groups", ()))
    found = (*of_models, *(one for group in groups for one in group["params"]))
    return list({id(one): one for one in found if one.requires_grad}.values())


def _local(tensor: Any) -> torch.Tensor:
    """Return this rank's part of a tensor that is spread over ranks, or the tensor."""
    part: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part.detach()


def _content(tensor: torch.Tensor) -> torch.Tensor:
    """Return what differs when the content of a tensor does, on its device, without waiting for it."""
    bits = bits_of(tensor).flatten()
    if len(bits) <= _SMALL:
        return bits.clone()
    return torch.stack([part.sum(dtype=torch.int64) for part in torch.split(bits, _PART)])
