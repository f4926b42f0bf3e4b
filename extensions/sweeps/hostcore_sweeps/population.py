"""Population based training (Jaderberg et al., 2017, arXiv:1711.09846) over runs that begin from checkpoints of others.

Trial *n* is member *n mod population* in generation *n div population*. It trains for one interval, from the last
checkpoint of a trial of the generation before: its own predecessor or, if that was in the worst quarter, one of the
best quarter (*exploit*), with other values (*explore*). A number becomes 0.8 or 1.2 times itself, a choice the one
beside it; one in four is sampled anew.

A generation begins once the one before has ended: so all of it follows from the seed, numbers and values, as everything
that a sweep decides.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from hostcore_sweeps.records import TrialEnded
from hostcore_sweeps.space import Parameter, Values
from hostcore_sweeps.spec import ObjectiveSpec

_FACTORS: Final = (0.8, 1.2)
_ANEW: Final = 0.25
#: The share of a generation that copies, and that is copied.
_QUANTILE: Final = 4


@attrs.frozen(kw_only=True)
class Descent:
    """What a trial begins with."""

    #: The trial whose last checkpoint it begins from.
    parent: int
    #: Whether that is another member's, whose values are explored around; its own are kept.
    is_copy: bool


def descent(
    number: int, population: int, before: Sequence[TrialEnded], objective: ObjectiveSpec, rng: random.Random
) -> Descent | None:
    """What a trial begins with; None when no trial of the generation before is complete.

    :param before: How the trials of the generation before have ended, by member.
    """
    sign = 1 if objective.mode == "min" else -1
    ranked = sorted(
        (ended for ended in before if ended.state == "complete"),
        key=lambda ended: (sign * ended.values[objective.metric], ended.number),
    )
    if not ranked:
        return None
    own = before[number % population]
    share = max(1, len(ranked) // _QUANTILE)
    is_bad = own.state != "complete" or (len(ranked) > share and own in ranked[-share:])
    if is_bad:
        return Descent(parent=rng.choice(ranked[:share]).number, is_copy=True)
    return Descent(parent=own.number, is_copy=False)


def explored(space: Mapping[str, Parameter], values: Values, fresh: Values, rng: random.Random) -> dict[str, Any]:
    """Values near those of another trial.

    :param space: In the order of :func:`~hostcore_sweeps.space.ordered`.
    :param fresh: Values that were sampled anew.
    """
    found: dict[str, Any] = {}
    for pointer, parameter in space.items():
        if not parameter.is_active(found):
            continue
        is_anew = rng.random() < _ANEW
        if pointer in values and not (is_anew and pointer in fresh):
            found[pointer] = _near(parameter, values[pointer], rng)
        else:
            found[pointer] = fresh.get(pointer, parameter.first)
    return found


def _near(parameter: Parameter, value: Any, rng: random.Random) -> Any:
    if parameter.choice is not None:
        at = [parameter.to_optuna(choice) for choice in parameter.choice].index(parameter.to_optuna(value))
        return parameter.choice[min(max(at + rng.choice((-1, 1)), 0), len(parameter.choice) - 1)]
    return parameter.nearest(value * rng.choice(_FACTORS))
