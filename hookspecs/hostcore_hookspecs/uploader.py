"""The uploader contract: copies committed artifacts elsewhere, from the supervisor. It cannot hurt a run.

Uploads happen in threads, several at once: ``upload_artifact`` must be safe to call from several. The files of a
checkpoint come first, in any order, and its commit record last, after all of them have arrived. What has arrived is
written down in the run directory, so that an uploader that comes back resumes where it stopped.

A class may have nothing but wrappers: methods of other names, ``@hookimpl(wrapper=True, specname="upload_artifact")``.
They are around the calls of all other uploaders of the job; nothing is copied to it. A job without another uploader is
refused then.
"""

from collections.abc import Callable

import attrs

from hostcore_hookspecs.job import Job
from hostcore_hookspecs.markers import hookspec

REQUIRED = ("upload_artifact",)


@attrs.frozen(kw_only=True)
class UploadContext:
    """Context of an uploader."""

    run_id: str
    attempt: int = 1
    job: Job = attrs.field(factory=Job)
    #: Absolute.
    run_dir: str
    #: The job's ``checkpoint_base_uri``; None if it has none.
    base_uri: str | None
    #: Where the run belongs below any base: ``<run_id>/framework=<trainer>``. An artifact belongs at
    #: ``<base>/<prefix>/<relative_path>``.
    prefix: str = ""
    #: Whether an upload should give up because the run is ending; to be asked now and then in long transfers.
    is_canceled: Callable[[], bool]


@attrs.frozen(kw_only=True)
class Artifact:
    """One file of the run directory. It does not change while it is uploaded."""

    #: ``checkpoint``, ``commit`` (a checkpoint's record), ``sample``, ``log``, ``config``, ``plot`` or ``result``
    #: (``result.json``, the last of a run).
    kind: str
    #: Where its content can be read; absolute. Not always below the run directory.
    path: str
    #: Below the run directory, with ``/``.
    relative_path: str
    #: In bytes.
    size: int
    #: Of the content, in lower-case hexadecimal.
    sha256: str
    step: int | None = None
    #: Whether it belongs to the last checkpoint of the run.
    final: bool = False


@attrs.frozen(kw_only=True)
class UploadReceipt:
    """Proof that an artifact arrived."""

    uri: str
    #: As found there after writing, in bytes.
    size: int
    #: Of what was found there after writing; empty if unknown.
    sha256: str = ""
    #: Whether it was there before, with the same content, and was not written again.
    existed: bool = False


@hookspec(firstresult=True)
def open(ctx: UploadContext) -> None:
    """Called once per attempt, before the first artifact. Optional.

    :param ctx: About the run.
    :raises FatalError: Nothing is uploaded by it in this attempt.
    :raises Exception: The host calls it again, a few times at once and then at growing intervals.
    """


@hookspec(firstresult=True)
def upload_artifact(artifact: Artifact) -> UploadReceipt:
    """Called for every artifact, after it was committed, from several threads.

    May be called again for one that was uploaded already, by a process that died before it could write that down: look
    first, and do not write it twice. Until it is there whole, nothing must be visible under its name.

    :param artifact: The file to copy.
    :return: What was found there afterwards. Another size or checksum than the artifact's counts as a failure.
    :raises TransientError: The host tries again, after at least ``retry_after_seconds``.
    :raises FatalError: The host does not try this artifact again in this attempt.
    :raises Exception: Any other is taken as a ``TransientError`` without a time.
    """


@hookspec(firstresult=True)
def close() -> None:
    """Called once per attempt, after the last artifact. Optional.

    :raises Exception: A warning; it is not called again.
    """
