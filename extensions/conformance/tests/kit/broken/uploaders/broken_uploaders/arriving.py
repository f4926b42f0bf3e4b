"""Broken in what arrives, and in what they say of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import attrs
from reference_plugins.uploader import ReferenceUploader

from hostcore_hookspecs import Artifact, UploadReceipt

FOLDERS = {"checkpoint": "models", "commit": "models", "sample": "samples", "log": "logs"}
ALL_FOLDERS = {**FOLDERS, "config": "config", "plot": "plots", "result": "results"}


class ReturnsNothing(ReferenceUploader):
    def upload_artifact(self, artifact: Artifact) -> Any:
        super().upload_artifact(artifact)


class CountsInKilobytes(ReferenceUploader):
    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        receipt = super().upload_artifact(artifact)
        return attrs.evolve(receipt, size=receipt.size // 1000)


class WritesText(ReferenceUploader):
    def pieces(self, artifact: Artifact) -> Iterator[bytes]:
        text = b"".join(super().pieces(artifact)).decode("utf-8", errors="replace")
        yield text.encode("utf-8")[: artifact.size]


class LosesTheLastPiece(ReferenceUploader):
    """Sends whole pieces of 8 MiB, and zeros for the rest."""

    def pieces(self, artifact: Artifact) -> Iterator[bytes]:
        content = b"".join(super().pieces(artifact))
        sent = len(content) // (8 << 20) * (8 << 20) or len(content)
        yield content[:sent] + bytes(len(content) - sent)


class SkipsTheEmpty(ReferenceUploader):
    def put(self, url: str, artifact: Artifact) -> None:
        if artifact.size:
            super().put(url, artifact)


class SaysAPath(ReferenceUploader):
    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        receipt = super().upload_artifact(artifact)
        return attrs.evolve(receipt, uri=urlsplit(receipt.uri).path)


class NamesTheStep(ReferenceUploader):
    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        _ = f"step {artifact.step:06}"
        return super().upload_artifact(artifact)


class KnowsSomeKinds(ReferenceUploader):
    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        _ = FOLDERS[artifact.kind]
        return super().upload_artifact(artifact)


class KnowsAllKinds(ReferenceUploader):
    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        _ = ALL_FOLDERS[artifact.kind]
        return super().upload_artifact(artifact)


class DoesNotQuote(ReferenceUploader):
    def url_of(self, artifact: Artifact) -> str:
        return f"{self._settings.url}/{self._prefix}/{artifact.relative_path}"


class QuotesTooLittle(ReferenceUploader):
    """Cuts names where a URL ends."""

    def url_of(self, artifact: Artifact) -> str:
        return f"{self._settings.url}/{quote(f'{self._prefix}/{artifact.relative_path}').partition('%23')[0]}"


class WritesAscii(ReferenceUploader):
    def url_of(self, artifact: Artifact) -> str:
        return super().url_of(
            attrs.evolve(artifact, relative_path=artifact.relative_path.encode("ascii", "replace").decode())
        )


class Moves(ReferenceUploader):
    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        receipt = super().upload_artifact(artifact)
        Path(artifact.path).unlink()
        return receipt


class RepeatsTheArtifact(ReferenceUploader):
    """Says what it was told."""

    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        receipt = super().upload_artifact(artifact)
        return attrs.evolve(receipt, size=artifact.size, sha256=artifact.sha256)


class HasNoChecksum(ReferenceUploader):
    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        return attrs.evolve(super().upload_artifact(artifact), sha256="")


class PassesOverTheMissing(ReferenceUploader):
    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        try:
            return super().upload_artifact(artifact)
        except OSError:
            return UploadReceipt(uri=self.url_of(artifact), size=artifact.size)
