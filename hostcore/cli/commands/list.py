"""``hostcore list``."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from hostcore.cli import completion
from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import echo, json_option, print_json, print_table, reports_errors, warn
from hostcore.cli.server_option import run_client, server_option
from hostcore.cli.wording import NOTHING, ago, figure, lasting, steps_of
from hostcore.runs.statuses import STATUSES

if TYPE_CHECKING:
    from hostcore.cli.run_client import RunClient, RunList
    from hostcore.runs.used import Used

    Metrics = Mapping[str, float | None]


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
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Show the value of a metric; repeatable.")
@click.option("--sort", metavar="NAME", help="Sort by a metric, the least first; runs without it come last.")
@click.option("--reverse", is_flag=True, help="Of --sort: the greatest first.")
@click.option("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="Show the first N alone.")
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
    metrics: tuple[str, ...],
    sort: str | None,
    reverse: bool,
    limit: int | None,
    runs: Path,
    server: str | None,
    as_json: bool,
) -> None:
    """List the runs in the runs folder, newest first.

    DURATION is that of the newest attempt. A metric has the value that was recorded last. What a run USED is told of
    each attempt that used all that was asked for.
    """
    from hostcore.runs.used import UseQuery
    from hostcore_builtin_plugins.control_characters import visible

    if reverse and not sort:
        raise click.UsageError("--reverse goes with --sort: the runs are listed newest first otherwise")
    use = UseQuery.parse(plugins=plugins, distributions=distributions, data=data)
    client = run_client(server, runs)
    found = client.list(statuses=statuses, trainer=trainer, use=use, limit=None if sort else limit)
    names = list(dict.fromkeys([*([sort] if sort else []), *metrics]))
    values = _values(client, [run.run_id for run in found.runs], names) if names else {}
    if sort:
        from hostcore.runs.summary import sorted_by_value

        ordered = sorted_by_value(found.runs, lambda run: values[run.run_id].get(sort), reverse=reverse)
        found = attrs.evolve(found, runs=ordered[:limit])
    if as_json:
        print_json(_document(found, values))
    elif found.runs:
        _print(found, names, values)
    else:
        echo(found.nothing, err=True)
    if found.unknown:
        told = "1 run does not say" if found.unknown == 1 else f"{found.unknown:,} runs do not say"
        warn(f"{told} what all attempts used, and may be meant as well: not begun, or of an earlier hostcore")
    for path, error in found.unreadable:
        echo(f"unreadable: {visible(path, one_line=True)}: {error}", err=True)


def _values(client: "RunClient", run_ids: Sequence[str], names: Sequence[str]) -> dict[str, "Metrics"]:
    """The values of metrics, by run and name.

    :raises HostcoreError: When runs have metrics, and none of them this one.
    """
    from hostcore.job.wording import did_you_mean, near
    from hostcore_hookspecs.errors import HostcoreError

    known = {run_id: client.find(run_id).status().metrics for run_id in run_ids}
    there = sorted({name for metrics in known.values() for name in metrics})
    if there and (missing := [name for name in names if name not in there]):
        hint = did_you_mean(near(missing[0], there)) or f"they have {', '.join(there)}"
        raise HostcoreError(f"no run has a metric {missing[0]!r}", code="metric.unknown", hint=hint)
    return {run_id: {name: metrics[name] for name in names if name in metrics} for run_id, metrics in known.items()}


def _document(found: "RunList", values: "Mapping[str, Metrics]") -> dict[str, object]:
    with_metrics = [{**run.as_dict(), **({"metrics": values[run.run_id]} if values else {})} for run in found.runs]
    if found.used is None:
        return {"runs": with_metrics}
    used = {run_id: [attrs.asdict(one) for one in answer] for run_id, answer in found.used.items()}
    runs = [{**run, "used": used[str(run["run_id"])]} for run in with_metrics]
    return {"runs": runs, "unknown": found.unknown}


def _print(found: "RunList", names: Sequence[str], values: "Mapping[str, Metrics]") -> None:
    now, used = time.time_ns() // 1_000_000, found.used
    print_table(
        [
            *("RUN", "STATUS", "TRAINER", "STEP", "ATTEMPT", "SUBMITTED", "DURATION", *names),
            *([] if used is None else ["USED"]),
        ],
        [
            (
                *(run.run_id, run.status, run.trainer, steps_of(run.step, run.max_steps), run.attempt),
                *(ago(run.submitted_ms, now), lasting(run.seconds(now))),
                *(_figure(values[run.run_id], name) for name in names),
                *([] if used is None else ["; ".join(map(_used, used[run.run_id]))]),
            )
            for run in found.runs
        ],
    )


def _figure(metrics: "Metrics", name: str) -> str:
    return figure(metrics[name]) if name in metrics else NOTHING


def _used(used: "Used") -> str:
    """``digits 0.1.0 (attempt 1)``; ``data 5f1c22ab90de (attempt 1)`` where no plugin was asked for."""
    from hostcore.runs.used import shown_fingerprint

    names = [f"{one.name} {one.version}" if one.version else one.name for one in used.plugins]
    return f"{', '.join(names) or f'data {shown_fingerprint(used.data)}'} (attempt {used.attempt})"
