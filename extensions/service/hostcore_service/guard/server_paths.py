"""Places of the service's machine, which answers do not show: what lies below them is named from there on."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from sqlalchemy import make_url

from hostcore_builtin_plugins.extras import clone_of_hostcore, source_folders
from hostcore_service.settings import Settings

#: Hides the places of the service of this process in a text; empty before there is one.
_HIDE: Final[list[Callable[[str], str]]] = []


def hide_places(settings: Settings) -> None:
    """Hide the places of a service from now on, and no other's: its runs, its database, the operator's file, the code.

    The folders that distributions were installed from are shown by the distributions' names; in a clone of hostcore,
    which the commands of hints name, by the folders of the clone.
    """
    shown: dict[str, str] = {}
    database = make_url(settings.database)
    folders = [settings.runs, *(Path(entry) for entry in sys.path if entry), Path(sys.prefix), Path(sys.base_prefix)]
    files = [settings.operator.path] if settings.operator.path is not None else []
    if database.get_backend_name() == "sqlite" and database.database:
        files.append(Path(database.database))
    for path in (one for found in folders for one in (found.absolute(), found.resolve())):
        if len(path.parts) > 2:  # not what is above all others: texts of jobs would lose what is their own
            shown[f"{path}/"] = ""
            shown[str(path)] = "(a folder of the service)"
    for path in (one for found in files for one in (found.absolute(), found.resolve())):
        shown[str(path)] = path.name
    clone = clone_of_hostcore()
    for path, name in source_folders().items():
        shown[f"{path}/"] = ""
        shown[str(path)] = str(path.relative_to(clone)) if clone and clone in path.parents else name
    longest_first = "|".join(map(re.escape, sorted(shown, key=len, reverse=True)))
    pattern = re.compile(rf"(?<![\w./-])(?:file://)?({longest_first})(?:(?<=/)|(?![\w-]|\.\w))")
    _HIDE[:] = [lambda text: pattern.sub(lambda found: shown[found[1]], text)]


def without_places(text: str) -> str:
    """A text with what lies in the places of the service named from there on: ``a/logs/supervisor.log``."""
    return _HIDE[0](text) if _HIDE else text


def all_without_places(value: Any) -> Any:
    """The texts in plain JSON; see :func:`without_places`."""
    if isinstance(value, str):
        return without_places(value)
    if isinstance(value, dict):
        return {key: all_without_places(item) for key, item in value.items()}
    return [all_without_places(item) for item in value] if isinstance(value, list) else value
