"""Which option or profile a value of a job came from, so that errors do not send people to the job file."""

from collections.abc import Iterable, Mapping
from typing import Any

from hostcore.job.layers import override_path
from hostcore.job.pointers import at_or_below, dotted, escaped
from hostcore_hookspecs.errors import HostcoreError

#: ``--set KEY``, ``--devices``, ``--profile NAME`` by the pointer to what it made or changed; the last one last.
Origins = Mapping[str, str]


def origins_of_profile(name: str, patch: Any, before: Any, place: str = "") -> Origins:
    """The origins of what a profile has changed.

    :param patch: The merge patch, or the part of it that is for ``place``.
    :param before: What stood there.
    """
    if not isinstance(patch, Mapping) or not isinstance(before, Mapping):
        return {place: f"--profile {name}"}
    origins: dict[str, str] = {}
    for key, value in patch.items():
        origins |= origins_of_profile(name, value, before.get(key), f"{place}/{escaped(key)}")
    return origins


def with_origin(origins: Origins, override: str, before: Any, after: Any, *, name: str) -> Origins:
    """The origins with those of one override more.

    :param name: What to call it.
    :param before: The job before the override.
    :param after: The job after it.
    """
    place = ""
    for step in override_path(override):
        if isinstance(after, list):
            index = len(after) - 1 if step == "-" else int(step)
            before, after = before[index] if index < len(before) else None, after[index]
            place += f"/{index}"
        else:
            before, after = before.get(step), after[step]
            place += f"/{escaped(step)}"
        if before is None:  # made by the override, with all that is in it
            break
    kept = {pointer: origin for pointer, origin in origins.items() if not at_or_below(pointer, place)}
    return {**kept, place: name}


def mark(errors: Iterable[HostcoreError], origins: Origins) -> None:
    """Put the option that is to blame in the ``file`` of errors that have none yet."""
    for error in errors:
        pointer = error.pointer or ""
        origin = next((origins[place] for place in reversed(list(origins)) if at_or_below(pointer, place)), None)
        if error.file is not None or origin is None:
            continue
        error.file = origin
        if error.code == "key.missing" and not error.hint and origin.startswith("--set "):
            error.hint = f"to append it, set this as well: --set {dotted(pointer)}=…"
