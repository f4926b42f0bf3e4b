"""Clients of runs: those of a folder of this machine or, with ``--server``, those of a service.

A command calls a :class:`RunClient` and prints the data that it returns. The client of a folder is part of the host.
The client of a service is an entry point in ``hostcore.run_clients``, under the scheme of the service's URL, which it
takes as its argument. Clients raise :class:`HostcoreError` and print no result.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from hostcore.cli.event_options import EventOptions
from hostcore.cli.job_options import JobOptions

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from hostcore.job.spec import JobSpec
    from hostcore.plugins.listing import ShippedReport
    from hostcore.runs.result import RunResult
    from hostcore.runs.summary import RunSummary
    from hostcore.runs.used import Used, UseQuery
    from hostcore.supervisor.cancelling import Cancellation
    from hostcore.supervisor.interrupts import Interrupts
    from hostcore.supervisor.run_status import RunStatus
    from hostcore_hookspecs.launcher import LaunchPlan
    from hostcore_hookspecs.plan import PluginRef


@attrs.frozen(kw_only=True)
class RunRequest:
    """A run to start, or to resume, as a command line describes it."""

    #: The job file of a run to start.
    job: Path | None = None
    #: The run to resume, or the checkpoint to begin from.
    resume: str = ""
    #: ``resume`` is a checkpoint.
    begins: bool = False
    options: JobOptions = attrs.field(factory=JobOptions)
    events: EventOptions = attrs.field(factory=EventOptions)
    #: Its worker is this process.
    in_process: bool = False
    #: It runs without this terminal.
    detach: bool = False
    #: A launcher has started this process for it.
    launched: bool = False
    #: It runs in this process, whatever launcher the job names.
    here: bool = False
    trace_hooks: bool = False
    same_plugins: bool = False
    as_json: bool = False


@attrs.frozen(kw_only=True)
class InstalledPlugins:
    """The plugins that are installed where the runs are."""

    #: The document of ``hostcore plugins --json``.
    document: Mapping[str, Any]
    #: Each plugin, with the conformance report that it ships.
    plugins: "Sequence[tuple[PluginRef, ShippedReport | None]]"
    #: Conflicts and broken distributions, which the document has as well.
    warnings: Sequence[str]
    #: Reasons of missing reports.
    problems: Sequence[str] = ()


@attrs.frozen(kw_only=True)
class RunList:
    """The runs that match a query."""

    #: Newest first.
    runs: "Sequence[RunSummary]"
    #: Message for people when there are none.
    nothing: str
    #: Folders that cannot be read: path and error.
    unreadable: Sequence[tuple[str, str]] = ()
    #: By run_id, the queried plugins and data of the attempts that used them; None without such a query.
    used: "Mapping[str, Sequence[Used]] | None" = None
    #: The number of runs with too little information to know whether they match.
    unknown: int = 0


@attrs.frozen(kw_only=True)
class CheckedJob:
    """A valid job, and the facts that are known of it before it runs."""

    spec: "JobSpec"
    #: The run directory, if it would be on this machine.
    directory: str | None
    #: The outcome of a start, in a few words.
    outcome: str
    #: See :func:`hostcore.supervisor.check.check_job`; None where the job could not be checked.
    checked: Mapping[str, Any] | None
    #: Kind and name of the plugins that serve the run beside its workers.
    serving: Sequence[tuple[str, str]]
    #: Kind and name of the others, which ``checked`` has in more detail.
    others: Sequence[tuple[str, str]] = ()
    #: The plan of the launcher; None for ``local``.
    launch: "LaunchPlan | None"
    #: The unchecked parts of the job, in sentences.
    unchecked: Sequence[str] = ()


class RunLog(Protocol):
    """The events of a run, or the output of one of its ranks. Each part is read once, in this order."""

    #: The event log, if it is on this machine.
    file: str | None

    def history(self) -> Iterator[bytes]:
        """Iterate over the present lines, each with its end."""

    def follow(self) -> Iterator[bytes]:
        """Iterate over later lines until the run, or the requested attempt, is over."""

    def rest(self) -> bytes:
        """Return the text behind the last end of a line; events have no such rest."""

    def empty_because(self) -> str:
        """Return the reason of an empty log for people; empty for no reason."""

    def lost_because(self) -> str:
        """Return the known facts about the end of a followed run that is lost; empty for any other."""


class RunHandle(Protocol):
    """One run."""

    @property
    def run_id(self) -> str:
        """Its id."""

    @property
    def words(self) -> Sequence[str]:
        """The words by which command lines name it."""

    def is_over(self) -> bool:
        """Return whether it ends here unless it is started again; by a new look at it."""

    def wait(self) -> None:
        """Wait between two calls of :meth:`is_over`."""

    def status(self) -> "RunStatus":
        """Return its status: as of the last :meth:`is_over`, or newer."""

    def events(self, *, attempt: int | None, since: int | None) -> RunLog:
        """Return the lines of ``events.jsonl``.

        :param attempt: Of this attempt alone.
        :param since: After the event of this number.
        :raises HostcoreError: When there is no such attempt.
        """

    def output(self, *, attempt: int | None, rank: int | None) -> RunLog:
        """Return the output of a rank.

        :param attempt: In this attempt alone; the newest one and those that follow if not given.
        :param rank: 0 if not given.
        :raises HostcoreError: When there is no such attempt or rank.
        """

    def cancel(self, *, reason: str, force: bool, wait: bool, watch: "Callable[[RunSummary], None]") -> "Cancellation":
        """Cancel it. A run that has ended stays as it is.

        :param force: Kill its workers at once, without a checkpoint.
        :param wait: Until it has ended.
        :param watch: Called with its summary, repeatedly during the wait.
        """

    def places(self, result: "RunResult") -> Sequence[tuple[str, str]]:
        """Return the places of its files, by name, and the command that resumes it.

        :param result: Its result.
        """


class StartedRun(RunHandle, Protocol):
    """A run that was just started by this process, a launcher or a service."""

    #: Its result if it had finished before: then nothing was started.
    finished: "RunResult | None"
    #: The place of all its files.
    place: str

    def submission(self) -> Mapping[str, Any]:
        """Return the document of ``hostcore run --detach --json``."""

    def follow(self, interrupts: "Interrupts") -> "RunResult":
        """Show it on this terminal until it ends; the first Ctrl-C cancels it.

        :param interrupts: Entered.
        :return: Its result.
        :raises SystemExit: When a signal ends the watching of a run of another process.
        """


class RunClient(Protocol):
    """The runs of a folder or a service."""

    def start(self, request: RunRequest, interrupts: "Interrupts") -> "AbstractContextManager[StartedRun]":
        """Start or resume a run; a signal before it has begun ends the command.

        :param interrupts: Entered.
        :return: The run. Devices and other resources are held until it is left.
        :raises HostcoreError: Everything that is wrong with the job, or that a service has against it.
        :raises RunConflict: When it is running already.
        """

    def plugins(self) -> InstalledPlugins:
        """Return the installed plugins; none is imported."""

    def list(self, *, statuses: Sequence[str], trainer: str | None, use: "UseQuery", limit: int | None) -> RunList:
        """List the runs, newest first.

        :param statuses: Of these statuses alone; empty for all.
        :param trainer: Of a trainer alone, with or without its distribution.
        :param use: With an attempt that used all of this.
        :param limit: At most so many.
        :raises InvalidQuery: When the fingerprint of data is the beginning of several.
        """

    def find(self, name: str) -> RunHandle:
        """Find a run by its run_id, or by the beginning of exactly one.

        :raises UnknownRun: When there is none.
        :raises AmbiguousRun: When several begin so.
        """

    def validate(self, job: Path, options: "JobOptions") -> CheckedJob:
        """Check a job file where it would run.

        :raises HostcoreError: Everything that is wrong with the job.
        """
