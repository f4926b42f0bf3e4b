"""A new package on the disk: whole, or not at all."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from hostcore_hookspecs.errors import HostcoreError


class CannotWrite(HostcoreError):
    """The folder of a new package cannot be made."""

    code = "scaffold.folder"


def write_package(files: Mapping[str, str], target: Path) -> None:
    """Write the files of a package.

    They are written into a folder beside the target, which then gets its name: an interruption leaves nothing.

    :param files: Content by path below the target.
    :param target: The folder to make. An empty one may be there; the one above it must be.
    :raises CannotWrite: Something is there already, or the disk says no.
    """
    if not target.parent.is_dir():
        hint = f"make it: mkdir -p {target.parent}"
        raise CannotWrite(f"there is no folder {target.parent} to write to", file=str(target.parent), hint=hint)
    _require_free(target)
    beside = target.with_name(f".{target.name}.{uuid4().hex[:8]}.new")
    try:
        for name, content in files.items():
            path = beside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        beside.rename(target)  # also onto an empty folder, but onto nothing that was made meanwhile
    except OSError as error:
        raise CannotWrite(f"cannot write {target}: {error.strerror or error}", file=str(target)) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _require_free(target: Path) -> None:
    if not target.exists() and not target.is_symlink():
        return
    if target.is_dir() and not target.is_symlink() and not any(target.iterdir()):
        return
    is_full = target.is_dir() and not target.is_symlink()
    what = "is there already, and not empty" if is_full else "is there already, and not a folder"
    hint = "choose another name, or another folder with --into; nothing was changed"
    raise CannotWrite(f"{target} {what}", code="scaffold.exists", file=str(target), hint=hint)
