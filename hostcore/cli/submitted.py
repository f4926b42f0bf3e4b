"""A run that was submitted, to a launcher or to a service: what commands do with it from then on."""

from collections.abc import Callable
from typing import Final, NoReturn

from hostcore.cli.output import print_json
from hostcore.cli.report import print_result, print_submission
from hostcore.cli.run_client import SubmittedRun
from hostcore.cli.stopping import leave, stoppable_at_once
from hostcore.runs.result import SUCCEEDED
from hostcore.supervisor.interrupts import Interrupts

FINISHED_BEFORE: Final = "finished before: nothing to do"
_UNKNOWN: Final = "before the service had answered; `hostcore list --server` shows whether it has the job"


def finish_submitted(run: SubmittedRun, interrupts: Interrupts, *, detach: bool, as_json: bool) -> int:
    """Watch a run to its end unless it is detached, and report it.

    :param interrupts: Entered before it was submitted.
    :return: The exit code.
    :raises SystemExit: When a signal ends the watching.
    """
    finished = run.finished
    if finished:
        print_result(finished, lambda: run.places(finished), as_json=as_json, note=FINISHED_BEFORE)
        return SUCCEEDED
    if detach:
        if as_json:
            print_json(run.submission())
        else:
            print_submission(run.run_id, run.words, run.place)
        return SUCCEEDED
    result = run.watch(interrupts)
    print_result(result, lambda: run.places(result), as_json=as_json)
    return result.exit_code


def run_at_service(submit: Callable[[], SubmittedRun], *, detach: bool, as_json: bool) -> NoReturn:
    """Submit a run to a service, and see :func:`finish_submitted`.

    :param submit: Asks the service.
    """
    with Interrupts() as interrupts:
        with stoppable_at_once(interrupts, as_json=as_json, so_that=_UNKNOWN):
            run = submit()
        leave(interrupts, finish_submitted(run, interrupts, detach=detach, as_json=as_json))
