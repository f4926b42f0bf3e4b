"""``hostcore run`` and ``hostcore resume`` with ``--server``: a service has the run, and this terminal shows it."""

from collections.abc import Callable
from typing import Final

from hostcore.cli.output import echo, print_json
from hostcore.cli.report import print_result, print_submission
from hostcore.cli.run_client import ServiceClient, ServiceSubmission, SubmittedRun
from hostcore.cli.stopping import leave, stoppable_at_once
from hostcore.cli.watching import Screen
from hostcore.runs.result import RunResult
from hostcore.supervisor.interrupts import Interrupts

_UNKNOWN: Final = "before the service had answered; `hostcore list --server` shows whether it has the job"
_FINISHED_BEFORE: Final = "finished before: nothing to do"


def run_served(client: ServiceClient, submit: Callable[[], ServiceSubmission], *, detach: bool, as_json: bool) -> None:
    """Have a service run a job, watch it unless it is detached, and report how it ended.

    :param submit: Asks the service.
    :raises SystemExit: With the exit code of the run that was watched.
    """
    with Interrupts() as interrupts:
        with stoppable_at_once(interrupts, as_json=as_json, so_that=_UNKNOWN):
            submission = submit()
        run = submission.run
        if submission.finished:
            _report(submission.finished, run, as_json=as_json, note=_FINISHED_BEFORE)
            return
        if detach:
            _report_submission(run, client.url, as_json=as_json)
            return
        if submission.after_attempt is None:
            echo(f"{run.run_id}  submitted to {client.url}", err=True)
        with Screen(submission.spec, run_id=run.run_id, after_attempt=submission.after_attempt or 0) as screen:
            result = run.watch(interrupts, screen.show)
        _report(result, run, as_json=as_json)
        leave(interrupts, result.exit_code)


def _report(result: RunResult, run: SubmittedRun, *, as_json: bool, note: str = "") -> None:
    print_result(result, lambda: run.places(result), as_json=as_json, note=note)


def _report_submission(run: SubmittedRun, url: str, *, as_json: bool) -> None:
    if as_json:  # what is known of a run of this machine, and where it is instead
        print_json({"run_id": run.run_id, "status": "submitted", "directory": None, "launch": None, "server": url})
    else:
        print_submission(run.run_id, run.words, run.place)
