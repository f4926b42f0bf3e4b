"""``hostcore sweep report``."""

from pathlib import Path

import click

from hostcore.cli.output import echo, json_option, print_json, reports_errors
from hostcore_sweeps.completion import sweep_argument


@click.command("report", short_help="Write a page about a sweep, for people: trials, history, parameters.")
@sweep_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the report goes; SWEEP.html in the working directory, if not given.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there and is not a report.")
@click.option("--open", "show", is_flag=True, help="Open the report in a browser.")
@json_option
@reports_errors
def report_command(sweep: str, *, output: Path | None, force: bool, show: bool, as_json: bool) -> None:
    """Write a report of SWEEP: one HTML file with its trials, its history, its parameters, and its curves.

    SWEEP is the file of a sweep, its id or its folder. The report needs nothing else, so it can be sent to others or
    kept. Works while the sweep runs, too. An older report of the same name is replaced.
    """
    from hostcore.events.writer import now_ms
    from hostcore_builtin_plugins.progress import format_bytes
    from hostcore_inspect.report.document import require_replaceable, save
    from hostcore_sweeps.folder import find_sweep
    from hostcore_sweeps.report.page import counts_in_words, write_page
    from hostcore_sweeps.status import read_status

    folder = find_sweep(sweep)
    status = read_status(folder)
    path = output or Path(f"{status.sweep.sweep_id}.html")
    require_replaceable(path, force=force)
    page = write_page(status, now=now_ms()).encode()
    save(path, page)
    if as_json:
        told = {"sweep_id": status.sweep.sweep_id, "status": status.state, "report": str(path.absolute())}
        print_json({**told, "bytes": len(page), "trials": len(status.trials), "best": list(status.best)})
    else:
        about = f"{status.state}, {counts_in_words(status)}"
        echo(f"report of {status.sweep.sweep_id} ({about}): {path} ({format_bytes(len(page))})")
    if show:
        import webbrowser

        if not webbrowser.open(path.absolute().as_uri()):
            echo("there is no browser to open it in", err=True)
