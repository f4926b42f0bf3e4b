"""Broken in how they open, close and end."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from reference_plugins.uploader import ReferenceUploader

from hostcore_hookspecs import Artifact, UploadContext, UploadReceipt


class OpensOnce(ReferenceUploader):
    def __init__(self, *, settings: ReferenceUploader.Settings) -> None:
        super().__init__(settings=settings)
        self._pool = ThreadPoolExecutor(4)

    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        return self._pool.submit(super().upload_artifact, artifact).result()

    def close(self) -> None:
        self._pool.shutdown()


class ClosesWhatWasUploaded(ReferenceUploader):
    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        self._last = artifact
        return super().upload_artifact(artifact)

    def close(self) -> None:
        _ = f"the last one was {self._last.relative_path}"


class ClosesOnce(ReferenceUploader):
    def open(self, ctx: UploadContext) -> None:
        super().open(ctx)
        self._lock = threading.Lock()
        self._lock.acquire()

    def close(self) -> None:
        self._lock.release()


class ClosesWhatWasOpened(ClosesOnce):
    def close(self) -> None:
        if self._lock.locked():
            self._lock.release()


class KeepsTheProcess(ReferenceUploader):
    """Has a thread that nobody stops; the kit kills its process."""

    def open(self, ctx: UploadContext) -> None:
        super().open(ctx)
        threading.Thread(target=time.sleep, args=(60,), daemon=False).start()
