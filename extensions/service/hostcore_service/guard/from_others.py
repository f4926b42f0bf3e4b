"""What a job that came over HTTP may say: what the operator's file does not allow is refused, with its place."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hostcore.errors import Errors
from hostcore.job.names import BUILTIN
from hostcore.job.pointers import escaped
from hostcore.job.secrets import KEY, is_reference
from hostcore.job.wording import found as shown
from hostcore.plugins.discover import canonical
from hostcore.supervisor.operator_file import HttpSettings
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.guard.environment import wrong_variable
from hostcore_service.guard.places import wrong_places
from hostcore_service.guard.refusal import NotAllowed, matches

#: A package by its name, with extras and versions: no URL, no path, no option (the first line of PEP 508's grammar).
_PACKAGE: Final = re.compile(
    r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[A-Za-z0-9._, -]*\])?\s*(?:[<>=!~][^@;/\n]*)?"
)
#: uv takes paths and addresses for a Python, too.
_VERSION: Final = re.compile(r"[0-9]+(\.[0-9]+){0,2}")
_LISTS: Final = ("callbacks", "reporters", "uploaders", "resolvers", "policies")
#: The built-in trainer that starts what the job says.
_ANY_PROGRAM: Final = "process"
#: The plugins that kill and interrupt runs, for drills.
_FAULTS: Final = ("chaos", "hostcore-chaos/chaos")
_DATASETS: Final = ("dataset", "validation", "test")
_NOTES: Final = {"labels": "label", "annotations": "annotation"}
#: The service's own annotations: what ``POST /train`` notes of a request, for containers made for the original API.
MODEL_ID: Final = "hostcore/model-id"
EXTRA_ARGS: Final = "hostcore/extra-args"
_OWN: Final = (MODEL_ID, EXTRA_ARGS)


def require_allowed(job: Mapping[str, Any], http: HttpSettings) -> None:
    """See that a job says only what jobs from others may.

    :param job: As it came, before anything of it was looked at; wrong types are for the converter to tell.
    :raises Errors: Everything that is not allowed.
    """
    errors = [
        *_plugins(job, http),
        *_environment(job, http),
        *_resources(job, http),
        *_notes(job, http),
        *_secrets(job, "", http),
        *wrong_places(job, http),
    ]
    if errors:
        raise Errors(errors)


def _plugins(job: Mapping[str, Any], http: HttpSettings) -> Iterator[HostcoreError]:
    if job.get("import_paths") and not http.import_paths:
        yield _refused("/import_paths", "over HTTP a job brings no code: import paths are not allowed here")
    for pointer, name in _named(job):
        if ":" in name or name.endswith(".py"):
            if not http.import_paths:
                yield _refused(pointer, f"{shown(name)} is an import path; over HTTP a job names registered plugins")
        elif pointer == "/trainer" and name.removeprefix(BUILTIN) == _ANY_PROGRAM and not http.import_paths:
            told = f"the trainer {shown(name)} runs a program of the job's choice; over HTTP a job brings no code"
            yield _refused(pointer, told)
        elif canonical(name) in _FAULTS and not http.chaos:
            yield _refused(pointer, f"the plugin {shown(name)} injects faults into a run, which is not allowed here")
        elif not matches(name, http.plugins) and not matches(name.removeprefix(BUILTIN), http.plugins):
            yield _refused(pointer, f"the plugin {shown(name)} is not among those that the operator allows")


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


def _environment(job: Mapping[str, Any], http: HttpSettings) -> Iterator[HostcoreError]:
    """What the workers' Python may be. Nothing is built before the job runs."""
    environment = job.get("environment")
    if not isinstance(environment, Mapping):
        return
    if environment.get("lock") is not None:
        yield _refused("/environment/lock", "a lock is a file beside the job; over HTTP a job names requirements")
    interpreter = environment.get("interpreter")
    if isinstance(interpreter, str) and (".." in interpreter or not matches(interpreter, http.interpreters)):
        told = f"the Python {shown(interpreter)} is not among those that the operator allows"
        yield _refused("/environment/interpreter", told)
    python = environment.get("python")
    if isinstance(python, str) and not _VERSION.fullmatch(python):
        yield _refused("/environment/python", f"{shown(python)} is no version of Python, such as 3.12")
    requirements = environment.get("requirements")
    for position, requirement in enumerate(requirements if isinstance(requirements, list) else ()):
        name = _PACKAGE.fullmatch(requirement) if isinstance(requirement, str) else None
        if name is None or not matches(canonical(name[1]), http.requirements):
            told = f"the requirement {shown(requirement)} is not of the packages that the operator allows"
            yield _refused(f"/environment/requirements/{position}", told)
    indexes = environment.get("indexes")
    for position, index in enumerate(indexes if isinstance(indexes, list) else ()):
        if isinstance(index, str) and index not in http.indexes:  # no patterns: a * would stand for a host, too
            yield _refused(f"/environment/indexes/{position}", "the index is not one that the operator allows")


def _resources(job: Mapping[str, Any], http: HttpSettings) -> Iterator[HostcoreError]:
    resources = job.get("resources")
    if not isinstance(resources, Mapping):
        return
    image = resources.get("image")
    if isinstance(image, str) and not matches(image, http.images):
        yield _refused("/resources/image", f"the image {shown(image)} is not among those that the operator allows")
    env = resources.get("env")
    for name, value in env.items() if isinstance(env, Mapping) else ():
        pointer = f"/resources/env/{escaped(name)}"
        if problem := wrong_variable(name, value):
            yield NotAllowed(problem, pointer=pointer)
        elif not matches(name, http.env):
            yield _refused(pointer, f"the variable {shown(name)} is not among those that the operator allows")


def _notes(job: Mapping[str, Any], http: HttpSettings) -> Iterator[HostcoreError]:
    for key, what in _NOTES.items():
        notes = job.get(key)
        for name in notes if isinstance(notes, Mapping) else ():
            if not matches(name, getattr(http, key)) and not (key == "annotations" and name in _OWN):
                pointer = f"/{key}/{escaped(name)}"
                yield _refused(pointer, f"the {what} {shown(name)} is not among those that the operator allows")


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
