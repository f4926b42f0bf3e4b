"""Artifacts and contexts, as the host makes them."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore_hookspecs import Artifact, UploadContext


@pytest.fixture
def artifact(tmp_path: Path) -> Callable[..., Artifact]:
    """``artifact("a/b.bin", b"...")``: its content lies elsewhere, under another name."""

    def make(relative_path: str, content: bytes, *, kind: str = "checkpoint", **more: Any) -> Artifact:
        path = tmp_path / "spool" / hashlib.sha256(relative_path.encode() + content).hexdigest()
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        keys = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), **more}
        return Artifact(kind=kind, path=str(path), relative_path=relative_path, **keys)

    return make


@pytest.fixture
def context(tmp_path: Path) -> Callable[..., UploadContext]:
    def make(**changes: Any) -> UploadContext:
        told = {"run_id": "run-1", "run_dir": str(tmp_path / "run-1"), "base_uri": None, "prefix": "run-1/framework=x"}
        return UploadContext(**{**told, "is_canceled": lambda: False, **changes})

    return make
