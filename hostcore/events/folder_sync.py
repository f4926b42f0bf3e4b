"""Durable names in a folder of records: a power cut does not undo them."""

import errno
import os
from pathlib import Path
from types import ModuleType


def sync_folder(path: Path, *, system: ModuleType = os) -> None:
    """Bring the names in a folder to the disk: what was created, renamed or removed in it.

    :param system: ``os``, or what has its ``open``, ``fsync`` and ``close``.
    """
    descriptor = system.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        system.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot do this for folders; their renames are durable by themselves.
        if error.errno != errno.EINVAL:
            raise
    finally:
        system.close(descriptor)
