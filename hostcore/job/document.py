"""A job as it is written: a file with what it includes, and over it a profile and ``--set``, as one plain mapping.

Every layer is a JSON merge patch (RFC 7396): objects are merged, everything else is replaced, null removes. A file is
merged into what it includes, and of several that it includes each into those before. For each top-level key the
document keeps the last layer that touched it: an error names that layer, and does not send people to the job file.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from hostcore.errors import Errors, all_errors
from hostcore.job.formats import parse_json
from hostcore.job.forms import object_form
from hostcore.job.json_values import MAX_DEPTH, checked
from hostcore.job.pointers import dotted, escaped, moved, tokens
from hostcore.job.spec import JobSpec
from hostcore.job.wording import did_you_mean, found, near
from hostcore_hookspecs.errors import HostcoreError

#: By top-level key: ``--set KEY``, ``--devices``, ``--profile NAME``, or a file.
Origins = Mapping[str, str]
#: Keys that stand for one another: a layer that gives one removes the other.
_REPLACES: Final = {"device": "devices", "devices": "device"}
#: The beginnings of JSON values, which are not taken for strings; and an example of each.
_LOOKS: Final = {"[": '["…", …]', "{": '{"…": …}', '"': '"…"'}
#: Of a key that is too deep.
_SHOWN_LETTERS: Final = 40


@attrs.frozen
class Document:
    """A job as one plain mapping, and the origins of its values."""

    job: Mapping[str, Any] = attrs.field(factory=dict)
    #: Of the keys that a layer above the job file has touched, or, if it includes others, of all.
    origins: Origins = attrs.field(factory=dict)

    @property
    def profiles(self) -> Mapping[str, Any]:
        """The profiles by name; empty if the key has the wrong type."""
        profiles = self.job.get("profiles")
        return profiles if isinstance(profiles, Mapping) else {}

    def patched(self, layer: "Document") -> "Document":
        """The document with a layer merged into it: its job is a patch, and all keys of it have an origin."""
        job = _merged(_left_by(layer.job, self.job), layer.job)
        for name, profile in layer.profiles.items():
            if isinstance(profile, Mapping):  # a patch itself: its nulls remove when it is applied
                before = _left_by(profile, self.profiles.get(name))
                job["profiles"][name] = _merged(before, profile, keeps_nulls=True)
        return Document(job, {**self.origins, **{key: layer.origins[key] for key in layer.job}})

    def with_profile(self, name: str) -> "Document":
        """The job with one of its profiles merged in.

        :raises HostcoreError: ``job.profile`` if the job has no such profile.
        """
        patch = self.profiles.get(name)
        if patch is None:
            names = ", ".join(map(found, self.profiles))
            raise HostcoreError(
                f"the job has no profile {found(name)}",
                code="job.profile",
                pointer="/profiles",
                hint=did_you_mean(near(name, self.profiles))
                or (f"its profiles are {names}" if names else "it has no profiles"),
            )
        if not isinstance(patch, Mapping):
            return self  # reported with the other wrong types
        return self.patched(Document(patch, dict.fromkeys(patch, f"--profile {name}")))

    def with_override(self, override: str, *, name: str | None = None) -> "Document":
        """The job with one ``key=value`` set.

        The key is dotted (``dataset.batch_size``, ``callbacks.0.patience``) or a JSON pointer (``/labels/a.b``;
        ``/callbacks/-`` appends). The value is JSON, or else a string, unless it begins like JSON.

        :param name: The name of the option in errors; ``--set KEY`` if not given.
        :raises HostcoreError: ``job.override``; its ``file`` is the name.
        """
        key, equals, text = override.partition("=")
        path = tokens(key) if key.startswith("/") else key.split(".")
        is_deep = len(path) > MAX_DEPTH
        name = name or f"--set {f'{key[:_SHOWN_LETTERS]}…' if is_deep else key}"
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
            job = _set(_left_by(path[:1], self.job), path, _value(text, "".join(f"/{escaped(step)}" for step in path)))
        except HostcoreError as error:
            for one in all_errors(error):
                one.file = name
            raise
        return Document(job, {**self.origins, path[0]: name})


def blame(errors: Iterable[HostcoreError], origins: Origins, *, at: str = "") -> None:
    """Put the layer that last touched a key into the ``file`` of errors about it that have none yet.

    :param at: The pointer to the document, where the pointers of the errors start further out.
    """
    for error in errors:
        key = next(iter(tokens((error.pointer or "").removeprefix(at))), None)
        origin = origins.get(key) if key is not None else None
        if error.file is not None or origin is None:
            continue
        error.file = origin
        if error.code == "key.missing" and not error.hint and origin.startswith("--set "):
            error.hint = f"to append it, set this as well: --set {dotted(error.pointer or '')}=…"


def _merged(target: Any, patch: Any, *, keeps_nulls: bool = False) -> Any:
    """A value with a merge patch applied (RFC 7396).

    :param keeps_nulls: The value is a patch itself, which is to remove what this one removes.
    """
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None and not keeps_nulls:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value, keeps_nulls=keeps_nulls)
    return merged


def _left_by(given: Collection[str], below: Any) -> dict[str, Any]:
    """A layer without the keys that one above replaces: ``devices`` if that gives ``device``, and the reverse."""
    replaced = {_REPLACES[key] for key in given if key in _REPLACES} - set(given)
    return {key: value for key, value in below.items() if key not in replaced} if isinstance(below, Mapping) else {}


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
    """Return True for a list at the top of a job: callbacks, reporters and so on."""
    key = object_form(JobSpec).keys.get(pointer.removeprefix("/"))
    return key is not None and "array" in (kinds := key.form.kinds) and "object" not in kinds
