"""Broken when an upload does not come to its end, or should not begin."""

import posixpath
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import attrs
from reference_plugins.uploader import PIECE_BYTES, ReferenceUploader

from hostcore_hookspecs import Artifact, FatalError, TransientError, UploadReceipt


class WritesInPlace(ReferenceUploader):
    """Writes large files piece by piece, under their name."""

    def put(self, url: str, artifact: Artifact) -> None:
        at = 0
        if artifact.size < PIECE_BYTES:
            super().put(url, artifact)
            return
        for piece in self.pieces(artifact):
            headers = {"Content-Length": str(len(piece)), "Content-Range": f"bytes {at}-{at + len(piece) - 1}/*"}
            self.send("PUT", url, iter([piece]), headers)
            at += len(piece)


class GivesUpForGood(ReferenceUploader):
    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        try:
            return super().upload_artifact(artifact)
        except TransientError as error:
            raise FatalError(error.message) from error


class NeverAsks(ReferenceUploader):
    def pieces(self, artifact: Artifact) -> Iterator[bytes]:
        with Path(artifact.path).open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece


class ResolvesPaths(ReferenceUploader):
    def url_of(self, artifact: Artifact) -> str:
        return f"{self._settings.url}/{quote(posixpath.normpath(f'{self._prefix}/{artifact.relative_path}'))}"


class KeepsACopy(ReferenceUploader):
    """Copies each file to a folder first: a folder, or what the path says."""

    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        copy = Path(artifact.path).parent / "copies" / artifact.relative_path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(Path(artifact.path).read_bytes())
        return super().upload_artifact(artifact)


class ShowsItsToken(ReferenceUploader):
    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        try:
            return super().upload_artifact(artifact)
        except TransientError as error:
            token = self._settings.token
            raise TransientError(f"{artifact.path}?token={token.value if token else ''}") from error


class PutsItsTokenIntoTheUri(ReferenceUploader):
    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        receipt, token = super().upload_artifact(artifact), self._settings.token
        return attrs.evolve(receipt, uri=f"{receipt.uri}?token={token.value if token else ''}")
