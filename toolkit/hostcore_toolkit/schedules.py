"""Learning-rate schedules: a warmup, then a curve over the steps of the run."""

import math
from collections.abc import Callable
from typing import Any, Final, Literal, get_args

import torch
from torch.optim.lr_scheduler import LambdaLR

from hostcore_hookspecs import InvalidSettings

ScheduleKind = Literal["constant", "linear", "cosine", "wsd"]
DecayShape = Literal["linear", "cosine", "1-sqrt"]

#: The share of a run in which ``wsd`` decays, unless it is given: MiniCPM found it to be enough.
_WSD_DECAY: Final = 0.1
#: The factor by how much of a decay is done, from 0 to 1.
_SHAPES: Final[dict[str, Callable[[float], float]]] = {
    "linear": lambda done: 1 - done,
    "cosine": lambda done: 0.5 * (1 + math.cos(math.pi * done)),
    "1-sqrt": lambda done: 1 - math.sqrt(done),
}


def schedule(
    optimizer: torch.optim.Optimizer,
    total_steps: int,
    *,
    kind: ScheduleKind = "cosine",
    warmup_steps: int | None = None,
    warmup_fraction: float | None = None,
    warmup_start: float = 0.0,
    min_ratio: float = 0.0,
    decay_steps: int | None = None,
    decay_fraction: float | None = None,
    decay_shape: DecayShape = "linear",
) -> LambdaLR:
    """Make a schedule of the learning rate over the steps of a run, for ``state_dict`` to store beside the optimizer.

    With a group's own learning rate η, W warmup steps, T steps in all, D steps of decay, the least ratio m and the
    start of the warmup a, step t (counted from 0) runs at η·f(t)::

        f(t) = a + (1 - a) · t/W                                  t < W
        f(t) = 1                                                  constant
        f(t) = m + (1 - m) · (1 - (t - W)/(T - W))                linear
        f(t) = m + (1 - m) · ½ (1 + cos(π · (t - W)/(T - W)))     cosine
        f(t) = 1                                                  wsd, t < T - D
        f(t) = m + (1 - m) · s((t - T + D)/D)                     wsd, from there
        f(t) = m                                                  t ≥ T, but for constant

    where s(x) is 1 - x (``linear``), ½ (1 + cos(π·x)) (``cosine``) or 1 - √x (``1-sqrt``). Sources: cosine: Loshchilov
    and Hutter, arXiv:1608.03983, equation 5, without restarts; WSD (warmup, stable, decay): Hu et al. (MiniCPM),
    arXiv:2404.06395, section 4; its ``1-sqrt``: Hägele et al., arXiv:2405.18392, section 3; warmup: Goyal et al.,
    arXiv:1706.02677, section 2.2. With a = 0 the values are those of the schedules of Hugging Face transformers.

    Each value depends on t and T alone. A resumed run is exact, and one that was given a larger ``max_steps`` follows
    the curve of the new T from its first step on, if the optimizer's state is loaded before the schedule's: after
    ``wsd`` has begun to decay, its learning rate rises again.

    :param optimizer: Its groups keep their learning rates' ratios.
    :param total_steps: T: ``ctx.run_state.total_steps``. 0, of a run without an end, does for ``constant`` alone.
    :param warmup_steps: W; instead, ``warmup_fraction`` gives it as a share of T, rounded down. Default: 0.
    :param warmup_start: a, from 0 to 1.
    :param min_ratio: m, from 0 to 1. No effect on ``constant``.
    :param decay_steps: D, of ``wsd``; instead, ``decay_fraction`` gives it as a share of T, rounded down. Default: a
        tenth of T.
    :param decay_shape: s, of ``wsd``.
    :return: Call ``step()`` once after each ``optimizer.step()``.
    :raises InvalidSettings: When an argument makes no sense; the pointer names it, so it is right for a trainer whose
        hyperparameters are called the same.
    """
    _check_choice("kind", kind, get_args(ScheduleKind))
    _check_choice("decay_shape", decay_shape, get_args(DecayShape))
    total = checked_count(total_steps, "total_steps")
    if total == 0 and kind != "constant":
        raise InvalidSettings(
            "/kind", f"the schedule {kind!r} needs to know when the run ends", hint='give max_steps, or take "constant"'
        )
    start, least = _share(warmup_start, "warmup_start"), _share(min_ratio, "min_ratio")
    warmup = _steps("warmup", warmup_steps, warmup_fraction, total, default=0.0)
    decay = _steps("decay", decay_steps, decay_fraction, total, default=_WSD_DECAY) if kind == "wsd" else 0
    if kind != "constant" and warmup + decay > total:
        what = f"{warmup} warmup steps" + (f" and {decay} of decay" if decay else "")
        name = "warmup_fraction" if warmup_fraction is not None else "warmup_steps"
        raise InvalidSettings(f"/{name}", f"{what} do not fit into a run of {total} steps", hint="Give fewer.")
    length = decay if kind == "wsd" else total - warmup
    shape = _SHAPES[decay_shape if kind == "wsd" else "linear" if kind == "constant" else kind]

    def factor(step: int) -> float:
        if step < warmup:
            return start + (1 - start) * step / warmup
        if kind == "constant" or step < total - length:
            return 1.0
        if step >= total:
            return least
        return least + (1 - least) * shape((step - (total - length)) / length)

    return _Schedule(optimizer, factor)


class _Schedule(LambdaLR):
    """A state that is loaded sets the learning rates by the curve of this run, which may be longer than its own."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._last_lr = [
            base * factor(self.last_epoch) for base, factor in zip(self.base_lrs, self.lr_lambdas, strict=True)
        ]
        for group, rate in zip(self.optimizer.param_groups, self._last_lr, strict=True):
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate


def checked_number(value: object, pointer: str, *, below: float = math.inf) -> float:
    """A setting that has to be a number of at least 0.

    :raises InvalidSettings: It is none, or too large.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < below:  # NaN is not, either
        limit = "a finite number of at least 0" if below == math.inf else f"a number from 0 to below {below:g}"
        raise InvalidSettings(pointer, f"{pointer[1:]} must be {limit}, not {value!r}")
    return float(value)


def checked_count(value: object, name: str) -> int:
    """A setting that has to be a whole number of at least 0.

    :raises InvalidSettings: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidSettings(f"/{name}", f"{name} must be a whole number of at least 0, not {value!r}")
    return value


def _steps(name: str, steps: int | None, fraction: float | None, total: int, *, default: float) -> int:
    """Return the steps of a part of the schedule: the number itself, or a share of all."""
    if steps is not None and fraction is not None:
        raise InvalidSettings(f"/{name}_fraction", f"{name}_steps is given as well", hint="Give one of the two.")
    if steps is not None:
        return checked_count(steps, f"{name}_steps")
    share = _share(default if fraction is None else fraction, f"{name}_fraction")
    if share and not total:
        raise InvalidSettings(
            f"/{name}_fraction", "it is a share of a run without an end", hint=f"Give {name}_steps instead."
        )
    return int(share * total)


def _share(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise InvalidSettings(f"/{name}", f"{name} must be a number from 0 to 1, not {value!r}")
    return float(value)


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidSettings(f"/{name}", f"there is no {name} {value!r}", hint=f"known are: {', '.join(known)}")
