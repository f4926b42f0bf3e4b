"""Where a path starts that a job gives relative to something."""

import os
from pathlib import Path


def is_uri(path: str) -> bool:
    """Whether it names something outside the local file system's own syntax: ``s3://…``, ``file://…``, ``zip://a::s3://b``."""
    return "://" in path


def is_object_store(uri: str) -> bool:
    """Whether a URI names a store that every machine reaches, and no folder or memory of one machine."""
    scheme, separator, _ = uri.partition("://")
    return bool(separator) and scheme.rpartition("::")[2] not in ("file", "local", "memory")


def absolute(path: str, base_dir: Path | None) -> str:
    """The path, absolute. ``~`` is the home folder; ``..`` stays, since it may follow a link.

    :param base_dir: Where relative paths start. None: they stay relative.
    """
    expanded = Path(os.path.expanduser(path))  # noqa: PTH111 - unlike Path's, leaves an unknown ~user alone
    return str(expanded if base_dir is None else base_dir / expanded)
