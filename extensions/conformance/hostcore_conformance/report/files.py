"""The report of one plugin or of several as JSON, and files that are there whole or not at all."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hostcore_conformance.result import Report
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


def document(reports: Sequence[Report]) -> dict[str, Any]:
    """Plain JSON: the report itself if there is one, else ``{"reports": […]}``."""
    documents = [report.as_dict() for report in reports]
    return documents[0] if len(documents) == 1 else {"reports": documents}


def as_json(reports: Sequence[Report]) -> str:
    """The text of the file. What UTF-8 cannot hold, as parts of file names, is escaped."""
    text = json.dumps(document(reports), indent=2, ensure_ascii=False) + "\n"
    return text.encode(errors="backslashreplace").decode()
