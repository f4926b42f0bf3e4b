"""``hostcore sweep``: run, status, cancel, add-trials, best, schema."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import echo, json_option, print_json, print_table, reports_errors, verbose_option
from hostcore.cli.server_option import server_option
from hostcore_sweeps.completion import sweep_argument, sweeps
from hostcore_sweeps.report.command import report_command

if TYPE_CHECKING:
    from hostcore_sweeps.spec import Sweep
    from hostcore_sweeps.status import SweepStatus

_SAMPLED = 5
#: Suffixes of sweep files: a missing path with one of them is reported as a file, else as a sweep.
_FILES = (".json", ".yaml", ".yml", ".toml")


class _SweepGroup(click.Group):
    """A group whose command ``run`` need not be named: ``hostcore sweep sweep.json``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line."""
        if args and args[0] not in self.commands and args[0] not in self.get_help_option_names(ctx):
            import difflib

            near = difflib.get_close_matches(args[0], self.commands, n=1)
            if near and not ctx.resilient_parsing and not _is_there(args[0]):
                raise click.UsageError(f"No such command {args[0]!r}. Did you mean {near[0]!r}?", ctx=ctx)
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands and options that begin so or, where none does, the sweeps and files."""
        return super().shell_complete(ctx, incomplete) or sweeps(ctx, None, incomplete)


def _is_there(name: str) -> bool:
    """Return whether a name is that of a file or of a sweep."""
    from hostcore_sweeps.folder import sweeps_dir

    return Path(name).exists() or (sweeps_dir() / name).exists()


@click.group("sweep", cls=_SweepGroup, short_help="Search hyperparameters; every trial is a run.")
def sweep_command() -> None:
    """Search hyperparameters by trials that are ordinary runs.

    `hostcore sweep FILE` is `hostcore sweep run FILE`.
    """


@sweep_command.command("run", short_help="Begin a sweep, or go on with one.")
@click.argument("job", metavar="FILE|SWEEP", shell_complete=sweeps)
@click.option("--dry-run", is_flag=True, help=f"Check everything, and show {_SAMPLED} sampled jobs; start nothing.")
@click.option(
    "--sweep-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder of this sweep; HOSTCORE_SWEEPS_DIR/<sweep_id>, or ./sweeps/<sweep_id>, if not given.",
)
@runs_dir_option
@server_option
@json_option
@verbose_option
@reports_errors
def run_command(
    job: str,
    *,
    dry_run: bool,
    sweep_dir: Path | None,
    runs: Path,
    server: str | None,
    as_json: bool,
) -> None:
    """Begin the sweep in FILE (JSON, YAML or TOML), or resume it, or SWEEP, and show it to its end.

    SWEEP is the id of a sweep or its folder. However the process that drove it ended, it is resumed where it was:
    runs that live are watched, those that were killed continue from their checkpoints, none is run twice.

    The first Ctrl-C, SIGTERM, or `hostcore sweep cancel` pauses all trials, each with a checkpoint; a second Ctrl-C
    kills them. Exits 0 when no trial is left to run and one is complete, 1 when none is, 2 when the sweep is invalid,
    75 when its hours are over or at SIGTERM, 130 when it was stopped.
    """
    from hostcore_sweeps.folder import SweepFolder, TrialPlace, find_sweep, sweeps_dir
    from hostcore_sweeps.spec import load_sweep

    place = TrialPlace(runs=runs, server=server)
    file = Path(job)
    if file.is_dir() or (not file.exists() and file.suffix.lower() not in _FILES):
        folder = find_sweep(job)
        sweep, place = folder.read()
        if _is_given("server"):
            folder.require_server(server)
    else:
        sweep = load_sweep(file)
        folder = SweepFolder((sweep_dir or sweeps_dir() / sweep.sweep_id).absolute())
    if _is_given("runs") and folder.sweep.exists():
        folder.require_runs(runs)
    if dry_run:
        from hostcore_sweeps.driving import check_first

        check_first(sweep, place)
        _print_samples(sweep, as_json=as_json)
        return
    from hostcore_sweeps.driving import drive
    from hostcore_sweeps.status import read_status

    end = drive(sweep, folder, place)
    status = read_status(folder)
    if as_json:
        print_json(status.as_dict())
    else:
        _print_end(status)
    raise SystemExit(end.exit_code)


def _is_given(name: str) -> bool:
    """Return whether a parameter is on the command line: variables and defaults count for new sweeps alone."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _print_samples(sweep: "Sweep", *, as_json: bool) -> None:
    from hostcore.errors import all_errors
    from hostcore.job.load import load_job
    from hostcore_hookspecs.errors import HostcoreError
    from hostcore_sweeps.display import short_names, shown
    from hostcore_sweeps.search import TrialSearch
    from hostcore_sweeps.trials import Trial

    search, trials = TrialSearch(sweep, parallel=_SAMPLED), list[Trial]()
    for number in range(min(_SAMPLED, sweep.most_trials)):
        trial = search.sample(number, trials) if search.seen_by(number) == 0 else None
        if trial is None:
            break
        trials.append(trial)
    jobs = [sweep.job_of(trial.number, trial.values) for trial in trials]
    for number, job in enumerate(jobs):
        try:
            load_job(job, job_dir=sweep.job_dir)
        except HostcoreError as error:
            for one in all_errors(error):
                one.file = one.file or f"the job of trial {number}"
            raise
    if as_json:
        print_json({"sweep_id": sweep.sweep_id, "max_trials": sweep.most_trials, "jobs": jobs})
        return
    names = short_names(list(sweep.space))
    rows = [[sweep.run_id(trial.number), *(shown(trial.values, pointer) for pointer in names)] for trial in trials]
    print_table(["RUN", *names.values()], rows)
    echo(f"{sweep.sweep_id}: {sweep.most_trials} trials; these are the first, and nothing was started", err=True)


def _print_end(status: "SweepStatus") -> None:
    _print_table(status, most=_MOST_SHOWN)
    _print_summary(status)
    name = status.folder.path
    if status.best:
        echo(f"  the best trial's job: hostcore sweep best {name}", err=True)
    if status.state != "finished":
        echo(f"  to go on: hostcore sweep run {name}", err=True)


_MOST_SHOWN = 10


def _print_summary(status: "SweepStatus") -> None:
    from hostcore_sweeps.display import failures, summary

    echo(summary(status), err=True)
    for line in [*failures(status), *([status.reason] if status.reason else [])]:
        echo(f"  {line}", err=True)


def _print_table(status: "SweepStatus", *, most: int | None = None) -> None:
    """The trials; of many, the best first."""
    from hostcore_sweeps.display import cells, columns
    from hostcore_sweeps.status import ranked

    rows = list(status.trials) if most is None else ranked(status)[:most]
    if rows:
        print_table(columns(status), [cells(status, row) for row in rows])


@sweep_command.command("status", short_help="Show how a sweep is doing.")
@sweep_argument
@json_option
@reports_errors
def status_command(sweep: str, *, as_json: bool) -> None:
    """Show the trials of SWEEP: its file, its id or its folder. A * is beside the best."""
    from hostcore_sweeps.folder import find_sweep
    from hostcore_sweeps.status import read_status

    status = read_status(find_sweep(sweep))
    if as_json:
        print_json(status.as_dict())
        return
    _print_table(status)
    _print_summary(status)


@sweep_command.command("cancel", short_help="Pause a sweep: its trials write checkpoints and end.")
@sweep_argument
@click.option("--reason", default="stopped by the user", show_default=True, metavar="TEXT", help="Recorded.")
@json_option
@reports_errors
def cancel_command(sweep: str, *, reason: str, as_json: bool) -> None:
    """Stop SWEEP. Trials that run write a checkpoint and end; `hostcore sweep run SWEEP` resumes each where it was."""
    from hostcore_sweeps.driving import stop
    from hostcore_sweeps.folder import find_sweep
    from hostcore_sweeps.status import read_status

    folder = find_sweep(sweep)
    stop(folder, reason)
    status = read_status(folder)
    if as_json:
        print_json(status.as_dict())
    else:
        echo(f"{status.sweep.sweep_id}  {status.state}; to go on: hostcore sweep run {folder.path}")


@sweep_command.command("add-trials", short_help="Raise the number of trials of a sweep.")
@sweep_argument
@click.argument("count", type=click.IntRange(min=1))
@json_option
@reports_errors
def add_trials_command(sweep: str, *, count: int, as_json: bool) -> None:
    """Have SWEEP try COUNT more. A driver that runs takes them up; else `hostcore sweep run SWEEP` does."""
    from hostcore_sweeps.folder import find_sweep
    from hostcore_sweeps.status import read_status

    folder = find_sweep(sweep)
    folder.add_trials(count, folder.read()[0])
    status = read_status(folder)
    if as_json:
        print_json(status.as_dict())
        return
    more = "" if status.state == "running" else f"; to go on: hostcore sweep run {folder.path}"
    echo(f"{status.sweep.sweep_id}  {status.most_trials} trials in all{more}")


@sweep_command.command("best", short_help="Print the job of the best trial, ready to run.")
@sweep_argument
@click.option("--trial", type=int, metavar="N", help="Of this trial, in place of the best.")
@reports_errors
def best_command(sweep: str, *, trial: int | None) -> None:
    """Print the job of the best trial of SWEEP: `hostcore sweep best SWEEP > best.json; hostcore run best.json`.

    It is a job of its own: without the run id and the labels of the trial. Of several objectives, it is the first of
    those that none is better than; --trial chooses another.
    """
    from hostcore_sweeps.folder import find_sweep
    from hostcore_sweeps.status import job_of_trial, read_status

    status = read_status(find_sweep(sweep))
    document = job_of_trial(status, trial)
    if len(status.best) > 1 and trial is None:
        echo(f"trials {', '.join(map(str, status.best))}: none is better; --trial chooses", err=True)
    print_json(document)


@sweep_command.command("schema", short_help="Print the JSON Schema of sweep files.")
@reports_errors
def schema_command() -> None:
    """Print the JSON Schema (2020-12) of sweep files, for editors that complete and check."""
    from hostcore_sweeps.spec import sweep_schema

    print_json(sweep_schema())


sweep_command.add_command(report_command)
