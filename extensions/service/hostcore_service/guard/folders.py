"""Folders that the operator has opened to jobs, and everything in them."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import attrs

#: Files and folders that are read before a folder counts as too large to be sure of.
_MOST_ENTRIES: Final = 100_000


@attrs.frozen(kw_only=True)
class Folders:
    """Some folders, and everything in them."""

    roots: Sequence[Path]
    #: What jobs may do there.
    use: Literal["read", "write to"]

    def why_not(self, path: str, *, look_inside: bool) -> str | None:
        """Return the reason against a path; None: allowed.

        :param path: Absolute; may be a glob.
        :param look_inside: Whether the contents of the folder are going to be read, too.
        """
        roots = [os.path.realpath(root) for root in self.roots]
        try:
            real = os.path.realpath(path)
        except (OSError, ValueError) as error:
            return f"{path!r} cannot be read: {error}"
        if not _lies_in(real, roots):
            return f"{path!r} does not lie in one of the folders that jobs may {self.use}"
        fixed = _fixed_part(path)
        if (look_inside or fixed != path) and os.path.isdir(fixed):  # noqa: PTH112 - as text, like all the paths here
            return self._why_not_inside(os.path.realpath(fixed), roots)
        return None

    def _why_not_inside(self, folder: str, roots: Sequence[str]) -> str | None:
        """Return the reason against what a folder holds: a reader of the folder follows links."""
        if not _lies_in(folder, roots):
            return f"{folder!r} does not lie in one of the folders that jobs may {self.use}"
        for seen, entry in enumerate(_everything_in(folder)):
            if seen >= _MOST_ENTRIES:
                return f"{folder!r} has more than {_MOST_ENTRIES:,} files: too many to see that none leads out of it"
            if entry.is_symlink() and not _lies_in(os.path.realpath(entry.path), roots):
                return f"the link {entry.path!r} leads out of the folders that jobs may {self.use}"
        return None


def _lies_in(real: str, roots: Sequence[str]) -> bool:
    return any(real == root or real.startswith(root.rstrip("/") + "/") for root in roots)


def _fixed_part(path: str) -> str:
    """Return the folder that a glob is searched in; a path without a pattern as it is."""
    from hostcore_builtin_plugins.sources.data_files import split_pattern  # which needs pyarrow

    return split_pattern(path, os.path.lexists)[0] or "/"


def _everything_in(folder: str) -> Iterator["os.DirEntry[str]"]:
    """Yield files, folders and links at any depth; linked folders too, once each."""
    waiting, known = [folder], {folder}
    while waiting:
        try:
            entries = os.scandir(waiting.pop())
        except OSError:  # what cannot be listed here cannot be read here
            continue
        with entries:
            for entry in entries:
                yield entry
                if _is_folder(entry) and (real := os.path.realpath(entry.path)) not in known:
                    known.add(real)
                    waiting.append(real)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False
