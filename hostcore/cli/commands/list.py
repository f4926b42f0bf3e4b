"""``hostcore list``."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from hostcore.cli import completion
from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import echo, json_option, print_json, print_table, reports_errors, warn
from hostcore.cli.server_option import run_client, server_option
from hostcore.report.wording import ago, lasting, steps_of
from hostcore.runs.statuses import STATUSES

if TYPE_CHECKING:
    from hostcore.cli.run_client import RunList
    from hostcore.runs.used import Used


@click.command("list", short_help="List the runs, newest first.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(STATUSES),
    metavar="STATUS",
    help=f"Show the runs of a status alone: {', '.join(STATUSES)}.",
)
@click.option(
    "--trainer",
    metavar="NAME",
    help="Show the runs of a trainer alone; its distribution may be left out.",
    shell_complete=completion.plugins("trainer"),
)
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="NAME[VERSIONS]",
    help="Show the runs that used a plugin, in versions such as 'digits>=0.1,<0.2'; repeatable, all must hold.",
    shell_complete=completion.plugins(),
)
@click.option(
    "--distribution",
    "distributions",
    multiple=True,
    metavar="NAME[VERSIONS]",
    help="Show the runs that used a plugin of a distribution, 'my-trainer==1.2'; repeatable, all must hold.",
    shell_complete=completion.distributions,
)
@click.option("--data", metavar="FINGERPRINT", help="Show the runs of training data; its first 8 digits suffice.")
@click.option("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="Show the newest N alone.")
@runs_dir_option
@server_option
@json_option
@reports_errors
def list_command(
    *,
    statuses: Sequence[str],
    trainer: str | None,
    plugins: Sequence[str],
    distributions: Sequence[str],
    data: str | None,
    limit: int | None,
    runs: Path,
    server: str | None,
    as_json: bool,
) -> None:
    """List the runs in the runs folder, newest first.

    DURATION is that of the newest attempt. What a run USED is told of each attempt that used all that was asked for.
    """
    from hostcore.runs.used import UseQuery
    from hostcore_builtin_plugins.control_characters import visible

    use = UseQuery.parse(plugins=plugins, distributions=distributions, data=data)
    found = run_client(server, runs).list(statuses=statuses, trainer=trainer, use=use, limit=limit)
    if as_json:
        print_json(_document(found))
    elif found.runs:
        _print(found)
    else:
        echo(found.nothing, err=True)
    if found.unknown:
        told = "1 run does not say" if found.unknown == 1 else f"{found.unknown:,} runs do not say"
        warn(f"{told} what all attempts used, and may be meant as well: not begun, or of an earlier hostcore")
    for path, error in found.unreadable:
        echo(f"unreadable: {visible(path, one_line=True)}: {error}", err=True)


def _document(found: "RunList") -> dict[str, object]:
    if found.used is None:
        return {"runs": [run.as_dict() for run in found.runs]}
    used = {run_id: [attrs.asdict(one) for one in answer] for run_id, answer in found.used.items()}
    return {"runs": [{**run.as_dict(), "used": used[run.run_id]} for run in found.runs], "unknown": found.unknown}


def _print(found: "RunList") -> None:
    now, used = time.time_ns() // 1_000_000, found.used
    print_table(
        ["RUN", "STATUS", "TRAINER", "STEP", "ATTEMPT", "SUBMITTED", "DURATION", *([] if used is None else ["USED"])],
        [
            (
                *(run.run_id, run.status, run.trainer, steps_of(run.step, run.max_steps), run.attempt),
                *(ago(run.submitted_ms, now), lasting(run.seconds(now))),
                *([] if used is None else ["; ".join(map(_used, used[run.run_id]))]),
            )
            for run in found.runs
        ],
    )


def _used(used: "Used") -> str:
    """``digits 0.1.0 (attempt 1)``; ``data 5f1c22ab90de (attempt 1)`` where no plugin was asked for."""
    from hostcore.runs.used import shown_fingerprint

    names = [f"{one.name} {one.version}" if one.version else one.name for one in used.plugins]
    return f"{', '.join(names) or f'data {shown_fingerprint(used.data)}'} (attempt {used.attempt})"
