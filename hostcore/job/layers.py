"""What changes a job, and which one a value came from: files, profiles (JSON merge patches, RFC 7396), ``--set``.

Errors name the file, the option or the profile that is to blame, and do not send people to the job file.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from hostcore.errors import Errors, all_errors
from hostcore.job.formats import parse_json
from hostcore.job.forms import json_types, object_form
from hostcore.job.json_values import MAX_DEPTH, checked
from hostcore.job.pointers import at_or_below, dotted, escaped, moved, tokens
from hostcore.job.spec import JobSpec
from hostcore.job.wording import did_you_mean, found, near
from hostcore_hookspecs.errors import HostcoreError

#: ``--set KEY``, ``--devices``, ``--profile NAME``, or a file, by the pointer to what it made or changed; the last one
#: last.
Origins = Mapping[str, str]
#: Keys that stand for one another: a layer that gives one takes away what a lower layer said with the other.
_REPLACES = {"device": "devices", "devices": "device"}
#: What begins like JSON is not taken for a string; and how it looks when it is JSON.
_LOOKS = {"[": '["…", …]', "{": '{"…": …}', '"': '"…"'}
#: Of a key that is too deep.
_SHOWN_LETTERS = 40


@attrs.frozen
class Layered:
    """A document, and where its values came from that are not the file's."""

    document: Mapping[str, Any]
    origins: Origins = attrs.field(factory=dict)

    def with_profile(self, name: str) -> "Layered":
        """The job with one of its profiles merged in.

        :raises HostcoreError: ``job.profile`` if the job has no such profile.
        """
        profiles = self.document.get("profiles")
        profiles = profiles if isinstance(profiles, Mapping) else {}
        patch = profiles.get(name)
        if patch is None:
            names = ", ".join(found(profile) for profile in profiles)
            raise HostcoreError(
                f"the job has no profile {found(name)}",
                code="job.profile",
                pointer="/profiles",
                hint=did_you_mean(near(name, profiles))
                or (f"its profiles are {names}" if names else "it has no profiles"),
            )
        if not isinstance(patch, Mapping):
            return self  # told with the other wrong types
        return self.patched(patch, {"": f"--profile {name}"})

    def patched(self, patch: Mapping[str, Any], origins: Origins) -> "Layered":
        """The job with a patch merged in.

        :param origins: Where what is in the patch came from; the pointer of the whole is empty.
        """
        added = _origins_of_patch(patch, self.document, origins)
        kept = {place: origin for place, origin in self.origins.items() if not _is_below(place, added)}
        merged = _merge(_without_replaced(self.document, patch), patch)
        if isinstance(profiles := patch.get("profiles"), Mapping):
            merged["profiles"] = _merged_profiles(self.document.get("profiles"), profiles)
        return Layered(merged, {**kept, **added})

    def with_override(self, override: str, *, name: str | None = None) -> "Layered":
        """The job with one ``key=value`` set.

        The key is dotted (``dataset.batch_size``, ``callbacks.0.patience``) or a JSON pointer (``/labels/a.b``;
        ``/callbacks/-`` appends). The value is JSON, or else a string, unless it begins like JSON.

        :param name: What errors call it; ``--set KEY`` if not given.
        :raises HostcoreError: ``job.override``; its ``file`` is the name.
        """
        key, equals, text = override.partition("=")
        path = tokens(key) if key.startswith("/") else key.split(".")
        is_deep = len(path) > MAX_DEPTH
        name = name or f"--set {key[:_SHOWN_LETTERS]}…" if is_deep else name or f"--set {key}"
        try:
            if is_deep:
                message = f"the key has {len(path):,} levels; a job is nested at most {MAX_DEPTH} levels deep"
                raise HostcoreError(message, code="job.too_deep")
            if not equals or not all(path):
                raise HostcoreError(
                    f"--set takes key=value, found {found(override)}",
                    code="job.override",
                    hint="for example --set hyperparams.learning_rate=1e-4",
                )
            value = _value(text, "".join(f"/{escaped(step)}" for step in path))
            changed: dict[str, Any] = _set(_without_replaced(self.document, path[:1]), path, value)
        except HostcoreError as error:
            for single in all_errors(error):
                single.file = name
            raise
        place = _changed_place(path, self.document, changed)
        kept = {pointer: origin for pointer, origin in self.origins.items() if not at_or_below(pointer, place)}
        return Layered(changed, {**kept, place: name})


def _value(text: str, pointer: str) -> Any:
    try:
        value = parse_json(text)
    except HostcoreError as error:
        if error.code == "job.too_deep":
            raise
        if text.startswith(tuple(_LOOKS)):
            raise HostcoreError(
                f"{found(text)} looks like JSON but is not: {error.message.removeprefix('not valid JSON: ')}",
                code="job.override",
                pointer=pointer,
                hint=f"in a shell, put it in single quotes: --set '{dotted(pointer)}={_LOOKS[text[0]]}'; "
                "a string that begins so takes double quotes inside them",
            ) from None
        value = text
    try:
        return checked(value)
    except HostcoreError as error:
        raise Errors(moved(error, pointer)) from None


def _set(container: Any, path: Sequence[str], value: Any, at: str = "") -> Any:
    """A copy of a document in which one place is set; objects on the way are made if they are missing."""
    if not path:
        return value
    step, *rest = path
    if container is None and (step == "-" or _is_list_of_jobs(at)):
        container = []
    if container is None or isinstance(container, Mapping):
        members = container or {}
        return {**members, step: _set(members.get(step), rest, value, f"{at}/{escaped(step)}")}
    if not isinstance(container, list):
        hint = None
        if at == "/trainer":
            hint = f"did you mean --set hyperparams.{'.'.join(path)}=…?"
        elif isinstance(container, str):
            hint = f'a component with settings is an object: {{"use": {found(container)}, {found(step)}: …}}'
        raise HostcoreError(
            f"{at} is {found(container)}, which has no keys", code="job.override", pointer=at, hint=hint
        )
    size = len(container)
    if step != "-" and not (step.isdecimal() and int(step) <= size):
        raise HostcoreError(
            f"{at} is {found(container)}, and {found(step)} is no index of it",
            code="job.override",
            pointer=at,
            hint=f"use {f'0 to {size - 1}, or ' if size else ''}- to append: --set {dotted(at)}.-=…",
        )
    index = size if step == "-" else int(step)
    old = container[index] if index < size else None
    return [*container[:index], _set(old, rest, value, f"{at}/{index}"), *container[index + 1 :]]


def _is_list_of_jobs(pointer: str) -> bool:
    """Whether a place is one of the lists of a job: callbacks, reporters and so on."""
    key = object_form(JobSpec).keys.get(pointer.removeprefix("/"))
    return key is not None and "array" in (types := json_types(key.form)) and "object" not in types


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged


def _merged_profiles(target: Any, patches: Mapping[str, Any]) -> dict[str, Any]:
    """The profiles of two files. They are patches themselves, so a null in one removes nothing before it is applied."""
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, patch in patches.items():
        if patch is None:
            merged.pop(name, None)
        elif isinstance(patch, Mapping) and isinstance(before := merged.get(name), Mapping):
            merged[name] = _both(_without_replaced(before, patch), patch)
        else:
            merged[name] = patch
    return merged


def _both(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """One merge patch in place of two, one after the other."""
    both = dict(first)
    for key, value in second.items():
        before = both.get(key)
        both[key] = _both(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return both


def _without_replaced(document: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    replaced = {_REPLACES[key] for key in given if key in _REPLACES} - set(given)
    return {key: value for key, value in document.items() if key not in replaced}


def _origins_of_patch(patch: Any, before: Any, origins: Origins, place: str = "") -> Origins:
    """The origins of what a patch has changed.

    :param patch: The merge patch, or the part of it that is for ``place``.
    :param before: What stood there.
    :param origins: Of what is in the patch.
    """
    if not isinstance(patch, Mapping) or not isinstance(before, Mapping):
        nearest = next((origin for one in _and_above(place) if (origin := origins.get(one))), None)
        inside = {one: origin for one, origin in origins.items() if one != place and at_or_below(one, place)}
        return {**({place: nearest} if nearest else {}), **inside}
    changed: dict[str, str] = {}
    for key, value in patch.items():
        changed |= _origins_of_patch(value, before.get(key), origins, f"{place}/{escaped(key)}")
    return changed


def _and_above(place: str) -> Iterator[str]:
    """A pointer, and those of all that it is in, the innermost first."""
    while place:
        yield place
        place = place.rpartition("/")[0]
    yield ""


def _is_below(place: str, others: Collection[str]) -> bool:
    return any(one in others for one in _and_above(place))


def _changed_place(path: Sequence[str], before: Any, after: Any) -> str:
    """The pointer to what an override has made, with all that is in it, or changed.

    :param before: The job before the override.
    :param after: The job after it.
    """
    place = ""
    for step in path:
        if isinstance(after, list):
            index = len(after) - 1 if step == "-" else int(step)
            before, after = before[index] if index < len(before) else None, after[index]
            place += f"/{index}"
        else:
            before, after = before.get(step), after[step]
            place += f"/{escaped(step)}"
        if before is None:
            break
    return place


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
