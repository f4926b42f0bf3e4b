"""The uploader: what hostcore calls, and from which threads."""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import attrs

from hostcore_hookspecs import Artifact, FatalError, TransientError, UploadContext, UploadReceipt

PIECE = 1 << 20
#: Errors that trying again does not mend.
LASTING = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG}


class VaultUploader:
    """Keeps runs in a folder, such as a disk of its own: as they were, but each different content only once.

    The content is in ``objects/``, named by its SHA-256; what stands in ``runs/`` under the name of the artifact is a
    hard link to it. A model whose first layers are frozen costs their size once, however many checkpoints there are.
    """

    @attrs.frozen(kw_only=True)
    class Settings:
        """Settings of a job beside ``"use": "vault"``."""

        #: The folder; absolute. It must be there: an empty folder that is made may be one where no disk is mounted.
        path: Path

    def __init__(self, *, settings: Settings) -> None:
        self._root = settings.path

    def open(self, ctx: UploadContext) -> None:
        """Called once per attempt, before the first artifact."""
        self._runs = self._root / "runs" / ctx.prefix
        self._is_canceled: Callable[[], bool] = ctx.is_canceled

    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        """Copy an artifact. Called from several threads at once, so it changes nothing in ``self``."""
        if not self._root.is_dir():
            raise TransientError(f"{self._root} is not there", hint="mount the disk")
        content = self._root / "objects" / artifact.sha256[:2] / artifact.sha256
        target = self._runs / artifact.relative_path
        if not os.path.normpath(target).startswith(f"{self._runs}{os.sep}"):
            raise FatalError(f"{artifact.relative_path} leads out of the folder of the run")
        with _errors(self._root):
            target.parent.mkdir(parents=True, exist_ok=True)
            if not _has(content, artifact):
                content.parent.mkdir(parents=True, exist_ok=True)
                self._copy(artifact, content)
            existed = target.exists() and target.samefile(content)
            if not existed:
                _link(content, target)
            # What is there now, read from there: hostcore compares it with what should be there.
            return UploadReceipt(
                uri=target.as_uri(), size=target.stat().st_size, sha256=_sha256(target), existed=existed
            )

    def _copy(self, artifact: Artifact, target: Path) -> None:
        """Copy the content: first under a temporary name; it gets its own once all of it is on the disk."""
        with _temporary(target.parent) as partial:
            with Path(artifact.path).open("rb") as reader, partial.open("xb") as writer:
                while piece := reader.read(PIECE):
                    if self._is_canceled():  # the run ends, and its time is short
                        raise TransientError("stopped in the middle: the run is ending")
                    writer.write(piece)
                writer.flush()
                os.fsync(writer.fileno())
            try:
                target.hardlink_to(partial)
            except FileExistsError:  # another thread was quicker; or what is there is damaged
                if not _has(target, artifact):
                    partial.replace(target)


def _link(content: Path, target: Path) -> None:
    """Give the content its name in the run, at once; a log that has grown takes the name from what was there before."""
    with _temporary(target.parent) as partial:
        partial.hardlink_to(content)
        partial.replace(target)


@contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    """A hidden name that no other thread or process uses; what has it is gone in the end."""
    partial = folder / f".{uuid4().hex}.partial"
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def _has(content: Path, artifact: Artifact) -> bool:
    """Return whether the content is there, whole: an earlier process may have been killed right after writing it."""
    try:
        return content.stat().st_size == artifact.size and _sha256(content) == artifact.sha256
    except FileNotFoundError:
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as reader:
        return hashlib.file_digest(reader, "sha256").hexdigest()


@contextmanager
def _errors(root: Path) -> Iterator[None]:
    """Convert the system's errors into transient and fatal ones."""
    try:
        yield
    except OSError as error:
        message = f"cannot write to {root}: {error.strerror}"
        if error.errno in LASTING:
            raise FatalError(message, hint="allow this user to write there") from error
        raise TransientError(message) from error
