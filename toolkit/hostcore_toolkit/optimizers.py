"""AdamW with warmup and cosine decay: the default of most fine-tuning."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import torch
from torch.optim.lr_scheduler import LRScheduler

from hostcore_hookspecs import InvalidSettings
from hostcore_toolkit.schedules import checked_count, checked_number, schedule

#: The share of the learning rate that the warmup starts at.
WARMUP_START: Final = 0.1


@attrs.frozen(eq=False)
class OptimizerBundle:
    """An optimizer and its scheduler. Call ``scheduler.step()`` once after each ``optimizer.step()``."""

    optimizer: torch.optim.Optimizer
    #: None: the learning rate is constant.
    scheduler: LRScheduler | None = None


def build_default_adamw_bundle(
    model_or_params: "torch.nn.Module | Iterable[torch.Tensor] | Iterable[dict[str, Any]]",
    *,
    hyperparams: object = None,
    max_steps: int | None = None,
) -> OptimizerBundle:
    """Build AdamW, and with ``max_steps`` a scheduler: linear warmup, then cosine decay to zero.

    With learning rate η, W warmup steps and T steps in all, step t (counted from 0) runs at::

        η · (0.1 + 0.9 · t/W)                        t < W
        η · ½ (1 + cos(π · (t - W) / (T - W)))       W ≤ t < T
        0                                            t ≥ T

    AdamW: Loshchilov and Hutter, arXiv:1711.05101; cosine decay: their arXiv:1608.03983, equation 5, without restarts;
    warmup: Goyal et al., arXiv:1706.02677, section 2.2. Up to rounding these are torch's ``LinearLR`` and
    ``CosineAnnealingLR``, but each value depends on t alone: a resumed run is exact, and one that was given a larger
    ``max_steps`` follows the new curve.

    :param model_or_params: A module, of which the parameters that require gradients are taken, or what
        ``torch.optim.AdamW`` takes: tensors, or groups of them with settings of their own.
    :param hyperparams: A mapping, or an attrs instance such as ``ctx.hyperparams``. Read are ``learning_rate`` (else
        ``lr``; 1e-4), ``weight_decay`` (0), ``betas`` (0.9, 0.999), ``warmup_steps`` (0), ``max_steps`` (0). What is
        missing or None has its default.
    :param max_steps: T, usually ``ctx.job.max_steps``; None: that of the hyperparams. 0: no scheduler.
    :raises InvalidSettings: When a hyperparameter makes no sense; the pointer names it.
    :raises TypeError: When the model or the hyperparams are of another kind.
    :raises ValueError: When there is nothing to train.
    """
    settings = _Settings.read(hyperparams, max_steps)
    optimizer = torch.optim.AdamW(
        _trainable(model_or_params),
        lr=settings.learning_rate,
        betas=settings.betas,
        weight_decay=settings.weight_decay,
    )
    if settings.max_steps == 0:
        return OptimizerBundle(optimizer)
    curve = schedule(optimizer, settings.max_steps, warmup_steps=settings.warmup_steps, warmup_start=WARMUP_START)
    return OptimizerBundle(optimizer, curve)


def _trainable(model_or_params: object) -> list[Any]:
    if isinstance(model_or_params, torch.nn.Module):
        params: list[Any] = [p for p in model_or_params.parameters() if p.requires_grad]
        if not params:
            raise ValueError(
                f"{type(model_or_params).__qualname__} has no parameter that requires a gradient: nothing to train"
            )
        return params
    if isinstance(model_or_params, (torch.Tensor, str, Mapping)) or not isinstance(model_or_params, Iterable):
        raise TypeError(
            f"expected a torch.nn.Module or a list of its parameters, got {type(model_or_params).__qualname__}"
        )
    params = list(model_or_params)
    if not params:
        raise ValueError("the list of parameters is empty: nothing to train")
    return params


@attrs.frozen(kw_only=True)
class _Settings:
    learning_rate: float
    weight_decay: float
    betas: tuple[float, float]
    warmup_steps: int
    max_steps: int

    @classmethod
    def read(cls, hyperparams: object, max_steps: int | None) -> "_Settings":
        given = _Given(hyperparams)
        name = "learning_rate" if given.get("learning_rate") is not None else "lr"
        found = cls(
            learning_rate=given.number(name, 1e-4),
            weight_decay=given.number("weight_decay", 0.0),
            betas=given.betas(),
            warmup_steps=given.count("warmup_steps"),
            max_steps=given.count("max_steps") if max_steps is None else checked_count(max_steps, "max_steps"),
        )
        if found.warmup_steps and found.warmup_steps >= found.max_steps:
            raise InvalidSettings(
                "/warmup_steps",
                f"{found.warmup_steps} warmup steps do not fit into a run of {found.max_steps} steps"
                if found.max_steps
                else "warmup needs max_steps, to know when the learning rate reaches zero",
                hint="Give fewer warmup_steps or more max_steps.",
            )
        return found


class _Given:
    """The hyperparameters as given, by name."""

    def __init__(self, hyperparams: object) -> None:
        if hyperparams is None:
            hyperparams = {}
        if not isinstance(hyperparams, Mapping) and not attrs.has(type(hyperparams)):
            raise TypeError(f"hyperparams is a mapping or an attrs instance, not {type(hyperparams).__qualname__}")
        self._source = hyperparams

    def get(self, name: str) -> object:
        if isinstance(self._source, Mapping):
            return self._source.get(name)
        return getattr(self._source, name, None)

    def number(self, name: str, default: float) -> float:
        value = self.get(name)
        return default if value is None else checked_number(value, f"/{name}")

    def count(self, name: str) -> int:
        value = self.get(name)
        return 0 if value is None else checked_count(value, name)

    def betas(self) -> tuple[float, float]:
        value = self.get("betas")
        if value is None:
            return (0.9, 0.999)
        if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
            raise InvalidSettings("/betas", f"betas must be two numbers, such as [0.9, 0.999], not {value!r}")
        first, second = (checked_number(beta, f"/betas/{index}", below=1) for index, beta in enumerate(value))
        return first, second
