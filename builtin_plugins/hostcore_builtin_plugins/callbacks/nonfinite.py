"""Values of a step, unread, and the search for a value that is not finite."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Final

import attrs

from hostcore_builtin_plugins.callbacks.step_metrics import RECORDED_AS, kept

if TYPE_CHECKING:
    import torch

GRADIENTS: Final = "the largest element of the gradients"


@attrs.frozen(kw_only=True)
class Seen:
    """Values of one step. Tensors are not read before they have to be: that would synchronise a GPU."""

    step: int
    #: Numbers and tensors with one element, by what they are called in messages.
    values: Sequence[tuple[str, Any]]


@attrs.frozen(kw_only=True)
class Finding:
    """Something that is not finite."""

    step: int
    what: str
    value: float

    def __str__(self) -> str:
        return f"{self.what} was {self.value} at step {self.step}"


def first_nonfinite(seen: Sequence[Seen]) -> Finding | None:
    """The first value that is not finite, of the oldest step; None if all are. This is where a GPU is waited for."""
    named = [(one.step, what, value) for one in seen for what, value in one.values]
    for (step, what, _), number in zip(named, numbers_of([value for *_, value in named]), strict=True):
        if not math.isfinite(number):
            return Finding(step=step, what=what, value=number)
    return None


def numbers_of(values: Sequence[Any]) -> list[float]:
    """Read values. Those that lie on one accelerator are read at once: each reading takes a copy, and waits for it."""
    import torch

    numbers: dict[int, float] = {}
    together: defaultdict[Any, list[int]] = defaultdict(list)
    for place, value in enumerate(values):
        if _is_on_accelerator(value):
            together[value.device, value.dtype].append(place)
        else:
            numbers[place] = float(value)
    for places in together.values():
        read = torch.stack([values[place].reshape(()) for place in places]).tolist()
        numbers.update(zip(places, read, strict=True))
    return [numbers[place] for place in range(len(values))]


def _is_on_accelerator(value: Any) -> bool:
    """Return True for a plain tensor of one value: a ``DTensor`` is read on its own."""
    import torch

    return type(value) is torch.Tensor and value.device.type != "cpu"


class WatchedMetrics:
    """Picks the watched ones out of a step's metrics.

    :param names: As they are recorded: ``train/loss``.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._recorded_as = {name: name for name in names}
        self._recorded_as |= {given: name for given, name in RECORDED_AS.items() if name in names}
        #: Those that have not come yet.
        self.missing = list(names)

    def values(self, result: Any) -> Iterator[tuple[str, Any]]:
        """Name and value of those that a step reports; what is no number is left to the host to refuse."""
        metrics = getattr(result, "metrics", None)
        if not isinstance(metrics, Mapping):
            return
        for given, name in self._recorded_as.items():
            number = _number(metrics.get(given))
            if number is None:
                continue
            if name in self.missing:
                self.missing.remove(name)
            yield name, number


def _number(value: Any) -> Any:
    """A number, or a tensor with one element; None if it is something else."""
    if hasattr(value, "numel"):
        return kept(value) if value.numel() == 1 else None
    if getattr(value, "size", None) == 1:  # of NumPy
        return value.item()
    return value if isinstance(value, Real) else None


def largest_element(parameters: "Sequence[torch.Tensor]") -> "torch.Tensor | None":
    """The largest magnitude in the gradients, NaN if any is; unread. None if there are none.

    Unlike a norm of another order it does not overflow. Of a sharded model it is that of this rank's shards. On a CPU,
    where the infinite norm is computed element by element, ``aminmax`` finds it in a tenth of the time.
    """
    import torch

    gradients = [_own_elements(one.grad) for one in parameters if one.grad is not None]
    gradients = [one for one in gradients if one.numel()]
    if not gradients:
        return None
    device = gradients[0].device
    with torch.no_grad():
        if all(one.device.type == "cpu" and not one.is_complex() for one in gradients):
            return torch.stack([end for one in gradients for end in torch.aminmax(one)]).abs_().max()
        largest = torch._foreach_norm(gradients, math.inf)
        return torch.stack([one.to(device) for one in largest]).max()


def _own_elements(gradient: "torch.Tensor") -> "torch.Tensor":
    """The elements that this rank has: its shard of a sharded gradient, the stored ones of a sparse gradient."""
    if hasattr(gradient, "to_local"):
        own: torch.Tensor = gradient.to_local()
        return own
    return gradient.coalesce().values() if gradient.is_sparse else gradient
