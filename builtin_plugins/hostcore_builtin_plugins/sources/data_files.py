"""Finds the files that a data source's settings name: files, folders, globs and URIs."""

import difflib
import glob
import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

import attrs
from fsspec.implementations.local import LocalFileSystem

from hostcore_builtin_plugins.sources.files import DataFile, FileTree, LocalFileTree, RemoteFileTree, is_hidden
from hostcore_builtin_plugins.stores.errors import data_errors
from hostcore_builtin_plugins.stores.location import Location
from hostcore_hookspecs import InvalidData

#: Looking for a remote file is waiting.
_SEARCH_THREADS = 16
_MAGIC = re.compile(r"[*?[]")
_EACH_ONCE = "a dataset has each file once: take it out of one of the entries"
_REAL_FILES = "a dataset has each file once: remove the second name, or list the files"


@attrs.frozen(kw_only=True)
class _Entry:
    """One entry of the job's paths."""

    text: str
    pointer: str
    tree: FileTree
    #: Within the tree.
    path: str

    def error(self, message: str, hint: str, file: str | None = None) -> InvalidData:
        return InvalidData(message, pointer=self.pointer, file=file or self.text, hint=hint)


def find_files(
    paths: Sequence[str] | str, *, suffixes: tuple[str, ...], storage_options: Mapping[str, Any], pointer: str
) -> tuple[DataFile, ...]:
    """Find all files, in the order of the entries, sorted by path within a folder or a glob.

    A file of this machine that a folder or a glob leads to through several folders, as links to folders do, is found
    once. A second name of a file (a link, a hard link) is an error.

    :param paths: Absolute paths of files and folders, globs, URIs for fsspec. A folder is searched at any depth, for
        files with one of the suffixes; names that begin with ``.`` or ``_`` are skipped.
    :param suffixes: Such as ``(".parquet",)``.
    :param storage_options: For the file systems of URIs.
    :param pointer: Where the job names the paths.
    :raises InvalidData: An entry names nothing, or one file has two names.
    """
    entries = {pointer: paths} if isinstance(paths, str) else {f"{pointer}/{i}": path for i, path in enumerate(paths)}
    found: dict[Hashable, DataFile] = {}
    for where, text in entries.items():
        entry = _entry(text, where, storage_options)
        with data_errors(text, where):
            files = sorted(_search(entry, suffixes), key=lambda file: file.path)
        for file in files:
            first = found.setdefault(file.identity or file.name, file)
            if first is not file:
                raise entry.error(_named_twice(first, file, f"the second time by {text}"), _EACH_ONCE, file.name)
    return tuple(found.values())


def find_file(path: str, *, storage_options: Mapping[str, Any], pointer: str) -> DataFile:
    """Find one file.

    :param path: Absolute, or a URI for fsspec.
    :param storage_options: For the file system of a URI.
    :param pointer: Where the job names it.
    :raises InvalidData: There is no such file.
    """
    entry = _entry(path, pointer, storage_options)
    with data_errors(path, pointer):
        kind = entry.tree.kind(entry.path)
        if kind == "file":
            return entry.tree.file(entry.path)
    if kind == "folder":
        raise entry.error(f"{path} is a folder", "name a file in it")
    raise entry.error(f"{path} does not exist", _nearby(entry.tree, entry.path))


def find_below(file: DataFile, names: Sequence[str], *, pointer: str) -> tuple[DataFile, ...]:
    """Find the files that another one names.

    :param file: The other one.
    :param names: Paths that start at the folder of that file.
    :param pointer: Where the job names the other one.
    :raises InvalidData: One of them is not there.
    """
    tree = file.tree()
    folder = file.path.rpartition("/")[0]

    def find(name: str) -> DataFile:
        path = f"{folder}/{name}"
        with data_errors(name, pointer):
            if tree.kind(path) == "file":
                return tree.file(path)
        message = f"{file.name} names {name}, and there is no such file"
        raise InvalidData(message, pointer=pointer, file=file.name, hint=_nearby(tree, path))

    with ThreadPoolExecutor(_SEARCH_THREADS, thread_name_prefix="find-files") as pool:
        files = tuple(pool.map(find, names))
    found: dict[Hashable, DataFile] = {}
    for one in files:
        first = found.setdefault(one.identity or one.name, one)
        if first is not one:
            message = _named_twice(first, one, f"by {file.name}")
            raise InvalidData(message, pointer=pointer, file=one.name, hint="a dataset has each file once")
    return files


def split_pattern(path: str, exists: Callable[[str], bool]) -> tuple[str, str]:
    """Split a path into the part that is meant literally, and the pattern after it; empty if there is none.

    What is there under its very name is no pattern, even if the name has brackets in it.

    :param exists: Return whether there is a file or folder.
    """
    parts = path.split("/")
    for i, part in enumerate(parts):
        if _MAGIC.search(part) and not exists("/".join(parts[: i + 1])):
            return "/".join(parts[:i]), "/".join(parts[i:])
    return path, ""


def _named_twice(first: DataFile, second: DataFile, by: str) -> str:
    if first.name == second.name:
        return f"{first.name} is named twice, {by}"
    return f"{first.name} is named twice, {by}: {second.name} is the same file"


def _entry(text: str, pointer: str, storage_options: Mapping[str, Any]) -> _Entry:
    if "\0" in text:
        raise InvalidData("a path with a null character in it", pointer=pointer)
    if "://" not in text:  # ``::`` alone may be part of a name
        return _Entry(text=text, pointer=pointer, tree=LocalFileTree(), path=text)
    with data_errors(text, pointer):
        place = Location.of(text, storage_options, pointer=pointer)
    is_local = isinstance(place.filesystem, LocalFileSystem)
    return _Entry(
        text=text, pointer=pointer, tree=LocalFileTree() if is_local else RemoteFileTree(place), path=place.path
    )


def _search(entry: _Entry, suffixes: tuple[str, ...]) -> Iterator[DataFile]:
    tree, path = entry.tree, entry.path
    # A file may have a name that looks like a glob: what is there under the very name wins.
    kind = tree.kind(path)
    if kind == "file":
        yield tree.file(path)
    elif kind == "folder":
        yield from _search_folder(entry, suffixes)
    else:
        folder, pattern = split_pattern(path, lambda part: tree.kind(part) is not None)
        if not pattern:
            raise entry.error(f"{entry.text} does not exist", _nearby(tree, path))
        yield from _search_glob(entry, folder, pattern, suffixes)


def _search_folder(entry: _Entry, suffixes: tuple[str, ...]) -> Iterable[DataFile]:
    files = _visible(entry.tree, entry.path, suffixes)
    if not files:
        others = sorted(path.rpartition("/")[2] for path in entry.tree.walk(entry.path))[:3]
        hint = f"it has {', '.join(others)}; a glob takes files of any name" if others else "it is empty"
        raise entry.error(f"the folder {entry.text} has no file that ends in {' or '.join(suffixes)}", hint)
    return _each_once(entry, map(entry.tree.file, files), entry.path)


def _search_glob(entry: _Entry, folder: str, pattern: str, suffixes: tuple[str, ...]) -> Iterable[DataFile]:
    tree = entry.tree
    takes_hidden = _has_hidden(pattern, "")
    matches = tree.glob(f"{glob.escape(folder)}/{pattern}")
    files = set()  # a pattern may match a folder and what is in it
    for path in matches:
        if takes_hidden or not _has_hidden(path, folder):
            files.update(_visible(tree, path, suffixes) if tree.kind(path) == "folder" else [path])
    if not files:
        raise entry.error(f"no file matches {entry.text}", _nearby(tree, entry.path))
    return _each_once(entry, map(tree.file, files), folder)


def _each_once(entry: _Entry, files: Iterable[DataFile], folder: str) -> Iterator[DataFile]:
    """Yield each file once: by its path without a linked folder, else by the first.

    :raises InvalidData: If a file has a second name, as a link to it is.
    """
    paths: dict[Hashable, list[DataFile]] = {}
    for file in files:
        paths.setdefault(file.identity or file.name, []).append(file)

    def is_linked(file: DataFile) -> bool:
        place = f"{os.path.realpath(folder or '/')}/{file.path.removeprefix(folder).lstrip('/')}"
        return _without_linked_folders(file) != place.replace("//", "/")

    for same in paths.values():
        file = same[0] if len(same) == 1 else min(same, key=lambda file: (is_linked(file), file.path))
        for other in same[1:]:
            if _without_linked_folders(other) != _without_linked_folders(same[0]):
                first, second = sorted((same[0], other), key=lambda file: (Path(file.path).is_symlink(), file.path))
                raise entry.error(_named_twice(first, second, f"by {entry.text}"), _REAL_FILES, second.name)
        *folders, _ = file.path.removeprefix(folder).split("/")
        yield attrs.evolve(file, partitions=tuple(name for name in folders if name.find("=") > 0))


def _without_linked_folders(file: DataFile) -> str:
    path = Path(file.path)
    return str(path.parent.resolve() / path.name)


def _visible(tree: FileTree, folder: str, suffixes: tuple[str, ...]) -> list[str]:
    return [path for path in tree.walk(folder) if path.endswith(suffixes) and not _has_hidden(path, folder)]


def _has_hidden(path: str, folder: str) -> bool:
    """Return whether a name between the folder and the end of the path is hidden."""
    return any(map(is_hidden, path.removeprefix(folder).split("/")))


def _nearby(tree: FileTree, path: str) -> str:
    """Return the hint about a path that names nothing: the names that are there."""
    folder, names = tree.neighbours(path)
    wanted, _, rest = path.rstrip("/").removeprefix(folder).strip("/").partition("/")
    shown = tree.name(folder)
    # Without endings, which all names of a folder share and which would make all of them alike.
    stems = {PurePosixPath(name).stem: name for name in names}
    if close := difflib.get_close_matches(PurePosixPath(wanted).stem, stems, n=3):
        return f"did you mean {' or '.join(stems[stem] for stem in close)}, in {shown}?"
    if rest and not _MAGIC.search(wanted):
        return f"there is no {wanted} in {shown}"
    listed = ", ".join(sorted(names)[:5]) + (", …" if len(names) > 5 else "")
    return f"{shown} has {listed}" if names else f"there is nothing in {shown}"
