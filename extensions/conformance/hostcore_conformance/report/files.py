"""Files that are there whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path

from hostcore_hookspecs.errors import HostcoreError


class ReportUnwritable(HostcoreError):
    """A report has no place where it can be written."""

    code = "conformance.report"


def require_writable(path: Path, option: str) -> None:
    """See that a file can be written, before the work is done that it is to tell of.

    :param option: What names the file.
    :raises ReportUnwritable: It cannot.
    """
    folder = path.absolute().parent
    if path.is_dir():
        raise ReportUnwritable(f"{option} is a file, and this is a folder", file=str(path))
    if not folder.is_dir():
        raise ReportUnwritable(f"{option}: there is no folder {folder}", file=str(path), hint=f"mkdir -p {folder}")
    if not os.access(folder, os.W_OK):
        raise ReportUnwritable(f"{option}: nothing can be written in {folder}", file=str(path))


def write_whole(path: Path, content: str) -> None:
    """Write a file; what was there before is replaced.

    :raises ReportUnwritable: It cannot be written; what was there before is intact.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(content, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ReportUnwritable(f"cannot be written: {error.strerror or error}", file=str(path)) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
