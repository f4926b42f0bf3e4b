"""``hostcore rm``."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hostcore.cli import completion
from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import echo, json_option, print_json, print_table, reports_errors

if TYPE_CHECKING:
    from hostcore.runs.directory import RunDirectory
    from hostcore.runs.summary import RunSummary

yes_option = click.option("--yes", is_flag=True, help="Remove them; without it, they are listed and stay.")
force_option = click.option("--force", is_flag=True, help="Remove runs that have not copied everything, too.")


@click.command("rm", short_help="Remove runs with all that they have left here.")
@click.argument("names", metavar="RUN…", nargs=-1, required=True, shell_complete=completion.runs)
@yes_option
@force_option
@runs_dir_option
@json_option
@reports_errors
def rm_command(names: Sequence[str], *, yes: bool, force: bool, runs: Path, as_json: bool) -> None:
    """Remove the directories of runs: checkpoints, samples, logs, results. What was uploaded stays where it is.

    RUN is a run id, the beginning of one, or a run directory. Lists what would be removed, unless --yes is given. A run
    that is running, or about to, is refused, and so is, without --force, a run whose uploaders have not copied
    everything; then none is removed.
    """
    from hostcore.runs.find import find_run
    from hostcore.runs.summary import summarize
    from hostcore.supervisor.removing import require_delivered, require_over

    found = list({one.path: one for one in (find_run(name, runs) for name in names)}.values())
    chosen = [(one, summarize(one)) for one in found]
    for directory, summary in chosen:
        require_over(directory, summary)
        if not force:
            require_delivered(directory)
    remove_runs(chosen, yes=yes, as_json=as_json)


def remove_runs(
    chosen: "Sequence[tuple[RunDirectory, RunSummary]]",
    *,
    yes: bool,
    as_json: bool,
    leftovers: "Sequence[RunDirectory]" = (),
) -> None:
    """Show runs with their sizes, and remove them.

    :param yes: Whether they are removed.
    :param leftovers: Of killed removals; removed as well.
    """
    from hostcore.cli.wording import ago
    from hostcore.supervisor.removing import remove_leftover, remove_run, size_of
    from hostcore_builtin_plugins.progress import format_bytes

    sizes = [size_of(directory) for directory, _ in chosen]
    left = [(directory, size_of(directory)) for directory in leftovers]
    if yes:
        for directory, _ in chosen:
            remove_run(directory)
        for directory in leftovers:
            remove_leftover(directory)
    if as_json:
        rows = [
            {**run.as_dict(), "path": str(directory.path), "bytes": size}
            for (directory, run), size in zip(chosen, sizes, strict=True)
        ]
        rest = [{"run_id": one.run_id, "path": str(one.path), "bytes": size} for one, size in left]
        print_json({"removed": yes, "runs": rows, **({"leftovers": rest} if rest else {})})
        return
    if not chosen and not left:
        echo("there is nothing to remove", err=True)
        return
    now = time.time_ns() // 1_000_000
    print_table(
        ["RUN", "STATUS", "SUBMITTED", "SIZE", "DIRECTORY"],
        [
            (run.run_id, run.status, ago(run.submitted_ms, now), format_bytes(size), str(directory.path))
            for (directory, run), size in zip(chosen, sizes, strict=True)
        ]
        + [(one.run_id, "half removed", "", format_bytes(size), str(one.path)) for one, size in left],
    )
    sizes += [size for _, size in left]
    total = f"{len(sizes):,} run{'s' * (len(sizes) > 1)}, {format_bytes(sum(sizes))}"
    echo(f"removed {total}" if yes else f"{total}; nothing was removed: --yes does it", err=True)
