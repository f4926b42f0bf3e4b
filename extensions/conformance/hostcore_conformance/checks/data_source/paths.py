"""Of sources that read files: URIs, files that are not there, and files that change."""

import glob
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore.job.paths import SOURCE_PATHS, is_uri
from hostcore_conformance.check import check
from hostcore_conformance.checks.data_source.stage import (
    example_settings,
    first_unequal,
    open_example,
    read_rows,
    whole,
)
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.errors import HostcoreError

_NOT_THERE: Final = "not-there"
#: What lies beside a file may belong to it, as the shards of an index do; more than this does not.
_MOST_BESIDE: Final = 200
_MOST_BYTES: Final = 32 << 20


def _takes_paths(subject: Subject) -> str | None:
    keys = ", ".join(SOURCE_PATHS)
    return None if _path_keys(subject) else f"its settings have no path ({keys})"


def _path_keys(subject: Subject) -> list[str]:
    return [key for key in SOURCE_PATHS if subject.settings.get(key)]


@check("data_source.missing_path", requires=("data_source.opens",), capability=_takes_paths)
def missing_path(subject: Subject) -> None:
    """A file that is not there is named.

    The data is opened with a path that leads nowhere in place of one of the example's. open_dataset must raise an error
    of hostcore's (InvalidData) with the name in its message, its file or its hint. A mistyped path is the most common
    mistake in a job; it deserves one line and no traceback.

    What usually breaks it: a FileNotFoundError that passes through, a glob or a list of files that is quietly empty, an
    error of a library that speaks of something else.
    """
    for key in _path_keys(subject):
        given = example_settings(subject)
        entry = given[key] if isinstance(given[key], str) else given[key][0]
        missing = f"{str(entry).rstrip('/').rpartition('/')[0]}/{_NOT_THERE}{Path(str(entry)).suffix}"
        given[key] = missing if isinstance(given[key], str) else [missing, *given[key][1:]]
        try:
            open_example(subject, settings=given)
        except HostcoreError as error:
            told = " ".join(filter(None, (str(error), error.file, error.hint)))
            if _NOT_THERE in told:
                continue
            got = f"{type(error).__name__}: {told}"
        except Exception as error:  # noqa: BLE001 - reported with the exception to raise instead
            got = f"{type(error).__name__}: {error}"
        else:
            got = "no error"
        raise ConformanceError(
            expected=f'InvalidData that names "{missing}", which {key} of the dataset leads to',
            got=got,
            fix='Look for the files in open_dataset, and raise InvalidData(f"{path} does not exist", file=path).',
        )


@check("data_source.memory_uri", level="should", requires=("data_source.deterministic",), capability=_takes_paths)
def memory_uri(subject: Subject) -> None:
    """Data behind a URI is read as well as files of this machine.

    The files of the example are copied into the file system memory:// of fsspec, the settings lead there, and the same
    rows are read. A source that reads that reads s3://, gs://, abfs:// and https:// too: in a cluster data is seldom on
    the local disk.

    Open with fsspec.open(path, "rb"), or fsspec.core.url_to_fs(path), which take local paths as well; never with
    open() or pathlib.
    """
    with _in_memory(subject) as settings:
        expected = whole(subject).all_rows
        try:
            dataset = open_example(subject, settings=settings)
            found = [row for shard in dataset.shards() for row in read_rows(dataset, shard)]
        except Exception as error:  # noqa: BLE001 - reported with the class to use instead
            got = f"{type(error).__name__}: {error}"
        else:
            if found == expected:
                return
            got = first_unequal(expected, found)
        raise ConformanceError(
            expected=f"the {len(expected)} rows of the example from memory://",
            got=got,
            fix="Open local and remote files in one way: fsspec.core.url_to_fs(path), then filesystem.open(path).",
        )


@contextmanager
def _in_memory(subject: Subject) -> Iterator[Mapping[str, Any]]:
    import fsspec

    memory = fsspec.filesystem("memory")
    root = f"/hostcore-check-{os.getpid()}"

    def put(source: Path, name: str) -> None:
        memory.pipe_file(f"{root}/{name}", source.read_bytes())

    try:
        yield _copied(subject, put, f"memory:/{root}")
    finally:
        if memory.exists(root):
            memory.rm(root, recursive=True)


@check("data_source.version_changes", level="should", requires=("data_source.shards",), capability=_takes_paths)
def version_changes(subject: Subject) -> None:
    """The version of a shard changes when its content does.

    A copy of the example is opened; one of its files is replaced with another of them, and the copy is opened again.
    The versions of that file's shards must be others, or opening fails because files no longer fit. It needs an example
    of at least two files with different content. Versions are part of the data's fingerprint: a run that resumes on
    changed data is refused rather than going on with other rows.

    A good version is made of size and time of modification, or of the store's ETag: fsspec's ukey(path) gives both.
    """
    folder = subject.folder()
    copies: list[Path] = []

    def put(source: Path, name: str) -> None:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        copies.append(target)

    settings = _copied(subject, put, str(folder))
    before = {shard.id: shard for shard in open_example(subject, settings=settings).shards()}
    replaced, by = _two_that_differ(copies, before)
    later = replaced.stat().st_mtime_ns + 10**10  # clocks of file systems are coarse
    replaced.write_bytes(by.read_bytes())
    os.utime(replaced, ns=(later, later))
    try:
        after = {shard.id: shard for shard in open_example(subject, settings=settings).shards()}
    except HostcoreError:
        return  # it has noticed in another way
    both = sorted(before.keys() & after.keys())
    changed = [id_ for id_ in both if replaced.name in id_] or both
    if changed and all(before[id_].version == after[id_].version for id_ in changed):
        example = before[changed[0]]
        raise ConformanceError(
            expected=f"another version of the shards of {replaced.name} after the file was replaced",
            got=f"{example.version!r} before and after, of {example.id!r}",
            fix="Make the version of size and time of modification: fsspec's filesystem.ukey(path).",
        )


def _two_that_differ(copies: list[Path], shards: Mapping[str, Any]) -> tuple[Path, Path]:
    """A file of the data, and another of the same kind to put in its place."""
    named = [file for file in copies if any(file.name in id_ for id_ in shards)] or copies
    for one in named:
        for other in named:
            if one.suffix == other.suffix and one.read_bytes() != other.read_bytes():
                return one, other
    raise NotApplicable("the example has no two files of one kind: give one with two", wants_example=True)


@attrs.frozen
class _CopiedPath:
    """A path of the settings: a folder to copy, and what the path has below it."""

    folder: Path
    rest: str
    files: tuple[Path, ...]


def _copied(subject: Subject, put: Callable[[Path, str], None], root: str) -> dict[str, Any]:
    """The settings of the example, leading to copies of its files.

    :param put: Takes a file, and the path of its copy below the root.
    """
    settings = example_settings(subject)
    numbers: dict[Path, int] = {}

    def copy(text: str) -> str:
        entry = _entry(text)
        known = entry.folder in numbers
        number = numbers.setdefault(entry.folder, len(numbers))
        if not known:
            for file in entry.files:
                put(file, f"{number}/{file.relative_to(entry.folder).as_posix()}")
        return f"{root}/{number}" + (f"/{entry.rest}" if entry.rest else "")

    for key in _path_keys(subject):
        given = settings[key]
        settings[key] = copy(given) if isinstance(given, str) else [copy(one) for one in given]
    return settings


def _entry(text: str) -> _CopiedPath:
    from hostcore_builtin_plugins.sources.data_files import split_pattern  # which needs pyarrow

    if is_uri(text):
        raise NotApplicable("the example's data is behind a URI: give one of local files", wants_example=True)
    path = Path(text)
    if path.is_dir():
        return _CopiedPath(path, "", _below(path))
    folder, pattern = split_pattern(text, os.path.lexists)
    if pattern:
        matches = (Path(folder, one) for one in glob.glob(pattern, root_dir=folder, recursive=True))  # noqa: PTH207
        return _CopiedPath(Path(folder), pattern, tuple(one for one in matches if one.is_file()))
    beside = _below(path.parent)
    small = len(beside) <= _MOST_BESIDE and sum(one.stat().st_size for one in beside) <= _MOST_BYTES
    return _CopiedPath(path.parent, path.name, beside if small else (path,))


def _below(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(one for one in folder.rglob("*") if one.is_file()))
