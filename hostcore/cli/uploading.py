"""Upload what a run has not delivered, with its progress: ``hostcore upload``, and runs that had finished before."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from hostcore.cli.output import echo, style, warn
from hostcore.errors import described
from hostcore.runs.directory import RunDirectory
from hostcore.supervisor.delivery.backlog import Backlogs
from hostcore.supervisor.delivery.redelivery import choose_uploaders, upload_until, uploads_of
from hostcore.supervisor.delivery.uploads import Uploads
from hostcore_builtin_plugins.control_characters import visible
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import HostcoreError

_REST_PATIENCE_SECONDS: Final = 10.0


class UploadRefused(HostcoreError):
    """The run uploads by itself."""

    code = "uploads.refused"


def upload_rest(directory: RunDirectory, *, is_asked_to_stop: Callable[[], bool], as_json: bool) -> None:
    """Copy the undelivered files of a run that was finished before, and report them if there were any.

    A failure is a warning: the run has long ended.
    """
    try:
        uploads = prepare_uploads(directory, (), None)
        interrupted = carry_out(uploads, _REST_PATIENCE_SECONDS, is_asked_to_stop=is_asked_to_stop, in_lines=False)
    except HostcoreError as error:
        warn(described(error))
        return
    pending = uploads.pending()
    is_new = any(one.uploaded_files > one.existed_files for one in pending.by_uploader.values())
    if interrupted or not pending.is_complete or is_new:
        print_pending(directory, pending, interrupted=interrupted, as_json=as_json)


def prepare_uploads(directory: RunDirectory, names: Sequence[str], to: str | None) -> Uploads:
    """Prepare the undelivered uploads of a run.

    :param names: Of these uploaders of its own alone; empty for all.
    :param to: To this URI, in place of its own uploaders.
    :raises UploadRefused: When its ledger cannot be written.
    """
    try:
        return uploads_of(directory, choose_uploaders(directory, names, to=to))
    except OSError as error:
        raise UploadRefused(f"the ledger of uploads cannot be written: {error}", file=str(directory.uploads)) from error


def carry_out(
    uploads: Uploads,
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

    def show_and_ask(pending: Backlogs) -> bool:
        show(uploads, pending)
        return is_asked_to_stop()

    try:
        with _progress(in_lines=in_lines) as show:
            is_stopped = upload_until(uploads, show_and_ask, give_up_seconds=patience_seconds)
            show(uploads, uploads.pending())
    except KeyboardInterrupt:
        return True
    return is_stopped


def document_of(pending: Backlogs) -> dict[str, Any]:
    """Return the outcome as plain JSON."""
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


def print_pending(directory: RunDirectory, pending: Backlogs, *, interrupted: bool, as_json: bool) -> None:
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
def _progress(*, in_lines: bool) -> Iterator[Callable[[Uploads, Backlogs], object]]:
    """Show the progress on standard error: a bar on a terminal, lines elsewhere."""
    if not sys.stderr.isatty():

        def print_lines(uploads: Uploads, _: Backlogs) -> None:
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

        def show(uploads: Uploads, pending: Backlogs) -> None:
            for line in _lines(uploads):
                progress.console.print(visible(line, one_line=True), markup=False, highlight=False, emoji=False)
            done = pending.uploaded_bytes
            progress.update(task, completed=done, total=done + pending.bytes)

        yield show


def _lines(uploads: Uploads) -> list[str]:
    lines = []
    for one in uploads.drain_events():
        if isinstance(one, events.ArtifactUploaded):
            lines.append(f"uploaded  {one.path}  {one.uri}")
        elif isinstance(one, events.UploadFailed):
            again = "; tried again" if one.will_retry else ""
            lines.append(f"failed  {one.path or one.uploader}  {one.message}{again}")
        elif isinstance(one, events.Warning):
            lines.append(f"warning  {one.message}")
    return lines
