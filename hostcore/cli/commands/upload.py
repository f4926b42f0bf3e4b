"""``hostcore upload``."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hostcore.cli import completion
from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import (
    echo,
    json_option,
    plugins_print_aside,
    print_json,
    reports_errors,
    style,
    verbose_option,
    warn,
)
from hostcore_hookspecs.errors import HostcoreError

if TYPE_CHECKING:
    from hostcore.runs.directory import RunDirectory

if TYPE_CHECKING:
    from hostcore.supervisor.delivery.upload_queue import Pending
    from hostcore.supervisor.delivery.uploads import Uploads

_REST_PATIENCE_SECONDS = 10.0


class UploadRefused(HostcoreError):
    """The run uploads by itself."""

    code = "uploads.refused"


@click.command("upload", short_help="Copy what the uploaders of a run have not copied.")
@click.argument("run", shell_complete=completion.runs)
@click.option(
    "--uploader", "names", multiple=True, metavar="NAME", help="One of the run's own uploaders; repeatable. [all]"
)
@click.option("--to", metavar="URI", help="Copy everything to URI/RUN/framework=…, and leave the run's own uploaders.")
@click.option(
    "--patience",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long everything may fail before the rest is left.",
)
@runs_dir_option
@json_option
@verbose_option
@reports_errors
def upload_command(
    run: str,
    *,
    names: Sequence[str],
    to: str | None,
    patience: float,
    runs: Path,
    as_json: bool,
    verbose: bool,  # noqa: ARG001
) -> None:
    """Upload what is left of RUN: everything that has not arrived yet, as uploads.jsonl in its directory has it.

    RUN is a run id, the beginning of one, or a run directory. Its own uploaders copy it, with the settings that they
    have in its job. May be interrupted, and goes on where it was. Exits 0 if everything is there, 1 if something is
    left, 130 if it was interrupted, and 2 if there is no such run or uploader.
    """
    from hostcore.runs.find import find_run
    from hostcore.runs.result import CANCELLED, FAILED
    from hostcore.runs.summary import summarize

    if to is not None and names:
        raise UploadRefused("--to is a place of its own: none of the run's uploaders copies to it", file="--uploader")
    if to is not None and "://" not in to:
        to = str(Path(to).absolute())
    directory = find_run(run, runs)
    if summarize(directory).status == "running":
        raise UploadRefused(
            f"{directory.run_id} is running, and uploads by itself",
            file=str(directory.lease),
            hint="what is left when it has ended can be uploaded then",
        )
    with plugins_print_aside(as_json):
        uploads = _prepared(directory, names, to)
        interrupted = _carried_out(uploads, patience)
    pending = uploads.pending()
    if as_json:
        print_json({"run_id": directory.run_id, **_document(pending)})
    _print(directory, pending, interrupted=interrupted, as_json=as_json)
    if interrupted:
        sys.exit(CANCELLED)
    if not pending.is_complete:
        sys.exit(FAILED)


def upload_rest(directory: "RunDirectory", *, is_asked_to_stop: Callable[[], bool], as_json: bool) -> None:
    """Copy the undelivered files of a run that was finished before, and report them if there were any.

    A failure is a warning: the run has long ended.
    """
    from hostcore.errors import described

    try:
        uploads = _prepared(directory, (), None)
        interrupted = _carried_out(uploads, _REST_PATIENCE_SECONDS, is_asked_to_stop=is_asked_to_stop, in_lines=False)
    except HostcoreError as error:
        warn(described(error))
        return
    pending = uploads.pending()
    is_new = any(one.uploaded_files > one.existed_files for one in pending.by_uploader.values())
    if interrupted or not pending.is_complete or is_new:
        _print(directory, pending, interrupted=interrupted, as_json=as_json)


def _prepared(directory: "RunDirectory", names: Sequence[str], to: str | None) -> "Uploads":
    # Imported here: it loads plugins, and an unknown run is reported without.
    from hostcore.supervisor.delivery.redelivery import choose_uploaders, uploads_of

    try:
        return uploads_of(directory, choose_uploaders(directory, names, to=to))
    except OSError as error:
        raise UploadRefused(f"the ledger of uploads cannot be written: {error}", file=str(directory.uploads)) from error


def _carried_out(
    uploads: "Uploads",
    patience_seconds: float,
    *,
    is_asked_to_stop: Callable[[], bool] = lambda: False,
    in_lines: bool = True,
) -> bool:
    """Upload until nothing is left, or nothing gets through.

    :param is_asked_to_stop: Where signals are only noted.
    :param in_lines: Print lines where there is no terminal.
    :return: True if it was interrupted.
    """
    from hostcore.supervisor.delivery.redelivery import upload_until

    def show_and_ask(pending: "Pending") -> bool:
        show(uploads, pending)
        return is_asked_to_stop()

    try:
        with _progress(in_lines=in_lines) as show:
            is_stopped = upload_until(uploads, show_and_ask, give_up_seconds=patience_seconds)
            show(uploads, uploads.pending())
    except KeyboardInterrupt:
        return True
    return is_stopped


def _document(pending: "Pending") -> dict[str, Any]:
    uploaded, skipped, failed = [], [], []
    for name, one in pending.by_uploader.items():
        uploaded += [
            {"uploader": name, "path": unit.path, "uri": unit.uri, "files": unit.files, "bytes": unit.bytes}
            for unit in one.copied
        ]
        skipped += [{"uploader": name, "path": path} for path in one.known]
        unusable = {"": one.unusable} if one.unusable else {}
        left = {**dict.fromkeys(one.left, "not uploaded yet"), **one.failing, **one.given_up, **unusable}
        failed += [{"uploader": name, "path": path, "message": message} for path, message in left.items()]
    return {"uploaded": uploaded, "skipped": skipped, "failed": failed}


def _print(directory: "RunDirectory", pending: "Pending", *, interrupted: bool, as_json: bool) -> None:
    """Print the outcome for people."""
    for name, one in pending.by_uploader.items():
        problems = {**one.failing, **one.given_up} if one.unusable is None else {"everything": one.unusable}
        for path, message in problems.items():
            echo(f"{style('not uploaded', fg='red')}  {path}  {name}: {message}", err=True)
    units = sum(len(one.copied) for one in pending.by_uploader.values())
    known = sum(len(one.known) for one in pending.by_uploader.values())
    what = f"{pending.uploaded_files:,} files, {pending.uploaded_bytes / 1e6:,.1f} MB" if units else "nothing new"
    before = f"; {known:,} were there before" if known else ""
    if interrupted:
        word, color = "interrupted", "yellow"
        before += f"; left: {pending.files:,} files. The same command goes on"
    else:
        word, color = ("uploaded", "green") if pending.is_complete else ("incomplete", "red")
    echo(f"{style(word, fg=color, bold=True)}  {directory.run_id}  ({what}{before})", err=as_json)


@contextmanager
def _progress(*, in_lines: bool) -> "Iterator[Callable[[Uploads, Pending], object]]":
    """Show the progress on standard error: a bar on a terminal, lines elsewhere."""
    from hostcore_builtin_plugins.control_characters import visible

    if not sys.stderr.isatty():

        def print_lines(uploads: "Uploads", _: "Pending") -> None:
            for line in _lines(uploads) if in_lines else ():
                echo(line, err=True)

        yield print_lines
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        *(BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()),
    )
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as progress:
        task = progress.add_task("uploading", total=None)

        def show(uploads: "Uploads", pending: "Pending") -> None:
            for line in _lines(uploads):
                progress.console.print(visible(line, one_line=True), markup=False, highlight=False, emoji=False)
            done = pending.uploaded_bytes
            progress.update(task, completed=done, total=done + pending.bytes)

        yield show


def _lines(uploads: "Uploads") -> list[str]:
    from hostcore_hookspecs import events

    lines = []
    for one in uploads.news():
        if isinstance(one, events.ArtifactUploaded):
            lines.append(f"uploaded  {one.path}  {one.uri}")
        elif isinstance(one, events.UploadFailed):
            again = "; tried again" if one.will_retry else ""
            lines.append(f"failed  {one.path or one.uploader}  {one.message}{again}")
        elif isinstance(one, events.Warning):
            lines.append(f"warning  {one.message}")
    return lines
