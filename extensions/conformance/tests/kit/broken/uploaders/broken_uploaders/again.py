"""Broken when there is something already, or somebody else."""

import time
from pathlib import Path

from reference_plugins.uploader import ReferenceUploader

from hostcore_hookspecs import Artifact, UploadReceipt


class RefusesToOverwrite(ReferenceUploader):
    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        url = self.url_of(artifact)
        if self.look(url)[0] is not None:
            raise FileExistsError(url)
        return super().upload_artifact(artifact)


class WritesAlways(ReferenceUploader):
    def is_there(self, artifact: Artifact, size: int | None, sha256: str) -> bool:
        return False


class LooksAtNames(ReferenceUploader):
    def is_there(self, artifact: Artifact, size: int | None, sha256: str) -> bool:
        return size is not None


class LooksAtSizes(ReferenceUploader):
    def is_there(self, artifact: Artifact, size: int | None, sha256: str) -> bool:
        return size == artifact.size


class WritesOver(ReferenceUploader):
    """Leaves what stands behind the end of what it writes."""

    def put(self, url: str, artifact: Artifact) -> None:
        content = Path(artifact.path).read_bytes()
        headers = {"Content-Length": str(len(content)), "Content-Range": f"bytes 0-{len(content) - 1}/*"}
        self.send("PUT", url, iter([content]), headers)


class LeavesOutThePrefix(ReferenceUploader):
    def url_of(self, artifact: Artifact) -> str:
        return f"{self._settings.url}/{artifact.relative_path}"


class HasOneArtifact(ReferenceUploader):
    """Keeps in ``self`` what belongs to one file."""

    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        self._artifact = artifact
        return super().upload_artifact(artifact)

    def put(self, url: str, artifact: Artifact) -> None:
        time.sleep(0.05)
        super().put(url, self._artifact)
