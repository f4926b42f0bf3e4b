"""The client of a folder of this machine: see :mod:`hostcore.cli.run_client`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from hostcore.cli.run_client import CheckedJob, InstalledPlugins, RunClient, RunList, RunRequest, StartedRun

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from hostcore.cli.folder_run import FolderRun
    from hostcore.cli.job_options import JobOptions
    from hostcore.plugins.installed import Discovered
    from hostcore.runs.result import RunResult
    from hostcore.runs.used import UseQuery
    from hostcore.supervisor.interrupts import Interrupts
    from hostcore.supervisor.plan import RunPlan


class FolderClient(RunClient):
    """The client of a folder.

    :param runs: Of all runs; absolute.
    """

    def __init__(self, runs: Path) -> None:
        self._runs = runs

    def start(self, request: RunRequest, interrupts: "Interrupts") -> "AbstractContextManager[StartedRun]":
        """Start or resume a run."""
        from hostcore.cli.starting import start_in_folder

        return start_in_folder(request, interrupts, self._runs)

    def plugins(self, found: "Discovered | None" = None) -> InstalledPlugins:
        """List the installed plugins.

        :param found: The result of a discovery that was made already.
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
        """List the runs of the folder, newest first."""
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
        """Find a run, by its directory as well."""
        from hostcore.cli.folder_run import FolderRun
        from hostcore.runs.find import find_run

        return FolderRun(find_run(name, self._runs))

    def validate(self, job: Path, options: "JobOptions") -> CheckedJob:
        """Check a job file for a run in the folder."""
        from hostcore.cli.output import tell_aside
        from hostcore.cli.planning import plan_job
        from hostcore.job.names import is_builtin
        from hostcore.supervisor.authorizing import authorize_here
        from hostcore.supervisor.check import check_job
        from hostcore.supervisor.opening import examine_run
        from hostcore.supervisor.remote.adopting import find_in_mirror
        from hostcore.supervisor.remote.bringing import examine_surroundings
        from hostcore.supervisor.submit import dry_run, require_no_engine

        plan = plan_job(job, options, runs=self._runs)
        require_no_engine(plan)
        authorize_here(plan)
        plan = examine_surroundings(plan, tell_aside)
        mirrored = find_in_mirror(plan)
        finished = None if mirrored else examine_run(plan)
        checked = check_job(plan)
        here = [*plan.reporters, *plan.uploaders, *plan.resolvers]
        return CheckedJob(
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
