"""What a job that came over HTTP may say: what the operator's file does not allow is refused, with its place."""

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hostcore.errors import Errors
from hostcore.job.names import BUILTIN
from hostcore.job.pointers import escaped
from hostcore.job.secrets import KEY, is_reference
from hostcore.supervisor.operator_file import HttpSettings
from hostcore_hookspecs.errors import HostcoreError

_LISTS: Final = ("callbacks", "reporters", "uploaders", "resolvers", "policies")
_DATASETS: Final = ("dataset", "validation", "test")


class NotAllowed(HostcoreError):
    """A job from others says what it may not."""

    code = "job.not_allowed"


def require_allowed(job: Mapping[str, Any], http: HttpSettings) -> None:
    """See that a job says only what jobs from others may.

    :param job: As it came, before anything of it was looked at; wrong types are for the converter to tell.
    :raises Errors: Everything that is not allowed.
    """
    errors = [*_plugins(job, http), *_resources(job, http), *_secrets(job, "", http)]
    if errors:
        raise Errors(errors)


def matches(text: str, patterns: Sequence[str]) -> bool:
    """Whether one of some patterns (``*``, ``?``) is that of a text; upper and lower case are different."""
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns)


def _plugins(job: Mapping[str, Any], http: HttpSettings) -> Iterator[HostcoreError]:
    for pointer, name in _named(job):
        if ":" in name or name.endswith(".py"):
            if not http.import_paths:
                yield _refused(pointer, f"{name!r} is an import path; over HTTP a job names registered plugins")
        elif not matches(name, http.plugins) and not matches(name.removeprefix(BUILTIN), http.plugins):
            yield _refused(pointer, f"the plugin {name!r} is not among those that the operator allows")


def _named(job: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The names of plugins in a job, and where they stand."""
    for key in ("trainer", "launcher"):
        yield from _use(f"/{key}", job.get(key))
    for key in _DATASETS:
        if isinstance(dataset := job.get(key), Mapping):
            yield from _use(f"/{key}/source", dataset.get("source"))
    for key in _LISTS:
        uses = job.get(key)
        for position, use in enumerate(uses if isinstance(uses, list) else [uses]):
            yield from _use(f"/{key}/{position}", use)


def _use(pointer: str, use: Any) -> Iterator[tuple[str, str]]:
    name = use.get("use") if isinstance(use, Mapping) else use
    if isinstance(name, str):
        yield pointer, name


def _resources(job: Mapping[str, Any], http: HttpSettings) -> Iterator[HostcoreError]:
    if job.get("environment") is not None:
        yield _refused("/environment", "over HTTP a job brings no environment of its own")
    resources = job.get("resources")
    if not isinstance(resources, Mapping):
        return
    image = resources.get("image")
    if isinstance(image, str) and not matches(image, http.images):
        yield _refused("/resources/image", f"the image {image!r} is not among those that the operator allows")
    env = resources.get("env")
    for name in env if isinstance(env, Mapping) else ():
        if not matches(name, http.env):
            pointer = f"/resources/env/{escaped(name)}"
            yield _refused(pointer, f"the variable {name!r} is not among those that the operator allows")


def _secrets(value: Any, pointer: str, http: HttpSettings) -> Iterator[HostcoreError]:
    if is_reference(value):
        reference = value[KEY]
        if not isinstance(reference, str) or not matches(reference, http.secrets):
            yield _refused(pointer, "this secret is not among those that the operator allows")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _secrets(item, f"{pointer}/{escaped(key)}", http)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _secrets(item, f"{pointer}/{position}", http)


def _refused(pointer: str, message: str) -> NotAllowed:
    return NotAllowed(message, pointer=pointer, hint="ask the operator of this service; [http] in HOSTCORE_CONFIG")
