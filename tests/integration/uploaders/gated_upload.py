"""``hostcore upload`` with a store that does not answer when it comes to ``result.json``."""

import threading

from hostcore.cli.commands.upload import upload_command
from hostcore_builtin_plugins.uploaders.fsspec import FsspecUploader
from hostcore_hookspecs.uploader import Artifact, UploadReceipt

_usual = FsspecUploader.upload_artifact


def upload_artifact(self: FsspecUploader, artifact: Artifact) -> UploadReceipt:
    if artifact.kind == "result":
        threading.Event().wait()
    return _usual(self, artifact)


FsspecUploader.upload_artifact = upload_artifact  # type: ignore[method-assign]
upload_command()
