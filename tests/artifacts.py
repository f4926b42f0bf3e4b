"""Artifacts and contexts of uploads, as the host makes them. A ``conftest`` imports the fixtures."""

import hashlib
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore_hookspecs import Artifact, UploadContext

PREFIX = "run-1/framework=tiny"


@pytest.fixture
def artifact(tmp_path: Path) -> Callable[..., Artifact]:
    """``artifact("a/b.bin", b"...")``: its content lies elsewhere, under another name."""

    def make(relative_path: str, content: bytes, **more: Any) -> Artifact:
        path = tmp_path / "spool" / uuid.uuid4().hex
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        keys = {"kind": "checkpoint", "sha256": hashlib.sha256(content).hexdigest(), "size": len(content), **more}
        return Artifact(path=str(path), relative_path=relative_path, **keys)

    return make


def upload_context(**changes: Any) -> UploadContext:
    told = {"run_id": "run-1", "run_dir": "/runs/run-1", "base_uri": None, "prefix": PREFIX}
    return UploadContext(**{**told, "is_canceled": lambda: False, **changes})


@pytest.fixture
def context() -> Callable[..., UploadContext]:
    return upload_context
