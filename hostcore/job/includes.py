"""Job files that include others: one job by one rule, and from which file each of its values came.

The rule is that of JSON merge patch (RFC 7396): objects are merged, everything else is replaced, null removes. A file
is merged into what it includes, and of several that it includes each into those before.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore.errors import all_errors
from hostcore.job.document import folder_of, read_document
from hostcore.job.layers import Layered
from hostcore.job.paths import absolute, is_uri, with_absolute_paths
from hostcore.job.secrets import with_absolute_files
from hostcore.job.wording import found
from hostcore_hookspecs.errors import HostcoreError

INCLUDE: Final = "include"
#: For editors: the schema of a file. A job says nothing by it.
SCHEMA: Final = "$schema"
#: Of one job, those counted twice that are included twice.
_MOST_FILES: Final = 64
#: What is wrong with the name of a file, and not in it.
_OF_NAMES: Final = ("job.not_found", "job.unreadable")


class WrongInclude(HostcoreError):
    """What a file includes cannot be included."""

    code = "job.include"


def read_job(path: Path) -> Layered:
    """A job file with all that it includes. Relative paths of an included file start at its own folder.

    :raises HostcoreError: See :func:`read_document`; ``job.include``; ``value.type``. One about the file itself has no
        ``file``.
    """
    return _Reading().read(path, within=())


def without_annotations(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """A job without what only editors read."""
    if not isinstance(document.get(SCHEMA), str):
        return document
    return {key: value for key, value in document.items() if key != SCHEMA}


@attrs.define
class _Reading:
    """Reads the files of one job."""

    files: int = 0

    def read(self, path: Path, *, within: tuple[Path, ...]) -> Layered:
        """A file with what it includes.

        :param within: The files that include it, the job's own first.
        """
        self.files += 1
        document = without_annotations(read_document(path))
        if INCLUDE not in document:
            return Layered(document)
        own = {key: value for key, value in document.items() if key != INCLUDE}
        job = Layered({})
        for pointer, name in _names(document[INCLUDE]):
            try:
                included = self._include(path, name, within=(*within, path))
            except HostcoreError as error:
                raise _told(error, pointer, by=path if within else None, name=name) from None
            job = job.patched(included.document, included.origins)
        return job.patched(own, {"": str(path)})

    def _include(self, path: Path, name: str, *, within: tuple[Path, ...]) -> Layered:
        if is_uri(name):
            raise WrongInclude(f"{found(name)} is not on this machine", hint="copy it, and include the copy")
        if self.files >= _MOST_FILES:
            raise WrongInclude(f"a job is read from at most {_MOST_FILES} files")
        file = Path(absolute(name, path.parent))
        if any(_is_same(file, one) for one in within):
            chain = " → ".join(map(str, (*within, file)))
            raise WrongInclude(f"these files include one another: {chain}", hint="take one of them out")
        try:
            included = self.read(file, within=within)
        except HostcoreError as error:
            for one in all_errors(error):
                one.file = one.file or (str(file) if one.code not in _OF_NAMES else None)
            raise
        document = _at_home(included.document, folder_of(file))
        return attrs.evolve(included, document=document, origins=included.origins or {"": str(file)})


def _names(value: Any) -> Iterator[tuple[str, str]]:
    """What a file includes, with pointers."""
    names = value if isinstance(value, list) else [value]
    for index, name in enumerate(names):
        pointer = f"/{INCLUDE}/{index}" if isinstance(value, list) else f"/{INCLUDE}"
        if not isinstance(name, str) or not name:
            message = f"expected the name of a file, or a list of such, found {found(name)}"
            raise HostcoreError(message, code="value.type", pointer=pointer, hint='"include": ["base.json"]')
        yield pointer, name


def _told(error: HostcoreError, pointer: str, *, by: Path | None, name: str) -> HostcoreError:
    """What is wrong with an included file that cannot be read, told of the file that includes it."""
    for one in all_errors(error):
        if one.file is None:
            if one.code in _OF_NAMES:
                one.message = f"it includes {found(name)}, and {one.message}"
            one.pointer, one.file = pointer, str(by) if by else None
    return error


def _is_same(file: Path, other: Path) -> bool:
    try:
        return file.samefile(other)
    except (OSError, ValueError):
        return False


def _at_home(document: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """An included file with the paths in it, also of its profiles, absolute."""
    changed = with_absolute_files(with_absolute_paths(document, folder), folder)
    if isinstance(profiles := changed.get("profiles"), Mapping):
        changed["profiles"] = {
            name: with_absolute_paths(patch, folder) if isinstance(patch, Mapping) else patch
            for name, patch in profiles.items()
        }
    home: Mapping[str, Any] = changed
    return home
