"""``hostcore run``."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click

from hostcore.cli.adopting import ranks_of_engine
from hostcore.cli.early import stoppable_at_once
from hostcore.cli.event_options import EventOptions, event_options
from hostcore.cli.job_options import JobCommand, job_argument, job_options, plan_of, quiet_option, where_options
from hostcore.cli.leaving import leave
from hostcore.cli.output import echo, json_option, plugins_print_aside, reports_errors, tell_aside, verbose_option, warn
from hostcore.cli.report import report_result, report_submission, shown_path
from hostcore.cli.runs_dir_option import runs_dir_option
from hostcore.cli.server_option import server_option
from hostcore.job.names import is_builtin
from hostcore.job.spec import JobSpec
from hostcore.runs.result import SUCCEEDED, RunResult
from hostcore.supervisor.authorizing import authorize_here
from hostcore.supervisor.bringing import bring_here
from hostcore.supervisor.device_leases import hold_devices
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.muster import Muster
from hostcore.supervisor.opening import Opening, examine_run, open_run
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.restarting import Restart, Start, run_attempts
from hostcore.supervisor.serving import never_told
from hostcore.supervisor.submit import Submission, require_no_engine
from hostcore.supervisor.supervise import supervise

_FINISHED_BEFORE = "finished before: nothing to do"


@click.command("run", cls=JobCommand)
@job_argument
@job_options
@where_options
@quiet_option
@runs_dir_option
@event_options
@click.option("--trace-hooks", is_flag=True, help="Write down every call of a hook, in the run's logs.")
@server_option
@json_option
@verbose_option
@reports_errors
def run_command(
    job: Path,
    *,
    in_process: bool,
    detach: bool,
    trace_hooks: bool,
    runs: Path,
    events: EventOptions,
    server: str | None,
    as_json: bool,
    verbose: bool,  # noqa: ARG001 - reports_errors reads it
    **options: Any,
) -> None:
    """Run the job in the file JOB (JSON or YAML), watch it, and report how it ended.

    Exits 0 when the run succeeded, 1 when it failed, 2 when the job is invalid (nothing was started then), 3 when a
    policy refused it, 75 when it was preempted and 130 when it was cancelled; both can be resumed. With --detach it
    exits 0 as soon as the run is on its way.
    """
    if trace_hooks and (detach or server):
        raise click.UsageError(f"--trace-hooks and {'--detach' if detach else '--server'} exclude each other")
    if server:
        from hostcore.cli.remote.running import run_remote

        run_remote(server, job, options, detach=detach, as_json=as_json)
        return
    with (
        Interrupts() as interrupts,
        plugins_print_aside(events.on_standard_output),
        ranks_of_engine(interrupts, runs=runs, in_process=in_process, detach=detach) as ranks,
    ):
        events = events.about(job, profile=options["profile"])
        with stoppable_at_once(interrupts, as_json=as_json), plugins_print_aside(as_json):
            world_size = ranks.world_size if ranks else None
            plan = plan_of(job, options, world_size=world_size, runs=runs, extra_reporters=events.reporters)
            plan = attrs.evolve(plan, trace_hooks=trace_hooks)
        if detach:
            sys.exit(submit_plan(plan, interrupts, as_json=as_json))
        if ranks is None and not in_process and is_launched(plan.spec):
            events.refuse_standard_output(f"the launcher {plan.spec.launcher.use}")
            leave(interrupts, run_launched(plan, interrupts, as_json=as_json))
        code = run_plan(plan, interrupts, ranks=ranks, in_process=in_process, events=events, as_json=as_json)
        leave(interrupts, code)


def run_plan(
    plan: RunPlan,
    interrupts: Interrupts,
    *,
    ranks: Muster | None = None,
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
        if not launched:  # whoever submitted it has asked
            require_no_engine(plan)
            authorize_here(plan)
        plan = bring_here(plan, tell_aside, launched=launched)
        if ranks is None and not in_process and examine_run(plan, launched=launched) is None:
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
    report_result(result, plan.directory, as_json=as_json, note=_FINISHED_BEFORE if finished_before else "")
    return SUCCEEDED if finished_before else result.exit_code


def _upload_rest(plan: RunPlan, interrupts: Interrupts, *, as_json: bool) -> None:
    from hostcore.cli.upload import upload_rest

    upload_rest(plan.directory, is_asked_to_stop=lambda: interrupts.first is not None, as_json=as_json)


def _start(interrupts: Interrupts, ranks: Muster | None) -> Start:
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


def submit_plan(plan: RunPlan, interrupts: Interrupts, *, as_json: bool = False) -> int:
    """Check a plan as ``hostcore validate`` does, and have the job's launcher run it.

    :param interrupts: Entered before the plan was made.
    :return: The exit code.
    """
    submitted = _submitted(plan, interrupts, as_json=as_json)
    if isinstance(submitted, RunResult):
        report_result(submitted, plan.directory, as_json=as_json, note=_FINISHED_BEFORE)
    else:
        report_submission(submitted, as_json=as_json)
    return SUCCEEDED


def is_launched(spec: JobSpec) -> bool:
    """Whether the launcher of a job runs it even if somebody watches: any but ``local``, which this process is."""
    return not is_builtin(spec.launcher.use, "local")


def run_launched(plan: RunPlan, interrupts: Interrupts, *, as_json: bool) -> int:
    """Have the job's launcher run a plan, watch it to its end and report it.

    :param interrupts: Entered before the plan was made.
    :return: The exit code.
    """
    from hostcore.cli.launched import watch_launched

    if plan.trace_hooks:
        raise click.UsageError(f"--trace-hooks is not for a run that the launcher {plan.spec.launcher.use} starts")
    submitted = _submitted(plan, interrupts, as_json=as_json)
    if isinstance(submitted, RunResult):
        report_result(submitted, plan.directory, as_json=as_json, note=_FINISHED_BEFORE)
        return SUCCEEDED
    result = watch_launched(plan, submitted, interrupts)
    report_result(result, plan.directory, as_json=as_json)
    return result.exit_code


def _submitted(plan: RunPlan, interrupts: Interrupts, *, as_json: bool) -> Submission | RunResult:
    from hostcore.supervisor.check import check_job
    from hostcore.supervisor.submit import submit

    with stoppable_at_once(interrupts, as_json=as_json), plugins_print_aside(as_json):
        authorize_here(plan)
        plan = bring_here(plan, tell_aside)
        finished = examine_run(plan)
        checked = check_job(plan) if finished is None else {}
        if finished is None and not is_launched(plan.spec):
            hold_devices(plan.spec).close()  # the supervisor takes them; told here that it could not, while it can be
    with plugins_print_aside(as_json):
        return finished or submit(plan, total_steps=checked["total_steps"], tell=tell_aside)
