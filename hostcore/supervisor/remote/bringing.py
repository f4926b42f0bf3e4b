"""Needs of a run, brought here before it is opened, so that a failure leaves nothing.

::

    its mirror ▸ run directory;  the checkpoint it begins from, its inputs and its weights ▸ cache
"""

from collections.abc import Callable

import attrs

from hostcore.runs.result import RunResult
from hostcore.supervisor.opening import examine_run
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.remote.adopting import adopt_from_mirror
from hostcore.supervisor.remote.checkpoints import fetch_parent
from hostcore.supervisor.remote.inputs import examine_inputs, fetch_inputs
from hostcore.supervisor.remote.mirror import require_places

Tell = Callable[[str], object]


def bring_here(
    plan: RunPlan, tell: Tell, *, launched: bool = False, submits: bool = False
) -> tuple[RunPlan, RunResult | None]:
    """Bring what a run needs to this machine. To be called before the run is opened.

    :param tell: Gets a line about what people should know.
    :param launched: See :func:`hostcore.supervisor.opening.open_run`.
    :param submits: Whether another process runs it, and adopts it from its mirror.
    :return: The plan, which knows where everything is; and the result of the run, if it is finished already.
    :raises HostcoreError: When the run may not be opened, or something cannot be brought here. No attempt was begun.
    """
    require_places(plan.spec)
    if not submits:
        adopt_from_mirror(plan, tell, launched=launched)
    plan = attrs.evolve(plan, fetched_parent=fetch_parent(plan, tell))
    finished = examine_run(plan, launched=launched, elsewhere=submits, tell=tell)
    if finished is not None:
        return plan, finished  # its inputs are not needed
    return attrs.evolve(plan, inputs=fetch_inputs(plan.spec, plan.resolvers, tell)), None


def examine_surroundings(plan: RunPlan, tell: Tell) -> RunPlan:
    """See that what a run needs could be brought here. Of all that, only the checkpoint it begins from is.

    :param tell: Gets a line about what people should know.
    :return: The plan, which knows where that checkpoint is.
    :raises HostcoreError: What is wrong with the inputs, or with the checkpoint.
    """
    require_places(plan.spec)
    plan = attrs.evolve(plan, fetched_parent=fetch_parent(plan, tell))
    examine_inputs(plan.spec, plan.resolvers)
    return plan
