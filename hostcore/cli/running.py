"""Running a plan: here, by the attempts of a supervisor, or by the job's launcher."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import attrs
import click

from hostcore.cli.event_options import EventOptions
from hostcore.cli.output import echo, plugins_print_aside, tell_aside, warn
from hostcore.cli.report import report_result, shown_path
from hostcore.cli.stopping import leave, stoppable_at_once
from hostcore.cli.submitted import FINISHED_BEFORE, finish_submitted
from hostcore.errors import Errors, all_errors
from hostcore.job.names import is_builtin
from hostcore.runs.directory import RunDirectory, runs_dir
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
from hostcore.supervisor.ranks.engine import Engine
from hostcore.supervisor.ranks.rendezvous import Rendezvous
from hostcore.supervisor.remote.bringing import bring_here
from hostcore.supervisor.submit import Submission, require_no_engine
from hostcore.supervisor.workers.spawn import LocalRanks
from hostcore_hookspecs.errors import HostcoreError, RunError
from hostcore_hookspecs.events import RunFailed


def run_plan(
    plan: RunPlan,
    interrupts: Interrupts,
    *,
    ranks: Rendezvous | None,
    in_process: bool,
    launched: bool,
    events: EventOptions,
    as_json: bool,
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
    start = _start_here(plan, interrupts) if in_process else _start(interrupts, ranks)
    if ranks is not None:
        if plan.spec.max_restarts:
            warn("max_restarts is left to what has started the ranks, such as torchrun --max-restarts")
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
        opened = open_run(plan, launched=launched, tell=tell_aside)
        if isinstance(opened, RunResult):
            result = opened
        else:
            if plan.trace_hooks:
                hooks = shown_path(str(plan.directory.rank_hooks(opened.attempt, 0)))
                echo(f"{plan.spec.run_id}  every call of a hook goes to {hooks}", err=True)
            with events.printed(plan, interrupts):
                result = run_attempts(plan, opened, start, may_restart=ranks is None)
    finished_before = result is opened
    if finished_before:
        result = attrs.evolve(result, left=never_told(plan))
        if plan.uploaders:
            from hostcore.cli.commands.upload import upload_rest

            upload_rest(plan.directory, is_asked_to_stop=lambda: interrupts.first is not None, as_json=as_json)
    report_result(result, plan.directory, as_json=as_json, note=FINISHED_BEFORE if finished_before else "")
    return SUCCEEDED if finished_before else result.exit_code


def _start(interrupts: Interrupts, ranks: Rendezvous | None) -> Start:
    def start(plan: RunPlan, opening: Opening, restart: Restart | None) -> RunResult:
        spawn = ranks.spawn if ranks else LocalRanks(plan.spec.ranks, plan.devices)
        return supervise(plan, opening, interrupts, restart=restart, spawn=spawn)

    return start


def _start_here(plan: RunPlan, interrupts: Interrupts) -> Start:
    from hostcore.in_process import require_one_rank, run_here

    require_one_rank(plan)
    return partial(run_here, interrupts)


def run_and_leave(
    make_plan: Callable[[int | None], RunPlan],
    *,
    runs: Path | None,
    in_process: bool = False,
    detach: bool = False,
    launched: bool = False,
    here: bool = False,
    events: EventOptions | None = None,
    as_json: bool = False,
) -> NoReturn:
    """Make a plan, carry it out, and end the process with the exit code of the run.

    A process that is one of the ranks that an engine has started, and not rank 0, serves rank 0 instead.

    :param make_plan: Given the number of ranks that an engine has started; None if none has.
    :param runs: The folder of all runs; None for the usual one.
    :param in_process: Whether the worker is this process.
    :param detach: Whether the run is to go on apart from this terminal.
    :param launched: Whether a launcher has started this process for it.
    :param here: Whether it is run here whatever launcher the job names.
    :param events: Whether the events are printed.
    """
    events = events or EventOptions()
    with (
        Interrupts() as interrupts,
        plugins_print_aside(events.on_standard_output),
        _ranks_of_engine(interrupts, runs or runs_dir(), in_process=in_process, detach=detach) as ranks,
    ):
        with stoppable_at_once(interrupts, as_json=as_json), plugins_print_aside(as_json):
            plan = make_plan(ranks.engine.world_size if ranks else None)
        local = is_builtin(plan.spec.launcher.use, "local")
        if not detach and (here or launched or in_process or ranks is not None or local):
            code = run_plan(
                plan,
                interrupts,
                ranks=ranks,
                in_process=in_process,
                launched=launched,
                events=events,
                as_json=as_json,
            )
        else:
            code = _launch(plan, interrupts, detach=detach, events=events, as_json=as_json)
        leave(interrupts, code)


@contextmanager
def _ranks_of_engine(
    interrupts: Interrupts, runs: Path, *, in_process: bool, detach: bool
) -> Iterator[Rendezvous | None]:
    """The ranks that an engine has started; None if none has, and this process is the only one.

    In a rank other than 0 it does not come back: the process serves rank 0 to the end of the run, and exits as it does.

    :raises HostcoreError: When the environment is not one of ranks, or rank 0 is not found.
    """
    engine = Engine.of(os.environ)
    if engine is None:
        yield None
        return
    for option, asked in (("--in-process", in_process), ("--detach", detach)):
        if asked:
            started = f"RANK and WORLD_SIZE say that this is one of {engine.world_size} ranks that were started already"
            raise click.UsageError(f"{option} is for a single process; {started}")
    if engine.rank:
        from hostcore.supervisor.ranks.rank_agent import run_rank_agent

        leave(interrupts, run_rank_agent(engine, runs, interrupts, tell_aside))
    with Rendezvous(engine, runs, interrupts) as rendezvous:
        yield rendezvous


def _launch(plan: RunPlan, interrupts: Interrupts, *, detach: bool, events: EventOptions, as_json: bool) -> int:
    """Have the job's launcher run a plan: apart from this terminal, or watched. The exit code."""
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
        plan, finished = bring_here(plan, tell_aside, submits=True)
        checked = {} if finished or plan.is_built_elsewhere else check_job(plan)
        if finished is None and is_builtin(plan.spec.launcher.use, "local"):
            hold_devices(plan.spec).close()  # the supervisor takes them; told here that it could not, while it can be
    with plugins_print_aside(as_json):
        return finished or submit(plan, total_steps=checked.get("total_steps", 0), tell=tell_aside)


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
