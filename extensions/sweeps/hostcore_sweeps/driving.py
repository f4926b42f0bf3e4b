"""Driving a sweep from this process, and asking another that drives it to stop."""

import sys
import time
from contextlib import closing
from typing import Final

from hostcore.cli.folder_client import FolderClient
from hostcore.cli.output import tell_aside
from hostcore.cli.server_option import service_client
from hostcore.errors import all_errors
from hostcore.supervisor.check import check_job
from hostcore.supervisor.interrupts import Interrupts
from hostcore.supervisor.plan import make_plan
from hostcore_hookspecs.errors import HostcoreError
from hostcore_sweeps.display import Screen, screen_on
from hostcore_sweeps.driver import DriveEnd, Driver
from hostcore_sweeps.folder import SweepFolder, TrialPlace
from hostcore_sweeps.records import RecordLog, SweepBusy
from hostcore_sweeps.search import TrialSearch
from hostcore_sweeps.spec import Sweep
from hostcore_sweeps.status import read_status
from hostcore_sweeps.trial_runs import PAUSED, LocalStarts, ServiceStarts, TrialRuns

_LOOK_SECONDS: Final = 0.2


def drive(sweep: Sweep, folder: SweepFolder, place: TrialPlace, *, screen: Screen | None = None) -> DriveEnd:
    """Begin a sweep, or go on with it, to its end.

    :param place: Where its trials are to run.
    :param screen: Shows it; the terminal if not given.
    :raises HostcoreError: Everything that is wrong with the job of the first trial, when it begins.
    :raises DifferentSweep: When another sweep lies in the folder.
    :raises SweepBusy: When another process drives it.
    """
    if place.server and sweep.spec.sampler.use == "pbt":
        hint = "leave --server out: trials begin from checkpoints in the run directories of others"
        raise HostcoreError("pbt runs on this machine alone", code="sweep.rule", pointer="/sampler", hint=hint)
    if not folder.sweep.exists():
        check_first(sweep, place)
    folder.make(sweep, place)
    sweep, place = folder.read()
    screen = screen or screen_on(sys.stderr)
    with closing(RecordLog(folder.records)) as records, Interrupts() as interrupts, screen:
        driver = Driver(
            sweep,
            folder,
            records,
            _runs_of(sweep, folder, place),
            interrupts=interrupts,
            show=screen.show,
        )
        return driver.drive()


def check_first(sweep: Sweep, place: TrialPlace) -> None:
    """Check the job of the first trial as ``hostcore validate`` does: with its plugins, their settings, its data.

    A service checks each job itself when it is submitted.

    :raises HostcoreError: Everything that is wrong with it.
    """
    first = TrialSearch(sweep, parallel=1).sample(0, [])
    if first is None or place.server:
        return
    job = sweep.job_of(0, first.values)
    try:
        plan = make_plan(job, job_dir=sweep.job_dir, runs=place.runs, submits=True, tell=tell_aside)
        if not plan.is_built_elsewhere:
            check_job(plan)
    except HostcoreError as error:
        for one in all_errors(error):
            one.file = one.file or "the job of trial 0"
        raise


def stop(folder: SweepFolder, reason: str) -> None:
    """Have a sweep stop: its driver or, where none lives, this process pauses the runs that there are.

    :raises HostcoreError: When the runs cannot be asked.
    """
    records = _records_after(folder, reason)
    sweep, place = folder.read()
    with closing(records):
        left = _runs_of(sweep, folder, place)
        numbers = [row.number for row in read_status(folder).trials if not row.is_over]
        while any(left.state(number) == "alive" for number in numbers):
            for number in numbers:
                left.cancel(number, reason=f"{PAUSED}: {reason}")
            time.sleep(_LOOK_SECONDS)
        folder.clear_stop()


def _records_after(folder: SweepFolder, reason: str) -> RecordLog:
    """Open the records of a sweep, once its driver, if it has one, has stopped and released them.

    A living driver is known by its lock on them: of a driver of another machine nothing else is known, and one that
    has just begun has recorded nothing yet.
    """
    while True:
        if folder.read_stop() is None:  # a driver that begins forgets what its predecessor was asked
            folder.request_stop(reason)
        try:
            return RecordLog(folder.records)
        except SweepBusy:
            time.sleep(_LOOK_SECONDS)


def _runs_of(sweep: Sweep, folder: SweepFolder, place: TrialPlace) -> TrialRuns:
    """The runs of a sweep's trials, where they are."""
    if place.server:
        service = service_client(place.server)
        return TrialRuns(sweep, service, ServiceStarts(folder, sweep, service), runs=None)
    return TrialRuns(sweep, FolderClient(place.runs), LocalStarts(folder, sweep, place.runs), runs=place.runs)
