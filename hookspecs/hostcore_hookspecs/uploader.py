"""The uploader contract: copies committed artifacts elsewhere, from the supervisor. It cannot hurt a run."""

from collections.abc import Callable

import attrs

from hostcore_hookspecs.markers import hookspec

REQUIRED = ("upload_artifact",)


@attrs.frozen(kw_only=True)
class UploadContext:
    """What an uploader is told about the run."""

    run_id: str
    #: Absolute.
    run_dir: str
    #: The job's ``checkpoint_base_uri``; None if it has none.
    base_uri: str | None
    #: Whether the upload should give up, for long transfers.
    is_canceled: Callable[[], bool]


@attrs.frozen(kw_only=True)
class Artifact:
    """One committed file of the run directory."""

    #: ``checkpoint``, ``sample``, ``log``, ``config`` or ``plot``.
    kind: str
    #: Absolute.
    path: str
    #: Below the run directory, with ``/``.
    relative_path: str
    #: In bytes.
    size: int
    #: Of the content, in hexadecimal; empty for a file that still grows.
    sha256: str = ""
    step: int | None = None


@attrs.frozen(kw_only=True)
class UploadReceipt:
    """Proof that an artifact arrived."""

    uri: str
    #: In bytes.
    size: int
    sha256: str = ""


@hookspec(firstresult=True)
def open(ctx: UploadContext) -> None:
    """Called once per attempt, before the first artifact. Optional.

    :param ctx: About the run.
    """


@hookspec(firstresult=True)
def upload_artifact(artifact: Artifact) -> UploadReceipt:
    """Called for every artifact, after it was committed. May be called again for one that was uploaded already.

    :param artifact: The file to copy.
    :raises TransientError: The host tries again later.
    :raises FatalError: The host does not try this artifact again.
    """


@hookspec(firstresult=True)
def close() -> None:
    """Called once per attempt, after the last artifact. Optional."""
