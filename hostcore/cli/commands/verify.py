"""``hostcore verify``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hostcore.cli import completion
from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import echo, json_option, print_json, reports_errors, style, table

if TYPE_CHECKING:
    from hostcore.runs.directory import RunDirectory
    from hostcore.verification.checks import RunCheck

_SHOWN = {"failed": "FAILED"}
_COLORS = {"failed": "red", "warning": "yellow", "ok": "green"}


@click.command("verify", short_help="Prove that a run has lost, skipped and repeated nothing.")
@click.argument("run", shell_complete=completion.runs)
@runs_dir_option
@json_option
@reports_errors
def verify_command(run: str, runs: Path, as_json: bool) -> None:
    """Prove that RUN has lost, skipped and repeated nothing.

    Reads every byte of its checkpoints and compares it with the commit records; recomputes which rows of the data it
    should have been trained on, and compares; and reads its logs from end to end. Changes nothing.

    RUN is a run id, the beginning of one, or a run directory. Exits 0 if everything is as it should be, 1 if something
    is not, and 2 if there is no such run.
    """
    from hostcore.runs.find import find_run
    from hostcore.runs.result import FAILED

    directory = find_run(run, runs)
    from hostcore.verification.run_checks import examine_run

    summary, checks = examine_run(directory)
    ok = all(check.status != "failed" for check in checks)
    if as_json:
        print_json({"run_id": directory.run_id, "ok": ok, "checks": [check.as_dict() for check in checks]})
    else:
        _print(checks, directory, ok=ok, running=summary.status == "running")
    if not ok:
        sys.exit(FAILED)


def _print(checks: "list[RunCheck]", directory: "RunDirectory", *, ok: bool, running: bool) -> None:
    """Print the checks for people, and the verdict."""
    from hostcore.cli.wording import NOTHING
    from hostcore.verification.log_checks import UNSEEN

    rows = [(_SHOWN.get(one.status, one.status), one.id, one.path or NOTHING, one.message) for one in checks]
    head, *lines = table(["", "CHECK", "WHERE", "FOUND"], rows)
    echo(head)
    for check, line in zip(checks, lines, strict=True):
        echo(style(line, fg=_COLORS["failed"]) if check.status == "failed" else line)
    failed = sum(check.status == "failed" for check in checks)
    so_far = " so far; it runs" if running else ""
    unseen = f"; {UNSEEN}" if any(check.message.startswith(UNSEEN) for check in checks) else ""
    verdict = f"nothing lost, skipped or repeated{so_far}{unseen}" if ok else f"{failed} of {len(checks)} checks FAILED"
    echo(f"\n{style(verdict, fg='green' if ok else 'red', bold=True)}  {directory.run_id}")
