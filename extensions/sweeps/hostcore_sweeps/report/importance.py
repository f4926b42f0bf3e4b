"""Importance of parameters: PED-ANOVA over the complete trials, by Optuna.

Watanabe et al., `PED-ANOVA <https://arxiv.org/abs/2304.10255>`__ (IJCAI 2023): how far the values of the best trials
lie from those of all, by parameter.
"""

import math
import warnings
from collections.abc import Mapping
from typing import Final

import attrs

from hostcore_sweeps.spec import ObjectiveSpec
from hostcore_sweeps.status import SweepStatus

#: Below that, chance decides.
FEWEST_TRIALS: Final = 10
#: So many trials, or a tenth of them if these are more, are the best: as the evaluator's documentation advises.
_BEST_TRIALS: Final = 5


@attrs.frozen(kw_only=True)
class ParameterImportance:
    """Importance of parameters for an objective."""

    metric: str
    #: By JSON pointer, the largest first; together 1. Empty if ``why_not`` has a reason.
    shares: Mapping[str, float]
    #: How many trials count as the best, and of how many.
    best: int
    complete: int
    why_not: str | None = None


def importance(status: SweepStatus, objective: ObjectiveSpec) -> ParameterImportance:
    """Estimate the importance of each parameter for an objective from the complete trials."""
    rows = [row for row in status.trials if row.state == "complete"]
    best = max(_BEST_TRIALS, math.ceil(len(rows) / 10))
    about = ParameterImportance(metric=objective.metric, shares={}, best=best, complete=len(rows))
    values = [row.objective[objective.metric] for row in rows]
    if len(rows) < FEWEST_TRIALS:
        return attrs.evolve(about, why_not=f"{FEWEST_TRIALS} complete trials are needed, and there are {len(rows)}.")
    if len(set(values)) == 1:
        return attrs.evolve(about, why_not="All complete trials have the same value.")
    varied = [
        pointer
        for pointer in status.sweep.space
        if len({repr(row.values[pointer]) for row in rows if pointer in row.values}) > 1
    ]
    if len(varied) < 2:
        return attrs.evolve(about, why_not="Only one parameter varies among the complete trials, or none.")
    shares = _shares(status, objective, varied, best / len(rows))
    if not sum(shares.values()):
        return attrs.evolve(about, why_not="The values of the best trials are spread like those of all.")
    return attrs.evolve(about, shares=shares)


def _shares(status: SweepStatus, objective: ObjectiveSpec, varied: list[str], quantile: float) -> dict[str, float]:
    import optuna
    from optuna.exceptions import ExperimentalWarning
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import create_trial

    from hostcore_sweeps.space import to_distributions, to_params

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()  # in memory
    space, sign = status.sweep.space, 1 if objective.mode == "min" else -1  # for the evaluator, less is better
    for row in status.trials:
        value = row.objective.get(objective.metric)
        if row.state == "complete" and value is not None:
            params, distributions = to_params(space, row.values), to_distributions(space, row.values)
            study.add_trial(create_trial(value=sign * value, params=params, distributions=distributions))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        evaluator = PedAnovaImportanceEvaluator(target_quantile=quantile)
    return get_param_importances(study, evaluator=evaluator, params=varied)
