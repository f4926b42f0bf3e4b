"""Restarts: a run that failed begins its next attempt from the newest checkpoint, as often as its job allows."""

from collections.abc import Callable
from typing import Final

import attrs

from hostcore.runs.result import UNREPAIRABLE, RunResult
from hostcore.supervisor.attempt.lease_guard import RunTakenOver
from hostcore.supervisor.opening import Opening, open_run
from hostcore.supervisor.plan import RunPlan, load_here
from hostcore_hookspecs.errors import HostcoreError

#: Before the first restart; doubled for each after it. What has failed, a device or a file server, may need a moment.
FIRST_WAIT_SECONDS: Final = 1.0
LONGEST_WAIT_SECONDS: Final = 60.0


@attrs.frozen(kw_only=True)
class Restart:
    """Why an attempt is one more of the same run."""

    #: The failed attempt before it.
    after: RunResult
    #: How long it waits before it starts its worker. It holds the run meanwhile, and can be cancelled.
    wait_seconds: float

    @property
    def message(self) -> str:
        """One line."""
        error = self.after.error
        why = f" ({error.type}: {error.message})" if error else ""
        return f"attempt {self.after.attempt} failed{why}; started again"


#: Runs one attempt; with the reason, if it is a restart.
Start = Callable[[RunPlan, Opening, Restart | None], RunResult]


def run_attempts(plan: RunPlan, opening: Opening, start: Start, *, may_restart: bool = True) -> RunResult:
    """Run an opened attempt, and new ones after failures, up to the job's ``max_restarts``.

    A run that was asked to stop is not started again, even if it failed while it stopped.

    :param may_restart: Not where an engine has started the ranks: it starts them again, all of them, or does not.
    :return: The result of the last attempt.
    :raises RunTakenOver: When another process has started the run meanwhile.
    """
    most = plan.spec.max_restarts if may_restart else 0
    result = start(attrs.evolve(plan, restarts_left=most), opening, None)
    for number in range(most):
        if result.status != "failed" or result.requested_by is not None or _is_final(result):
            break
        if not plan.directory.record.exists():
            break  # it was removed while the run was going on: there is nothing to go on from
        wait_seconds = min(FIRST_WAIT_SECONDS * 2**number, LONGEST_WAIT_SECONDS)
        try:
            plan = attrs.evolve(_renewed(plan), restarts_left=most - number - 1)
            opened = open_run(plan)
            assert isinstance(opened, Opening), "a run that failed is not finished"
            result = start(plan, opened, Restart(after=result, wait_seconds=wait_seconds))
        except RunTakenOver:
            raise
        except HostcoreError as error:  # what was wrong first is how the run has ended
            return _not_restarted(result, error)
    return result


def _is_final(result: RunResult) -> bool:
    """Return whether a run has failed for what training again does not change."""
    return result.error is not None and result.error.type in UNREPAIRABLE


def _not_restarted(result: RunResult, error: HostcoreError) -> RunResult:
    assert result.error is not None
    hint = f"it could not be started again: {error}"
    return attrs.evolve(result, error=attrs.evolve(result.error, hint=hint))


def _renewed(plan: RunPlan) -> RunPlan:
    """The plan of the next attempt: it goes on with the run, and has reporters and uploaders of its own."""
    spec = attrs.evolve(plan.spec, resume_from_checkpoint="auto")
    here = load_here(plan.selected, job_dir=spec.job_dir, run_dir=plan.directory.path, import_paths=spec.import_paths)
    return attrs.evolve(
        plan, spec=spec, reporters=here["reporter"], uploaders=here["uploader"], resolvers=here["resolver"]
    )
