"""A job file, in JSON, YAML or TOML, with the files that it includes, as a :class:`~hostcore.job.document.Document`."""

import ast
import difflib
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import attrs

from hostcore.errors import all_errors
from hostcore.events.regular_file import NotRegular, open_regular
from hostcore.job.document import Document
from hostcore.job.formats import ENDINGS, format_of
from hostcore.job.json_values import checked
from hostcore.job.names import as_import_path
from hostcore.job.paths import absolute, is_uri, with_absolute_paths
from hostcore.job.wording import found, one_of
from hostcore_hookspecs.errors import HostcoreError

INCLUDE: Final = "include"
#: For editors: the schema of a file. It is no part of the job.
SCHEMA: Final = "$schema"
#: Of one job; a file that is included twice counts twice.
_MOST_FILES: Final = 64
#: Errors about the name of a file, and not about its content.
_OF_NAMES: Final = ("job.not_found", "job.unreadable")
#: Files that a hint lists.
_MOST_LISTED = 5


class WrongInclude(HostcoreError):
    """A name in ``include`` that cannot be included."""

    code = "job.include"


def read_job(path: Path) -> Document:
    """A job file with all that it includes. Relative paths of an included file start at its own folder.

    :raises HostcoreError: See :func:`hostcore.job.files.read_file`; ``job.include``; ``value.type``. An error about the
        file itself has no ``file``.
    """
    return _JobReader().read(path, within=())


def without_annotations(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """A job without what only editors read."""
    return {key: value for key, value in job.items() if key != SCHEMA or not isinstance(value, str)}


@attrs.define
class _JobReader:
    """Reads the files of one job."""

    files: int = 0

    def read(self, path: Path, *, within: tuple[Path, ...]) -> Document:
        """A file with what it includes.

        :param within: The files that include it, the job's own first.
        """
        self.files += 1
        try:
            own = dict(without_annotations(read_file(path)))
            names = _names(own.pop(INCLUDE)) if INCLUDE in own else None
        except HostcoreError as error:
            for one in all_errors(error):
                one.file = str(path) if one.code not in _OF_NAMES else None
            raise
        if names is None:
            return Document(own)
        document = Document()
        for pointer, name in names:
            document = document.patched(self._included(path, pointer, name, within=(*within, path)))
        return document.patched(Document(own, dict.fromkeys(own, str(path))))

    def _included(self, by: Path, pointer: str, name: str, *, within: tuple[Path, ...]) -> Document:
        file = Path(absolute(name, Path() if is_piped_in(by) else by.parent))
        try:
            self._check(name, file, within)
            included = self.read(file, within=within)
        except HostcoreError as error:
            for one in all_errors(error):
                if one.code in _OF_NAMES and one.file is None:
                    one.message = f"it includes {found(name)}, and {one.message}"
                if one.file is None:  # about the name, which is in the including file
                    one.pointer, one.file = pointer, str(by)
            raise
        job = _at_home(included.job, folder_of(file))
        return Document(job, included.origins or dict.fromkeys(job, str(file)))

    def _check(self, name: str, file: Path, within: tuple[Path, ...]) -> None:
        if is_uri(name):
            raise WrongInclude(f"{found(name)} is not on this machine", hint="copy it, and include the copy")
        if self.files >= _MOST_FILES:
            raise WrongInclude(f"a job is read from at most {_MOST_FILES} files")
        if any(_is_same(file, one) for one in within):
            chain = " → ".join(map(str, (*within, file)))
            raise WrongInclude(f"these files include one another: {chain}", hint="take one of them out")


def _names(value: Any) -> list[tuple[str, str]]:
    """The names in ``include``, each with its pointer."""
    named = [(f"/{INCLUDE}", value)]
    if isinstance(value, list):
        named = [(f"/{INCLUDE}/{index}", name) for index, name in enumerate(value)]
    for pointer, name in named:
        if not isinstance(name, str) or not name:
            message = f"expected the name of a file, or a list of such, found {found(name)}"
            raise HostcoreError(message, code="value.type", pointer=pointer, hint='"include": ["base.json"]')
    return named


def _is_same(file: Path, other: Path) -> bool:
    try:
        return file.samefile(other)
    except (OSError, ValueError):
        return False


def _at_home(job: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """An included file with the paths in it, also of its profiles, absolute."""
    changed = with_absolute_paths(job, folder)
    if isinstance(profiles := changed.get("profiles"), Mapping):
        changed["profiles"] = {
            name: with_absolute_paths(patch, folder) if isinstance(patch, Mapping) else patch
            for name, patch in profiles.items()
        }
    return changed


def read_file(path: Path) -> dict[str, Any]:
    """The job file as a plain dictionary.

    :raises HostcoreError: ``job.not_found``, ``job.unreadable``, ``job.too_large``, ``job.encoding``, ``job.empty``,
        ``job.syntax``, ``job.too_deep``, ``job.duplicate_key``, ``job.value`` or ``job.not_object``.
    """
    if path.suffix == ".py" and os.path.isfile(path):  # noqa: PTH113 - Path's raises for a name that is too long
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
    if is_piped_in(path) and stat.S_ISFIFO(path.stat().st_mode):
        return path.open("rb")
    return open_regular(path, follow_links=True)  # a named pipe may have no writer, and would be waited for without end


def is_piped_in(path: Path) -> bool:
    """Return True if a path names a descriptor that this process was started with, as ``<(…)`` of a shell does."""
    return str(path) == "/dev/stdin" or str(path.parent) in ("/dev/fd", "/proc/self/fd")


def folder_of(path: Path) -> Path:
    """The folder that the relative paths and import paths of a job file start at; absolute.

    The file's own; the working directory for a job that is piped in.
    """
    return Path.cwd() if is_piped_in(path) else path.absolute().parent


def _python(path: Path) -> HostcoreError:
    trainer = as_import_path(path.name) + _trainer_in(path)
    hint = (
        f'write a job file beside it that names its trainer: {{"trainer": "{trainer}", "dataset": '
        '{"parquet_paths": ["train.parquet"]}}; `hostcore run job.json` trains then'
    )
    return HostcoreError("this is Python, not a job", code="job.unreadable", hint=hint)


def _trainer_in(path: Path) -> str:
    """The class of a Python file that has a ``train_step``; empty if none has. The file is read, not run."""
    with suppress(OSError, SyntaxError, ValueError, RecursionError):
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.ClassDef) and "train_step" in [getattr(one, "name", "") for one in node.body]:
                return node.name
    return ""


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
