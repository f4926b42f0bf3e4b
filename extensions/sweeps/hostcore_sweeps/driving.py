"""Driving a sweep from this process, and asking another that drives it to stop."""

import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hostcore.cli.folder_runs import FolderRuns
from hostcore.cli.server_option import service_client
from hostcore.supervisor.interrupts import Interrupts
from hostcore_sweeps.display import Lines, LiveTable
from hostcore_sweeps.driver import DriveEnd, Driver
from hostcore_sweeps.folder import SweepFolder
from hostcore_sweeps.records import RecordLog, SweepBusy
from hostcore_sweeps.spec import Sweep
from hostcore_sweeps.status import read_status
from hostcore_sweeps.trial_runs import LocalStarts, ServiceStarts, Starts, TrialRuns

if TYPE_CHECKING:
    from hostcore.cli.run_client import RunClient

_LOOK_SECONDS: Final = 0.2


def drive(sweep: Sweep, folder: SweepFolder, *, runs: Path, server: str | None = None) -> DriveEnd:
    """Begin a sweep, or go on with it, to its end.

    :param runs: The folder of all runs.
    :param server: The service that runs the trials; None for this machine.
    :raises DifferentSweep: When another sweep lies in the folder.
    :raises SweepBusy: When another process drives it.
    """
    folder.make(sweep, runs)
    sweep, runs = folder.read()
    starts: Starts
    client: RunClient
    if server:
        client = service = service_client(server)
        starts = ServiceStarts(folder, sweep, service)
    else:
        client, starts = FolderRuns(runs), LocalStarts(folder, sweep, runs)
    metrics = frozenset(one.metric for one in sweep.spec.objectives)
    screen = LiveTable() if sys.stderr.isatty() else Lines()
    with closing(RecordLog(folder.records)) as records, Interrupts() as interrupts, screen:
        driver = Driver(
            sweep,
            folder,
            records,
            TrialRuns(sweep, client, starts, metrics=metrics),
            server=server,
            interrupts=interrupts,
            show=screen.show,
        )
        return driver.drive()


def stop(folder: SweepFolder, reason: str) -> None:
    """Have a sweep stop: its driver or, where none lives, this process pauses the runs that there are.

    :raises HostcoreError: When the runs cannot be asked.
    """
    folder.request_stop(reason)
    while True:
        status = read_status(folder)
        if status.state != "running":
            break
        time.sleep(_LOOK_SECONDS)
    try:
        records = RecordLog(folder.records)
    except SweepBusy:
        return
    sweep, runs = folder.read()
    with closing(records):
        client = FolderRuns(runs)
        left = TrialRuns(sweep, client, LocalStarts(folder, sweep, runs), metrics=frozenset())
        numbers = [row.number for row in status.trials if not row.is_over]
        while any(left.state(number) == "alive" for number in numbers):
            for number in numbers:
                left.cancel(number, reason=f"the sweep was stopped: {reason}")
            time.sleep(_LOOK_SECONDS)
        folder.clear_stop()
