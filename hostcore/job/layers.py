"""What changes a job file: profiles (JSON merge patches, RFC 7396) and ``--set key=value``."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hostcore.errors import Errors, all_errors
from hostcore.job.document import parse_json
from hostcore.job.forms import json_types, object_form
from hostcore.job.json_values import checked
from hostcore.job.pointers import dotted, escaped, moved, tokens
from hostcore.job.spec import JobSpec
from hostcore.job.wording import did_you_mean, found, near
from hostcore_hookspecs.errors import HostcoreError

#: Keys that stand for one another: a layer that gives one takes away what a lower layer said with the other.
_REPLACES = {"device": "devices", "devices": "device"}
#: What begins like JSON is not taken for a string; and how it looks when it is JSON.
_LOOKS = {"[": '["…", …]', "{": '{"…": …}', '"': '"…"'}


def apply_profile(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The job with one of its profiles merged in.

    :raises HostcoreError: ``job.profile`` if the job has no such profile.
    """
    profiles = document.get("profiles")
    profiles = profiles if isinstance(profiles, Mapping) else {}
    patch = profiles.get(name)
    if patch is None:
        names = ", ".join(found(profile) for profile in profiles)
        raise HostcoreError(
            f"the job has no profile {found(name)}",
            code="job.profile",
            pointer="/profiles",
            hint=did_you_mean(near(name, profiles)) or (f"its profiles are {names}" if names else "it has no profiles"),
        )
    if not isinstance(patch, Mapping):
        return dict(document)  # told with the other wrong types
    merged: dict[str, Any] = _merge(_without_replaced(document, patch), patch)
    return merged


def override_name(override: str) -> str:
    """What errors call an override that nothing else is known of: ``--set KEY``."""
    return f"--set {override.partition('=')[0]}"


def apply_override(document: Mapping[str, Any], override: str, *, name: str) -> dict[str, Any]:
    """The job with one ``key=value`` set.

    The key is dotted (``dataset.batch_size``, ``callbacks.0.patience``) or a JSON pointer (``/labels/a.b``;
    ``/callbacks/-`` appends). The value is JSON, or else a string, unless it begins like JSON.

    :param name: What errors call it.
    :raises HostcoreError: ``job.override``; its ``file`` is the name.
    """
    _, equals, text = override.partition("=")
    path = override_path(override)
    try:
        if not equals or not all(path):
            raise HostcoreError(
                f"--set takes key=value, found {found(override)}",
                code="job.override",
                hint="for example --set hyperparams.learning_rate=1e-4",
            )
        value = _value(text, "".join(f"/{escaped(step)}" for step in path))
        changed: dict[str, Any] = _set(_without_replaced(document, path[:1]), path, value)
    except HostcoreError as error:
        for single in all_errors(error):
            single.file = name
        raise
    return changed


def override_path(override: str) -> list[str]:
    """The keys and indices of the place that an override names, outermost first; ``-`` appends to a list."""
    key = override.partition("=")[0]
    return tokens(key) if key.startswith("/") else key.split(".")


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


def _without_replaced(document: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    replaced = {_REPLACES[key] for key in given if key in _REPLACES} - set(given)
    return {key: value for key, value in document.items() if key not in replaced}
