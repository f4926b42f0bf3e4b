"""What is uploaded, and what is read back: bytes in pieces, and their SHA-256."""

import hashlib
import mimetypes
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final, Self

import attrs

from hostcore_hookspecs import Artifact, FatalError, TransientError

#: Of the pieces that are read at once.
PIECE_BYTES: Final = 8 << 20


@attrs.frozen(kw_only=True)
class Content:
    """The bytes of an artifact. Pieces of them are read, and sent, for as long as the upload is not to be given up."""

    #: Where they can be read; absolute.
    path: str
    #: In bytes.
    size: int
    #: In lower-case hexadecimal.
    sha256: str
    #: As its name says; None if that says nothing.
    media_type: str | None
    is_canceled: Callable[[], bool] = attrs.field(eq=False)

    @classmethod
    def of(cls, artifact: Artifact, is_canceled: Callable[[], bool]) -> Self:
        """What there is to read of an artifact.

        :raises FatalError: It is not there, or is not what it was when it was committed, or its path leads elsewhere.
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
        """The bytes, in order; none for an empty file.

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
        """Whether these are its bytes, by a checksum in any case."""
        return sha256.lower() == self.sha256.lower()


def digest_of(pieces: Iterable[bytes]) -> tuple[int, str]:
    """The number of bytes, and their SHA-256 in lower-case hexadecimal."""
    size, digest = 0, hashlib.sha256()
    for piece in pieces:
        size += len(piece)
        digest.update(piece)
    return size, digest.hexdigest()
