"""``hostcore upload``."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from hostcore.cli import completion
from hostcore.cli.job_options import runs_dir_option
from hostcore.cli.output import json_option, plugins_print_aside, print_json, reports_errors, verbose_option


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
) -> None:
    """Upload what is left of RUN: everything that has not arrived yet, as uploads.jsonl in its directory has it.

    RUN is a run id, the beginning of one, or a run directory. Its own uploaders copy it, with the settings that they
    have in its job. May be interrupted, and goes on where it was. Exits 0 if everything is there, 1 if something is
    left, 130 if it was interrupted, and 2 if there is no such run or uploader.
    """
    from hostcore.cli.uploading import UploadRefused, carry_out, document_of, prepare_uploads, print_pending
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
        uploads = prepare_uploads(directory, names, to)
        interrupted = carry_out(uploads, patience)
    pending = uploads.pending()
    if as_json:
        print_json({"run_id": directory.run_id, **document_of(pending)})
    print_pending(directory, pending, interrupted=interrupted, as_json=as_json)
    if interrupted:
        sys.exit(CANCELLED)
    if not pending.is_complete:
        sys.exit(FAILED)
