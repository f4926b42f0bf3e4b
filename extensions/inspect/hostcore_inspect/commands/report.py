"""``hostcore report``."""

from pathlib import Path

import click

from hostcore.cli import completion
from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import echo, json_option, print_json, reports_errors


@click.command("report", short_help="Write a page about a run, for people: curves, events, failure.")
@click.argument("run", shell_complete=completion.runs)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the report goes; RUN.html in the working directory, if not given.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there and is not a report.")
@click.option("--open", "show", is_flag=True, help="Open the report in a browser.")
@runs_dir_option
@json_option
@reports_errors
def report_command(run: str, *, output: Path | None, force: bool, show: bool, runs: Path, as_json: bool) -> None:
    """Write a report of RUN: one HTML file with its curves, events, checkpoints, samples, plugins, and its failure.

    The file needs nothing else, so it can be sent to others or kept. Works while the run is active, too. An older
    report of the same name is replaced.

    RUN is a run id, the beginning of one, or a run directory. An unknown run exits 2.
    """
    from hostcore.cli.report import name_of
    from hostcore.events.writer import now_ms
    from hostcore.runs.find import find_run
    from hostcore.runs.history import History
    from hostcore.runs.record import RunRecord
    from hostcore.supervisor.run_status import inspect_run
    from hostcore_builtin_plugins.progress import format_bytes
    from hostcore_inspect.report.document import require_replaceable, save
    from hostcore_inspect.report.page import write_page
    from hostcore_inspect.report.recording import Recording

    directory = find_run(run, runs)
    path = output or Path(f"{directory.run_id}.html")
    require_replaceable(path, force=force)
    run_status = inspect_run(directory, History(directory))
    recording = Recording.read(directory.events)
    record = RunRecord.read(directory.record)
    page = write_page(run_status, record, recording, name=name_of(directory), now=now_ms()).encode()
    save(path, page)
    if as_json:
        told = {"run_id": directory.run_id, "status": run_status.summary.status, "report": str(path.absolute())}
        print_json({**told, "bytes": len(page), "events": recording.count, "metrics": len(recording.curves)})
    else:
        echo(f"report of {directory.run_id} ({run_status.summary.status}): {path} ({format_bytes(len(page))})")
    if show:
        import webbrowser

        if not webbrowser.open(path.absolute().as_uri()):
            echo("there is no browser to open it in", err=True)
