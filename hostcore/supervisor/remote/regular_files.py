"""A folder of this machine as a store whose writer need not be trusted. Imported by what opens one: fsspec is slow."""

import errno
import os
import shutil
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from fsspec.implementations.local import LocalFileSystem

from hostcore.events.regular_file import open_below


class RegularFiles(LocalFileSystem):  # type: ignore[misc] # fsspec has no types
    """The regular files and the folders below a root. Links, pipes and devices are not there; the root may be a link.

    :param root: Absolute.
    """

    cachable = False

    def __init__(self, root: str, **options: Any) -> None:
        super().__init__(**options)
        self._root = root or "/"

    def info(self, path: Any, **options: Any) -> dict[str, Any]:
        """See fsspec.

        :raises FileNotFoundError: There is nothing, or something else than a file or a folder.
        """
        if not isinstance(path, os.DirEntry):
            self._require_no_links(self._strip_protocol(path))
        found: dict[str, Any] = super().info(path, **options)
        is_link = found["islink"] and found["name"] != self._root
        if is_link or found["type"] not in ("file", "directory"):
            raise FileNotFoundError(errno.ENOENT, "neither a regular file nor a folder", found["name"])
        return found

    def ls(self, path: str, detail: bool = False, **options: Any) -> list[Any]:
        """See fsspec."""
        found = super().ls(path, detail=True, **options)
        return found if detail else [one["name"] for one in found]

    def get_file(self, path1: str, path2: str, callback: Any = None, **_options: Any) -> None:  # noqa: ARG002 - the file that grows is the progress
        """See fsspec."""
        with self._opened(path1) as source, Path(path2).open("wb") as target:
            shutil.copyfileobj(source, target)

    def _open(self, path: str, mode: str = "rb", **_options: Any) -> BinaryIO:
        if mode != "rb":
            raise PermissionError(errno.EROFS, "it is read alone", path)
        return self._opened(path)

    def _opened(self, path: str) -> BinaryIO:
        return open_below(Path(self._root), self._below(self._strip_protocol(path)))

    def _below(self, path: str) -> tuple[str, ...]:
        parts = PurePosixPath(os.path.relpath(path, self._root)).parts
        if ".." in parts:
            raise FileNotFoundError(errno.ENOENT, "outside of the store", path)
        return parts

    def _require_no_links(self, path: str) -> None:
        folder = Path(self._root)
        for part in self._below(path)[:-1]:
            folder /= part
            if folder.is_symlink():
                raise FileNotFoundError(errno.ENOENT, "a link is no folder of the store", str(folder))
