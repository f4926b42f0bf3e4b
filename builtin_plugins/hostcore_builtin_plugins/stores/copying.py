"""Copying an artifact into a store: look, write if need be, and look again."""

import hashlib
import mimetypes
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final, Protocol, Self

import attrs

from hostcore_builtin_plugins.stores.errors import ObjectMissing, is_denied, upload_errors
from hostcore_hookspecs import Artifact, FatalError, TransientError, UploadReceipt

#: Size of the pieces that are read at once.
PIECE_BYTES: Final = 8 << 20


@attrs.frozen(kw_only=True)
class Content:
    """The bytes of an artifact, read in pieces until the upload is to be given up."""

    #: The file to read; absolute.
    path: str
    #: In bytes.
    size: int
    #: In lower-case hexadecimal.
    sha256: str
    #: By its name; None if that has no known ending.
    media_type: str | None
    is_canceled: Callable[[], bool] = attrs.field(eq=False)

    @classmethod
    def of(cls, artifact: Artifact, is_canceled: Callable[[], bool]) -> Self:
        """Return the content of an artifact.

        :raises FatalError: It is not there, or has changed since it was committed, or its path leads elsewhere.
        """
        place = PurePosixPath(artifact.relative_path)
        if place.is_absolute() or ".." in place.parts:
            raise FatalError(f"{artifact.relative_path} leads out of the run", file=artifact.path)
        try:
            size = Path(artifact.path).stat().st_size
        except FileNotFoundError as error:
            raise FatalError(f"{artifact.relative_path} is gone", file=artifact.path) from error
        if size != artifact.size:
            message = f"{artifact.relative_path} has {size:,} bytes, and had {artifact.size:,} when it was committed"
            raise FatalError(message, file=artifact.path)
        media_type, encoding = mimetypes.guess_type(artifact.relative_path)
        return cls(
            path=artifact.path,
            size=size,
            sha256=artifact.sha256,
            media_type=None if encoding else media_type,
            is_canceled=is_canceled,
        )

    def pieces(self, piece_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
        """Yield the bytes, in order; none for an empty file.

        :raises TransientError: Once the upload is to be given up.
        """
        with Path(self.path).open("rb") as file:
            while piece := file.read(piece_bytes):
                self.go_on()
                yield piece

    def go_on(self) -> None:
        """Raise :class:`TransientError` once the upload is to be given up."""
        if self.is_canceled():
            raise TransientError("the upload was given up because the run is ending")

    def is_digest(self, sha256: str) -> bool:
        """Return True if it has this checksum, in any case."""
        return sha256.lower() == self.sha256.lower()


def digest_of(pieces: Iterable[bytes]) -> tuple[int, str]:
    """Return the number of bytes, and their SHA-256 in lower-case hexadecimal."""
    size, digest = 0, hashlib.sha256()
    for piece in pieces:
        size += len(piece)
        digest.update(piece)
    return size, digest.hexdigest()


class ObjectStore(Protocol):
    """Keeps objects under paths, which have ``/`` and start at the store's own root. Used from several threads."""

    def uri(self, path: str) -> str:
        """Return the whole name of an object."""

    def size(self, path: str) -> int | None:
        """Return the size of an object, asked anew; None if there is none."""

    def pieces(self, path: str, size: int, content: Content) -> Iterator[bytes]:
        """Yield the bytes of an object, in order.

        :param size: Their number.
        :param content: The content to compare with; it ends the reading.
        """

    def put(self, content: Content, path: str) -> None:
        """Write an object, or replace it, so that readers see the old one, if any, or the new one."""


def copy(store: ObjectStore, content: Content, path: str, *, verify: bool) -> UploadReceipt:
    """Write the content, unless the object has it.

    :param verify: Read back all that was written.
    :raises TransientError: The store, or the way to it, fails; or the run is ending.
    :raises FatalError: The store refuses.
    """
    uri = store.uri(path)
    with upload_errors(uri):
        if _is_there(store, content, path):
            return UploadReceipt(uri=uri, size=content.size, sha256=content.sha256, existed=True)
        store.put(content, path)
        size, sha256 = store.size(path), ""
        if size is not None and verify:
            size, sha256 = digest_of(store.pieces(path, size, content))
        return UploadReceipt(uri=uri, size=size or 0, sha256=sha256)


def _is_there(store: ObjectStore, content: Content, path: str) -> bool:
    """Return True if an object has the content; an equal size is no proof: the tensors of two checkpoints have one."""
    try:
        if store.size(path) != content.size:
            return False
        _, sha256 = digest_of(store.pieces(path, content.size, content))
    except (FileNotFoundError, ObjectMissing):  # removed since
        return False
    except Exception as error:
        # Who may write need not be allowed to look; S3 does not even tell them that there is nothing.
        if is_denied(error):
            return False
        raise
    return content.is_digest(sha256)
