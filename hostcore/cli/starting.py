"""Start a run of a folder: in this process, by the attempts of a supervisor, or by the job's launcher."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click

from hostcore.cli.folder_run import FolderRun
from hostcore.cli.launched import LaunchedRun
from hostcore.cli.output import echo, plugins_print_aside, tell_aside, warn
from hostcore.cli.planning import plan_from_checkpoint, plan_job, plan_run
from hostcore.cli.report import shown_path
from hostcore.cli.run_client import RunRequest, StartedRun
from hostcore.cli.stopping import leave, stoppable_at_once
from hostcore.errors import Errors, all_errors
from hostcore.job.names import is_builtin
from hostcore.plugins.installed import discover
from hostcore.runs.directory import RunDirectory
from hostcore.runs.find import find_run
from hostcore.runs.launch import awaited_launch
from hostcore.runs.result import RunResult
from hostcore.supervisor.attempt.restarting import Start, run_attempts
from hostcore.supervisor.attempt.supervise import supervise
from hostcore.supervisor.authorizing import authorize_here
from hostcore.supervisor.delivery.delivery import left_before
from hostcore.supervisor.delivery.subscription import subscriptions_of
from hostcore.supervisor.device_leases import hold_devices
from hostcore.supervisor.engine import Engine
from hostcore.supervisor.engine_ranks import OtherRanks, installed_engine_ranks
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.opening import MirrorConflict, Opening, RunConflict, open_run
from hostcore.supervisor.plan import RunPlan
from hostcore.supervisor.remote.bringing import bring_here
from hostcore.supervisor.submit import Submission, require_no_engine, submit
from hostcore.supervisor.workers.spawn import LocalRanks
from hostcore_hookspecs.errors import HostcoreError, RunError
from hostcore_hookspecs.events import RunFailed

#: Makes a plan, given the number of ranks that an engine has started; None if none has.
MakePlan = Callable[[int | None], RunPlan]


@contextmanager
def start_in_folder(request: RunRequest, interrupts: Interrupts, runs: Path) -> Iterator[StartedRun]:
    """Start or resume a run of a folder; see :meth:`hostcore.cli.run_client.RunClient.start`."""
    alone = request.launched and Engine.started_alone(os.environ)

    def plan(world_size: int | None) -> RunPlan:
        where: dict[str, Any] = {
            "world_size": world_size or (1 if alone else None),
            "runs": runs,
            "extra_reporters": request.events.reporters(request.job, request.options.profile),
        }
        if request.job is not None:
            made = plan_job(request.job, request.options, submits=not request.in_process, **where)
        elif request.begins:
            where["submits"] = not (request.in_process or request.launched)
            return plan_from_checkpoint(Path(request.resume), request.options, **where)
        else:
            where["submits"] = not (request.in_process or request.launched)
            made = plan_run(request.resume, request.options, **where)
        return attrs.evolve(made, trace_hooks=request.trace_hooks, same_plugins=request.same_plugins)

    try:
        with start_planned(plan, request, interrupts, runs) as run:
            yield run
    except HostcoreError as error:
        if request.launched and (isinstance(error, MirrorConflict) or not isinstance(error, RunConflict)):
            _fail_if_awaited(find_run(request.resume, runs), error)
        raise


@contextmanager
def start_planned(make_plan: MakePlan, request: RunRequest, interrupts: Interrupts, runs: Path) -> Iterator[StartedRun]:
    """Plan a run and start it.

    A process that is one of the ranks that an engine has started, and not rank 0, serves rank 0 instead, and exits.

    :param runs: The folder in which the ranks of an engine meet.
    """
    with (
        plugins_print_aside(request.events.on_standard_output),
        _ranks_of_engine(interrupts, runs, request) as ranks,
    ):
        with stoppable_at_once(interrupts, as_json=request.as_json), plugins_print_aside(request.as_json):
            plan = make_plan(ranks.engine.world_size if ranks else None)
        here = request.here or request.launched or request.in_process or ranks is not None
        if not request.detach and (here or is_builtin(plan.spec.launcher.use, "local")):
            with _start_here(plan, request, interrupts, ranks) as run:
                yield run
        else:
            yield _launch(plan, request, interrupts)


class _RunHere(FolderRun, StartedRun):
    """A run whose supervisor is this process.

    :param opened: Its opened attempt, or the result of a run that had finished before.
    """

    def __init__(
        self, plan: RunPlan, opened: Opening | RunResult, request: RunRequest, ranks: OtherRanks | None
    ) -> None:
        super().__init__(plan.directory)
        self._plan = plan
        self._opened = opened
        self._request = request
        self._ranks = ranks
        self.place = str(plan.directory.path)
        self.finished = self._finished(opened) if isinstance(opened, RunResult) else None

    def _finished(self, result: RunResult) -> RunResult:
        reporters = subscriptions_of(self._plan.reporters, self._plan.spec.reporters)
        return attrs.evolve(result, left=left_before(reporters, self._plan.directory))

    def submission(self) -> Mapping[str, Any]:
        """Never printed: a detached run has a supervisor of its own."""
        raise NotImplementedError

    def follow(self, interrupts: Interrupts) -> RunResult:
        """Supervise it until it ends."""
        assert isinstance(self._opened, Opening)
        with plugins_print_aside(self._request.as_json):
            if self._plan.trace_hooks:
                hooks = shown_path(str(self._plan.directory.rank_hooks(self._opened.attempt, 0)))
                echo(f"{self.run_id}  every call of a hook goes to {hooks}", err=True)
            request = self._request
            with request.events.printed(self._plan, interrupts, request.job, request.options.profile):
                return run_attempts(self._plan, self._opened, self._start(interrupts), may_restart=self._ranks is None)

    def _start(self, interrupts: Interrupts) -> Start:
        if self._request.in_process:
            from hostcore.in_process import run_here

            return partial(run_here, interrupts)

        def start(plan: RunPlan, opening: Opening, restart: Any) -> RunResult:
            spawn = self._ranks.spawn if self._ranks else LocalRanks(plan.spec.ranks, plan.devices)
            return supervise(plan, opening, interrupts, restart=restart, spawn=spawn)

        return start


@contextmanager
def _start_here(
    plan: RunPlan, request: RunRequest, interrupts: Interrupts, ranks: OtherRanks | None
) -> Iterator[StartedRun]:
    """Open a run whose supervisor is this process.

    :param ranks: The ranks that an engine has started; None if none has.
    """
    if plan.spec.terminal and sys.stderr.isatty():
        echo(f"{plan.spec.run_id}  starting", err=True)  # importing torch takes seconds
    if request.in_process:
        from hostcore.in_process import require_one_rank

        require_one_rank(plan)
    if ranks is not None:
        if plan.spec.max_restarts:
            warn("max_restarts is left to what has started the ranks, such as torchrun --max-restarts")
        ranks.gather()
        ranks.require_storage(plan.spec)
    with stoppable_at_once(interrupts, as_json=request.as_json), plugins_print_aside(request.as_json):
        if not request.launched:  # the submission has checked both
            require_no_engine(plan)
            authorize_here(plan)
        plan, finished = bring_here(plan, tell_aside, launched=request.launched)
        if ranks is None and not request.in_process and finished is None:
            plan = attrs.evolve(plan, devices=hold_devices(plan.spec))
    with plan.devices:
        with plugins_print_aside(request.as_json):
            run = _RunHere(plan, open_run(plan, launched=request.launched, tell=tell_aside), request, ranks)
        if run.finished is not None and plan.uploaders:
            from hostcore.cli.uploading import upload_rest

            stops = lambda: interrupts.first is not None  # noqa: E731
            upload_rest(plan.directory, is_asked_to_stop=stops, as_json=request.as_json)
        yield run


@contextmanager
def _ranks_of_engine(interrupts: Interrupts, runs: Path, request: RunRequest) -> Iterator[OtherRanks | None]:
    """Meet the ranks that an engine has started; None if none has, and this process is the only one.

    A rank other than 0 does not return: the process serves rank 0 until the run ends, and exits with its code.

    :raises HostcoreError: When the environment is not that of a rank, or rank 0 is not found.
    """
    engine = Engine.of(os.environ)
    if engine is None:
        yield None
        return
    for option, given in (("--in-process", request.in_process), ("--detach", request.detach)):
        if given:
            started = f"RANK and WORLD_SIZE say that this is one of {engine.world_size} ranks that were started already"
            raise click.UsageError(f"{option} is for a single process; {started}")
    engine_ranks = installed_engine_ranks(discover())
    if engine.rank:
        leave(interrupts, engine_ranks.serve(engine, runs, interrupts, tell_aside))
    with engine_ranks.lead(engine, runs, interrupts) as others:
        yield others


def _launch(plan: RunPlan, request: RunRequest, interrupts: Interrupts) -> StartedRun:
    """Submit a run to the job's launcher."""
    from hostcore.supervisor.check import check_job

    if not request.detach:
        request.events.refuse_standard_output(f"the launcher {plan.spec.launcher.use}")
        if plan.trace_hooks:
            raise click.UsageError(f"--trace-hooks is not for a run that the launcher {plan.spec.launcher.use} starts")
    with stoppable_at_once(interrupts, as_json=request.as_json), plugins_print_aside(request.as_json):
        authorize_here(plan)
        plan, finished = bring_here(plan, tell_aside, submits=True)
        checked = {} if finished or plan.is_built_elsewhere else check_job(plan)
        if finished is None and is_builtin(plan.spec.launcher.use, "local"):
            hold_devices(plan.spec).close()  # its supervisor takes them; busy devices are an error here
    submitted: Submission | RunResult
    with plugins_print_aside(request.as_json):
        submitted = finished or submit(plan, total_steps=checked.get("total_steps", 0), tell=tell_aside)
    return LaunchedRun(plan, submitted)


def _fail_if_awaited(directory: RunDirectory, error: HostcoreError) -> None:
    """Record in the run that its launched supervisor cannot begin: no terminal watches it."""
    launch = awaited_launch(directory)
    if launch is None:
        return
    from hostcore.supervisor.abandoned import fail_abandoned

    first = all_errors(error)[0]
    several = isinstance(error, Errors)  # whose message has the hints in it
    recorded = RunError(
        type="InvalidJob" if several else type(error).__name__,
        message=str(error),
        traceback=getattr(first, "traceback", None) or "",
        plugin=first.plugin,
        hint=None if several else first.hint,
    )
    with suppress(OSError, HostcoreError):  # the first error is reported in any case
        fail_abandoned(directory, launch.attempt, RunFailed(error=recorded))
