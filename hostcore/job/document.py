"""A job file into a plain document: JSON, or YAML or TOML by file name."""

import difflib
import stat
from pathlib import Path
from typing import Any, BinaryIO

from hostcore.events.regular_file import NotRegular, open_regular
from hostcore.job.formats import ENDINGS, format_of
from hostcore.job.json_values import checked
from hostcore.job.names import as_import_path
from hostcore.job.wording import found, one_of
from hostcore_hookspecs.errors import HostcoreError

#: Files that a hint lists.
_MOST_LISTED = 5


def read_document(path: Path) -> dict[str, Any]:
    """The job file as a plain dictionary.

    :raises HostcoreError: ``job.not_found``, ``job.unreadable``, ``job.too_large``, ``job.encoding``, ``job.empty``,
        ``job.syntax``, ``job.too_deep``, ``job.duplicate_key``, ``job.value`` or ``job.not_object``.
    """
    if path.suffix == ".py" and path.is_file():
        raise _python(path)
    written = format_of(path)
    text = _read_text(path, written.most_bytes)
    if not text.strip():
        raise HostcoreError("the job file is empty", code="job.empty", hint='the least that runs is {"trainer": …}')
    value = written.parse(text)
    if not isinstance(value, dict):
        message = f"a job must be an object, found {found(value)}"
        raise HostcoreError(message, code="job.not_object", pointer="", hint='the least that runs is {"trainer": …}')
    plain: dict[str, Any] = checked(value)
    return plain


def _read_text(path: Path, limit: int) -> str:
    try:
        size = path.stat().st_size  # before reading, so that a huge file costs nothing
        if size <= limit:
            with _open(path) as file:
                data = file.read(limit + 1)  # a pipe has no size
            size = len(data)
    except NotRegular:
        hint = "save the job to a file, or pipe it in: … | hostcore run /dev/stdin"
        raise HostcoreError("this is not a regular file", code="job.unreadable", hint=hint) from None
    except FileNotFoundError:
        raise HostcoreError("there is no such job file", code="job.not_found", hint=_neighbours(path)) from None
    except IsADirectoryError:
        message = "this is a folder, not a job file"
        raise HostcoreError(message, code="job.unreadable", hint=_contents(path)) from None
    except OSError as error:
        message = f"the job file cannot be read: {(error.strerror or str(error)).lower()}"
        raise HostcoreError(message, code="job.unreadable") from None
    except ValueError:
        raise HostcoreError("this is not a file name", code="job.unreadable") from None
    if size > limit:
        most = f"{limit // 1024**2} MB" if limit >= 1024**2 else f"{limit // 1024} KB"
        message = f"the job file is too large: at most {most} are read"
        raise HostcoreError(message, code="job.too_large", hint="data belongs into files that the job names")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"the job file is not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}"
        raise HostcoreError(message, code="job.encoding", hint="save it as UTF-8") from None


def _open(path: Path) -> BinaryIO:
    if _is_piped_in(path) and stat.S_ISFIFO(path.stat().st_mode):
        return path.open("rb")
    return open_regular(path, follow_links=True)  # a named pipe may have no writer, and would be waited for without end


def _is_piped_in(path: Path) -> bool:
    """Whether a path names a descriptor that this process was started with, as ``<(…)`` of a shell does."""
    return str(path) == "/dev/stdin" or str(path.parent) in ("/dev/fd", "/proc/self/fd")


def folder_of(path: Path) -> Path:
    """The folder that the relative paths and import paths of a job file start at; absolute.

    The file's own; the working directory for a job that is piped in.
    """
    return Path.cwd() if _is_piped_in(path) else path.absolute().parent


def _python(path: Path) -> HostcoreError:
    trainer = as_import_path(path.name)
    hint = f'give a job file, which may name a trainer in it: "trainer": "{trainer}"'
    return HostcoreError("this is Python, not a job", code="job.unreadable", hint=hint)


def _job_files(folder: Path) -> list[Path]:
    """The files in a folder that may be jobs, by their names; none if it cannot be read."""
    try:
        return sorted(entry for entry in folder.iterdir() if entry.suffix.lower() in ENDINGS)
    except OSError:
        return []


def _contents(folder: Path) -> str:
    files = [str(file) for file in _job_files(folder)]
    if not files:
        return "there is no job file in it, none that ends in .json, .yaml or .toml"
    more = f", and {len(files) - _MOST_LISTED} more" if len(files) > _MOST_LISTED else ""
    return f"in it: {', '.join(files[:_MOST_LISTED])}{more}"


def _neighbours(path: Path) -> str | None:
    entries = _job_files(path.parent)
    # Without the endings, which make any two names alike.
    stems = difflib.get_close_matches(path.stem, {entry.stem for entry in entries}, n=3, cutoff=0.6)
    near = sorted(
        (entry.name for entry in entries if entry.stem in stems), key=lambda name: stems.index(Path(name).stem)
    )
    return f"did you mean {one_of(near)}?" if near else None
