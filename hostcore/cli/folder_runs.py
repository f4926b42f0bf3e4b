"""The runs of a folder on this machine, as commands ask about them: see :mod:`hostcore.cli.run_client`."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from hostcore.cli.run_client import (
    InstalledPlugins,
    RunClient,
    RunHandle,
    RunList,
    RunLog,
    Validation,
)

if TYPE_CHECKING:
    from hostcore.cli.job_options import JobOptions
    from hostcore.plugins.installed import Discovered
    from hostcore.runs.directory import RunDirectory
    from hostcore.runs.result import RunResult
    from hostcore.runs.summary import RunSummary
    from hostcore.runs.used import UseQuery
    from hostcore.supervisor.cancelling import Cancellation
    from hostcore.supervisor.plan import RunPlan
    from hostcore.supervisor.run_status import RunStatus


class FolderRuns(RunClient):
    """The client of a folder.

    :param runs: Of all runs; absolute.
    """

    def __init__(self, runs: Path) -> None:
        self._runs = runs

    def plugins(self, found: "Discovered | None" = None) -> InstalledPlugins:
        """The plugins that are installed here.

        :param found: Those, if they were found already.
        """
        from hostcore.plugins.installed import discover
        from hostcore.plugins.listing import plugins_document, shipped_reports

        found = found or discover()
        shipped = shipped_reports(found.refs, found)
        return InstalledPlugins(
            document=plugins_document(found, shipped),
            plugins=[(ref, shipped.by_plugin.get(ref)) for ref in found.refs],
            warnings=_warnings(found),
            problems=shipped.problems,
        )

    def list(self, *, statuses: Sequence[str], trainer: str | None, use: "UseQuery", limit: int | None) -> RunList:
        """The runs of the folder, newest first."""
        from hostcore.runs.summary import list_runs

        found, broken = list_runs(self._runs)
        wanted = [run for run in found if (not statuses or run.status in statuses) and run.is_of(trainer)]
        asked = RunList(
            runs=wanted[:limit],
            nothing=f"{'none of the' if found else 'no'} runs in {self._runs}{' is like that' if found else ''}",
            unreadable=[(one["path"], one["error"]) for one in broken],
        )
        if not use:
            return asked
        used = {run.run_id: answer for run in wanted if (answer := use.answer(run.used))}
        use.require_one({one.data for answer in used.values() for one in answer if one.data})
        return attrs.evolve(
            asked,
            runs=[run for run in wanted if run.run_id in used][:limit],
            used=used,
            unknown=sum(run.run_id not in used and use.is_unknown(run.used) for run in wanted),
        )

    def find(self, name: str) -> "FolderRun":
        """The run that a name means, which may be its directory as well."""
        from hostcore.runs.find import find_run

        return FolderRun(find_run(name, self._runs))

    def validate(self, job: Path, options: "JobOptions") -> Validation:
        """Check a job file for a run in the folder."""
        from hostcore.cli.output import tell_aside
        from hostcore.cli.planning import plan_of
        from hostcore.job.names import is_builtin
        from hostcore.supervisor.authorizing import authorize_here
        from hostcore.supervisor.check import check_job
        from hostcore.supervisor.opening import examine_run
        from hostcore.supervisor.remote.adopting import find_in_mirror
        from hostcore.supervisor.remote.bringing import examine_surroundings
        from hostcore.supervisor.submit import dry_run, require_no_engine

        plan = plan_of(job, options, runs=self._runs)
        require_no_engine(plan)
        authorize_here(plan)
        plan = examine_surroundings(plan, tell_aside)
        mirrored = find_in_mirror(plan)
        finished = None if mirrored else examine_run(plan)
        checked = check_job(plan)
        here = [*plan.reporters, *plan.uploaders, *plan.resolvers]
        return Validation(
            spec=plan.spec,
            directory=str(plan.directory.path),
            outcome=_outcome(plan, finished, mirrored),
            checked={
                **checked,
                "deprecated": [*checked["deprecated"], *plan.deprecated],
                "other_code": [*checked.get("other_code", ()), *plan.other_code],
            },
            serving=[(one.kind.label, one.ref.provenance) for one in here],
            launch=None if is_builtin(plan.spec.launcher.use, "local") else dry_run(plan),
        )


def _warnings(found: "Discovered") -> list[str]:
    from hostcore.plugins.installed import package_of
    from hostcore.plugins.resolve import undeclared
    from hostcore_hookspecs.kinds import KINDS

    warnings = []
    for (kind, name), refs in found.conflicts.items():
        origins = ", ".join(f"{ref.dist} {ref.version}" for ref in refs)
        warnings.append(f"the {KINDS[kind].label} {name!r} is provided by: {origins}; write distribution/name in a job")
    warnings += [one.sentence for one in found.broken]
    warnings += [
        f"{distribution} does not say which version of hostcore-hookspecs it was made for; it should require one"
        for distribution in undeclared(found)
    ]
    owners: dict[str, set[str | None]] = {}
    for ref in found.refs:
        owners.setdefault(package_of(ref.value), set()).add(ref.dist)
    for ref in found.refs:
        if len(owners[package_of(ref.value)]) > 1:
            from hostcore.plugins.provenance import other_code  # hashes files, which a list does not wait for

            warnings += filter(None, [other_code(ref, path=found.path_of(ref))])
    return warnings


def _outcome(plan: "RunPlan", finished: "RunResult | None", mirrored: str) -> str:
    if mirrored:
        return f"is brought here from {mirrored}, and goes on in {plan.directory.path}"
    if finished:
        return f"finished already at step {finished.step:,}: nothing would be done"
    if plan.directory.path.exists():
        return f"goes on in {plan.directory.path}"
    return f"new, in {plan.directory.path}"


class FolderRun(RunHandle):
    """A run of the folder."""

    def __init__(self, directory: "RunDirectory") -> None:
        from hostcore.runs.history import History

        self._directory = directory
        self._history = History(directory)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._directory.run_id

    def is_over(self) -> bool:
        """Whether it has ended, or is lost, by its directory or its launcher."""
        from hostcore.runs.following import is_over

        return is_over(self._directory)

    def wait(self) -> None:
        """Wait for the next look."""
        from hostcore.runs.following import wait

        wait()

    def status(self) -> "RunStatus":
        """Return its status by its directory."""
        from hostcore.supervisor.run_status import inspect_run

        return inspect_run(self._directory, self._history)

    def events(self, *, attempt: int | None, since: int | None) -> RunLog:
        """Its event log."""
        self._require(attempt, None)
        from hostcore.cli.event_lines import is_wanted
        from hostcore.events.reader import GrowingLog

        log = GrowingLog(self._directory.events)

        def read() -> Iterator[bytes]:
            return (line for line in log.read() if is_wanted(line, attempt=attempt, since=since))

        return _FolderLog(self._directory, read, attempt=attempt)

    def output(self, *, attempt: int | None, rank: int | None) -> RunLog:
        """What a rank printed."""
        from hostcore.runs.output import RankOutput

        self._require(attempt, rank)
        output = RankOutput(self._directory, rank or 0, only=attempt)
        return _FolderLog(self._directory, output.read, output.rest, attempt=attempt)

    def _require(self, attempt: int | None, rank: int | None) -> None:
        from hostcore.runs.output import require_attempt, require_rank

        _refresh(self._directory)
        require_attempt(self._directory, attempt)
        require_rank(self._directory, attempt, rank)

    def cancel(self, *, reason: str, force: bool, wait: bool, watch: "Callable[[RunSummary], None]") -> "Cancellation":
        """Ask its supervisor to end, or end it if it has none."""
        from hostcore.supervisor.cancelling import cancel

        return cancel(self._directory, reason=reason, force=force, wait=wait, watch=watch)

    def places(self, result: "RunResult") -> Sequence[tuple[str, str]]:
        """Files that it has left, and how to go on with it."""
        from hostcore.cli.report import places_in

        return places_in(self._directory, result)


def _refresh(directory: "RunDirectory") -> None:
    """Bring what there is of a run that goes on elsewhere, now and then."""
    if directory.launch.exists():
        from hostcore.supervisor.remote.watching import refresh_far

        refresh_far(directory)


class _FolderLog:
    """A :class:`~hostcore.cli.run_client.RunLog`.

    :param read: Gives the lines that were added since the last time.
    :param rest: Gives a last line without an end.
    """

    def __init__(
        self,
        directory: "RunDirectory",
        read: Callable[[], Iterator[bytes]],
        rest: Callable[[], bytes] = lambda: b"",
        *,
        attempt: int | None,
    ) -> None:
        self.file: str | None = str(directory.events)
        self._directory = directory
        self._attempt = attempt
        self.history = read
        self.rest = rest

    def follow(self) -> Iterator[bytes]:
        """What is added until the run, or the attempt, is over."""
        from hostcore.runs.following import follow, wait

        return follow(self.history, is_over=self._is_over, wait=wait)

    def _is_over(self) -> bool:
        from hostcore.runs.attempts import newest_attempt
        from hostcore.runs.following import is_over

        begun_again = self._attempt is not None and newest_attempt(self._directory.attempts) > self._attempt
        over = begun_again or is_over(self._directory)
        _refresh(self._directory)  # after the end was seen: all of it is read then
        return over

    def empty_because(self) -> str:
        """Nothing: what is not there was not written yet."""
        return ""

    def lost_because(self) -> str:
        """The last sign of life of its supervisor."""
        from hostcore.runs.attempts import newest_attempt
        from hostcore.runs.summary import summarize
        from hostcore.supervisor.run_status import last_sign

        if self._attempt not in (None, newest_attempt(self._directory.attempts)):
            return ""
        summary = summarize(self._directory)
        return last_sign(self._directory, summary) if summary.status == "lost" else ""
