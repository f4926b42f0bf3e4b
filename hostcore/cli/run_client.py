"""Where the runs are that a command is about: in a folder of this machine or, with ``--server``, at a service.

A command asks a :class:`RunClient` and prints what that returns. The client of a folder is part of the host; the client
of a service is an entry point in ``hostcore.run_clients``, under the scheme of the service's URL, and is made with that
URL. Clients return data and raise :class:`HostcoreError`: they print no result.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import attrs

if TYPE_CHECKING:
    from hostcore.cli.job_options import JobOptions
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
class InstalledPlugins:
    """The plugins that are installed where the runs are."""

    #: What ``hostcore plugins --json`` prints.
    document: Mapping[str, Any]
    #: Each plugin, with the conformance report that it ships.
    plugins: "Sequence[tuple[PluginRef, ShippedReport | None]]"
    #: What the document says as well: conflicts, broken distributions.
    warnings: Sequence[str]
    #: Why reports are missing.
    problems: Sequence[str] = ()


@attrs.frozen(kw_only=True)
class RunList:
    """The runs that were asked for."""

    #: Newest first.
    runs: "Sequence[RunSummary]"
    #: What people are told when there are none.
    nothing: str
    #: Folders that cannot be read: path and error.
    unreadable: Sequence[tuple[str, str]] = ()
    #: By run_id, what of it was asked for, of the attempts that used it; None if nothing was.
    used: "Mapping[str, Sequence[Used]] | None" = None
    #: How many may be meant as well: they do not say enough of what they used.
    unknown: int = 0


@attrs.frozen(kw_only=True)
class Validation:
    """A valid job, and what is known of it before it runs."""

    spec: "JobSpec"
    #: The run directory, if it would be on this machine.
    directory: str | None
    #: What would become of the run, in a few words.
    outcome: str
    #: See :func:`hostcore.supervisor.check.check_job`; None where the job could not be checked.
    checked: Mapping[str, Any] | None
    #: Kind and name of the plugins that serve the run beside its workers.
    serving: Sequence[tuple[str, str]]
    #: Kind and name of the others, which ``checked`` has in more detail.
    others: Sequence[tuple[str, str]] = ()
    #: What the launcher would do; None for ``local``.
    launch: "LaunchPlan | None"
    #: What stays unchecked, in sentences.
    unchecked: Sequence[str] = ()


class RunLog(Protocol):
    """The events of a run, or what one of its ranks printed. Each part is read once, in this order."""

    #: The event log, if it is on this machine.
    file: str | None

    def history(self) -> Iterator[bytes]:
        """The lines that there are now, each with its end."""

    def follow(self) -> Iterator[bytes]:
        """What is added from then on, until the run, or the attempt that was asked for, is over."""

    def rest(self) -> bytes:
        """What stands behind the last end of a line; events have no such rest."""

    def empty_because(self) -> str:
        """Why there was nothing, as far as people should be told; empty for no reason."""

    def lost_because(self) -> str:
        """What is known of the end of a run that was followed and is lost; empty for any other."""


class RunHandle(Protocol):
    """One run."""

    @property
    def run_id(self) -> str:
        """Its id."""

    def is_over(self) -> bool:
        """Whether nothing will happen to it any more unless it is started again. Every call looks anew."""

    def wait(self) -> None:
        """Wait until it is worth another look; only :meth:`is_over` looks."""

    def status(self) -> "RunStatus":
        """Return its status: as :meth:`is_over` has seen it last, or newer."""

    def events(self, *, attempt: int | None, since: int | None) -> RunLog:
        """The lines of ``events.jsonl``.

        :param attempt: Of this attempt alone.
        :param since: After the event of this number.
        :raises HostcoreError: When there is no such attempt.
        """

    def output(self, *, attempt: int | None, rank: int | None) -> RunLog:
        """What a rank printed.

        :param attempt: In this attempt alone; the newest one and those that follow if not given.
        :param rank: 0 if not given.
        :raises HostcoreError: When there is no such attempt or rank.
        """

    def cancel(self, *, reason: str, force: bool, wait: bool, watch: "Callable[[RunSummary], None]") -> "Cancellation":
        """Cancel it. A run that has ended stays as it is.

        :param force: Kill its workers at once, without a checkpoint.
        :param wait: Until it has ended.
        :param watch: Called with its summary, again and again while it is waited for.
        """

    def places(self, result: "RunResult") -> Sequence[tuple[str, str]]:
        """Where to find what it has left, by name, and how to go on with it.

        :param result: How it has ended.
        """


class RunClient(Protocol):
    """What commands ask about runs."""

    def plugins(self) -> InstalledPlugins:
        """The plugins that are installed there; none is imported."""

    def list(self, *, statuses: Sequence[str], trainer: str | None, use: "UseQuery", limit: int | None) -> RunList:
        """The runs, newest first.

        :param statuses: Those of these statuses alone; empty for all.
        :param trainer: Those of a trainer alone, with or without its distribution.
        :param use: Those with an attempt that used all of this.
        :param limit: So many at most.
        :raises InvalidQuery: When the fingerprint of data is the beginning of several.
        """

    def find(self, name: str) -> RunHandle:
        """The run that a name means: a run_id, or the beginning of exactly one.

        :raises UnknownRun: When there is none.
        :raises AmbiguousRun: When several begin so.
        """

    def validate(self, job: Path, options: "JobOptions") -> Validation:
        """Check a job file where it would run.

        :raises HostcoreError: Everything that is wrong with the job.
        """


class SubmittedRun(RunHandle, Protocol):
    """A run that a launcher or a service has taken."""

    #: How it has ended, if it had finished before: then nothing was submitted.
    finished: "RunResult | None"
    #: The words that commands call it by.
    words: Sequence[str]
    #: Where everything of it is.
    place: str

    def submission(self) -> Mapping[str, Any]:
        """What ``hostcore run --detach --json`` prints."""

    def watch(self, interrupts: "Interrupts") -> "RunResult":
        """Show it on this terminal to its end.

        The first Ctrl-C cancels it; a second, or another signal, ends the watching alone.

        :param interrupts: Entered.
        :return: How it ended.
        :raises SystemExit: When a signal ends the watching.
        """


class ServiceClient(RunClient, Protocol):
    """The client of a service, which runs jobs as well. A run of this machine is supervised by the command itself."""

    def submit(self, job: Path, options: "JobOptions") -> SubmittedRun:
        """Submit a job file.

        :raises HostcoreError: Everything that is wrong with the job, or that the service has against it.
        """

    def resume(self, name: str, options: "JobOptions") -> SubmittedRun:
        """Have a run that has ended go on.

        :param options: Of these, ``quiet`` alone counts: the job stays as it was submitted.
        :raises RunConflict: When it goes on already.
        """
