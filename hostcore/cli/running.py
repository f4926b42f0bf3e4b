"""Running a plan: here, by the attempts of a supervisor, or by the job's launcher."""

import sys
from contextlib import suppress
from functools import partial

import attrs
import click

from hostcore.cli.event_options import EventOptions
from hostcore.cli.output import echo, plugins_print_aside, tell_aside, warn
from hostcore.cli.report import report_result, shown_path
from hostcore.cli.stopping import stoppable_at_once
from hostcore.cli.submitted import FINISHED_BEFORE, finish_submitted
from hostcore.errors import Errors, all_errors
from hostcore.job.names import is_builtin
from hostcore.runs.directory import RunDirectory
from hostcore.runs.launch import awaited_launch
from hostcore.runs.result import SUCCEEDED, RunResult
from hostcore.supervisor.attempt.restarting import Restart, Start, run_attempts
from hostcore.supervisor.attempt.serving import never_told
from hostcore.supervisor.attempt.supervise import supervise
from hostcore.supervisor.authorizing import authorize_here
from hostcore.supervisor.device_leases import hold_devices
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.opening import Opening, open_run
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.ranks.rendezvous import Rendezvous
from hostcore.supervisor.remote.bringing import bring_here
from hostcore.supervisor.submit import Submission, require_no_engine
from hostcore_hookspecs.errors import HostcoreError, RunError
from hostcore_hookspecs.events import RunFailed


def run_plan(
    plan: RunPlan,
    interrupts: Interrupts,
    *,
    ranks: Rendezvous | None = None,
    in_process: bool = False,
    launched: bool = False,
    events: EventOptions | None = None,
    as_json: bool = False,
) -> int:
    """Run a plan to its end and report it.

    :param interrupts: Entered before the plan was made.
    :param ranks: Those that an engine has started; None if none has.
    :param launched: Whether a launcher has started this process for it.
    :param events: Whether the events are printed.
    :return: The exit code.
    """
    if plan.spec.terminal and sys.stderr.isatty():
        echo(f"{plan.spec.run_id}  starting", err=True)  # importing torch takes seconds
    if in_process:
        _require_one_rank(plan)
    if ranks is not None:
        _warn_of_restarts(plan)
        ranks.gather()
        ranks.require_storage(plan.spec)
    with stoppable_at_once(interrupts, as_json=as_json), plugins_print_aside(as_json):
        if not launched:  # both were asked at the submission
            require_no_engine(plan)
            authorize_here(plan)
        plan, finished = bring_here(plan, tell_aside, launched=launched)
        if ranks is None and not in_process and finished is None:
            plan = attrs.evolve(plan, devices=hold_devices(plan.spec))
    with plan.devices, plugins_print_aside(as_json):
        opened = open_run(plan, launched=launched)
        if isinstance(opened, RunResult):
            result = opened
        else:
            if plan.trace_hooks:
                hooks = shown_path(str(plan.directory.rank_hooks(opened.attempt, 0)))
                echo(f"{plan.spec.run_id}  every call of a hook goes to {hooks}", err=True)
            start = _start_here(interrupts) if in_process else _start(interrupts, ranks)
            with (events or EventOptions()).printed(plan, interrupts):
                result = run_attempts(plan, opened, start, may_restart=ranks is None)
    finished_before = result is opened
    if finished_before:
        result = attrs.evolve(result, left=never_told(plan))
        if plan.uploaders:
            _upload_rest(plan, interrupts, as_json=as_json)
    report_result(result, plan.directory, as_json=as_json, note=FINISHED_BEFORE if finished_before else "")
    return SUCCEEDED if finished_before else result.exit_code


def _upload_rest(plan: RunPlan, interrupts: Interrupts, *, as_json: bool) -> None:
    from hostcore.cli.commands.upload import upload_rest

    upload_rest(plan.directory, is_asked_to_stop=lambda: interrupts.first is not None, as_json=as_json)


def _start(interrupts: Interrupts, ranks: Rendezvous | None) -> Start:
    def start(plan: RunPlan, opening: Opening, restart: Restart | None) -> RunResult:
        return supervise(plan, opening, interrupts, restart=restart, spawn=ranks.spawn if ranks else None)

    return start


def _warn_of_restarts(plan: RunPlan) -> None:
    if plan.spec.max_restarts:
        warn("max_restarts is left to what has started the ranks, such as torchrun --max-restarts")


def _require_one_rank(plan: RunPlan) -> None:
    from hostcore.in_process import require_one_rank

    require_one_rank(plan)


def _start_here(interrupts: Interrupts) -> Start:
    from hostcore.in_process import run_here

    return partial(run_here, interrupts)


def carry_out(
    plan: RunPlan,
    interrupts: Interrupts,
    *,
    ranks: Rendezvous | None,
    in_process: bool,
    launched: bool = False,
    detach: bool,
    events: EventOptions,
    as_json: bool,
) -> int:
    """Run a plan here, or have the job's launcher run it: apart from this terminal, or watched.

    :param detach: Whether it is to run apart from this terminal; for the others, see :func:`run_plan`.
    :return: The exit code.
    """
    here = ranks is not None or in_process or launched or is_builtin(plan.spec.launcher.use, "local")
    if here and not detach:
        return run_plan(
            plan, interrupts, ranks=ranks, in_process=in_process, launched=launched, events=events, as_json=as_json
        )
    from hostcore.cli.launched import LaunchedRun

    if not detach:
        events.refuse_standard_output(f"the launcher {plan.spec.launcher.use}")
        if plan.trace_hooks:
            raise click.UsageError(f"--trace-hooks is not for a run that the launcher {plan.spec.launcher.use} starts")
    run = LaunchedRun(plan, _submitted(plan, interrupts, as_json=as_json))
    return finish_submitted(run, interrupts, detach=detach, as_json=as_json)


def _submitted(plan: RunPlan, interrupts: Interrupts, *, as_json: bool) -> Submission | RunResult:
    from hostcore.supervisor.check import check_job
    from hostcore.supervisor.submit import submit

    with stoppable_at_once(interrupts, as_json=as_json), plugins_print_aside(as_json):
        authorize_here(plan)
        plan, finished = bring_here(plan, tell_aside)
        checked = check_job(plan) if finished is None else {}
        if finished is None and is_builtin(plan.spec.launcher.use, "local"):
            hold_devices(plan.spec).close()  # the supervisor takes them; told here that it could not, while it can be
    with plugins_print_aside(as_json):
        return finished or submit(plan, total_steps=checked["total_steps"], tell=tell_aside)


def fail_if_awaited(directory: RunDirectory, error: HostcoreError) -> None:
    """Record in the run why a launched supervisor cannot begin: no terminal watches it."""
    launch = awaited_launch(directory)
    if launch is None:
        return
    from hostcore.supervisor.abandoned import fail_abandoned

    first = all_errors(error)[0]
    several = isinstance(error, Errors)  # whose message has the hints in it
    told = RunError(
        type="InvalidJob" if several else type(error).__name__,
        message=str(error),
        traceback=getattr(first, "traceback", None) or "",
        plugin=first.plugin,
        hint=None if several else first.hint,
    )
    with suppress(OSError, HostcoreError):  # what was wrong first is told anyway
        fail_abandoned(directory, launch.attempt, RunFailed(error=told))
