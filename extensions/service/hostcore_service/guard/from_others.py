"""Rules for a job that came over HTTP: what the operator's file does not allow is refused, with its place.

Rules for plugins hold for the plugin that a name resolves to (kind, canonical distribution, entry point), however the
job spells it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from packaging.requirements import InvalidRequirement, Requirement

from hostcore.errors import Errors
from hostcore.job.names import DATA_SECTIONS, canonical, canonical_plugin, without_builtin
from hostcore.job.pointers import escaped
from hostcore.job.wording import found as shown
from hostcore.plugins.errors import PluginError, named
from hostcore.plugins.installed import Discovered
from hostcore.plugins.load import qualified
from hostcore.plugins.resolve import resolve
from hostcore.secrets.reference import KEY, is_reference, references
from hostcore.supervisor.operator_file import HttpSettings
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.kinds import KINDS
from hostcore_hookspecs.plan import PluginRef
from hostcore_service.guard.environment import wrong_variable
from hostcore_service.guard.places import walk, wrong_places
from hostcore_service.guard.refusal import NotAllowed, matches

#: Control characters, but tab and line ends; a line separator begins a line, too.
_CONTROL: Final = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_CONTROL_IN_LINE: Final = re.compile(r"[\0-\x1f\x7f-\x9f\u2028\u2029]")
#: Text for people and for plugins, which may have several lines: in no file and no command of the host's.
_LINES: Final = re.compile(
    r"/((hyperparams|mock_batches|annotations|resources/env)/.*|samples/[0-9]+/(prompt|negative_prompt|instruction|task)"
    r"|(dataset|validation|test)/(?!(of/[0-9]+/)*(paths|parquet_paths|index|source|columns|name)).*"
    r"|(callbacks|reporters|uploaders|resolvers|policies)/[0-9]+/(?!use$|uri$).*)"
)
#: uv takes paths and addresses for a Python, too.
_VERSION: Final = re.compile(r"[0-9]+(\.[0-9]+){0,2}")
#: The plugins that kill and interrupt runs, for drills.
_FAULTS: Final = ("chaos", "hostcore-chaos/chaos")
_NOTES: Final = {"labels": "label", "annotations": "annotation"}
#: The service's own annotations: what ``POST /train`` notes of a request, for containers made for the original API.
MODEL_ID: Final = "hostcore/model-id"
EXTRA_ARGS: Final = "hostcore/extra-args"
CONFIG_PATH: Final = "hostcore/config-path"
_OWN: Final = (MODEL_ID, EXTRA_ARGS, CONFIG_PATH)


def require_allowed(job: Mapping[str, Any], http: HttpSettings, discovered: Discovered) -> None:
    """Check a job from others against the operator's limits.

    :param job: Before any other check; wrong types are left to the converter's errors.
    :param discovered: The plugins that are installed where the service runs.
    :raises Errors: Everything that is not allowed.
    """
    errors = [
        *_plugins(job, http, discovered),
        *_environment(job, http),
        *_resources(job, http),
        *_notes(job, http),
        *_secrets(job, http),
        *wrong_places(job, http),
    ]
    known = {one.pointer for one in errors}
    errors += [one for one in _controls(job) if one.pointer not in known]
    if errors:
        raise Errors(errors)


def code_plugins(job: Mapping[str, Any], http: HttpSettings) -> bool | list[str]:
    """Return the key ``import_paths`` for a job: those of its plugins that may run code which it names.

    Workers enforce it, also for plugins that are not installed where the service runs.
    """
    if http.import_paths:
        return True
    names = {name.rpartition("/")[2] for _, _, name in plugins_of(job)}
    return sorted(one for one in _may_run_code(http) if one.rpartition("/")[2] in names) or False


def _may_run_code(http: HttpSettings) -> set[str]:
    """Return the plugins that the operator has written out in full."""
    return {canonical_plugin(one) for one in http.plugins if "/" in one and not set("*?[") & set(one)}


def _plugins(job: Mapping[str, Any], http: HttpSettings, discovered: Discovered) -> Iterator[HostcoreError]:
    if job.get("import_paths") and not http.import_paths:
        yield _refused("/import_paths", "over HTTP a job brings no code: import paths are not allowed here")
    for pointer, kind, name in plugins_of(job):
        ref = None if ":" in name or name.endswith(".py") else _resolved(kind, name, discovered)
        if ref is None or ":" in ref.name:  # also the name of a module alone
            if not http.import_paths:
                yield _refused(pointer, f"{shown(name)} is an import path; over HTTP a job names registered plugins")
            continue
        if ref.runs_code and not http.import_paths and qualified(ref) not in _may_run_code(http):
            told = f"{named(ref)} runs code or programs that a job names; over HTTP a job brings no code"
            hint = f'ask the operator of this service; [http] plugins = ["*", "{qualified(ref)}"] allows this plugin'
            yield NotAllowed(told, pointer=pointer, hint=hint)
        elif qualified(ref) in _FAULTS and not http.chaos:
            yield _refused(pointer, f"the plugin {shown(name)} injects faults into a run, which is not allowed here")
        elif not _is_open(ref, http, discovered):
            yield _refused(pointer, f"the plugin {shown(name)} is not among those that the operator allows")


def _resolved(kind: str, name: str, discovered: Discovered) -> PluginRef:
    """Return the plugin behind a name; for a plugin of the job's environment alone, a reference built from the name."""
    try:
        return resolve(name, kind, discovered)
    except PluginError:  # unknown here, or a conflict: an error of the plan, unless another environment resolves it
        distribution, _, plain = name.rpartition("/")
        return PluginRef(kind=kind, name=plain, value=name, dist=canonical(distribution) or None)


def _is_open(ref: PluginRef, http: HttpSettings, discovered: Discovered) -> bool:
    """A pattern without a distribution is for the only plugin of a name, or the one that ships with hostcore."""
    names = {qualified(ref), without_builtin(qualified(ref))}
    if ref in discovered.refs and (ref.kind, ref.name) not in discovered.conflicts:
        names.add(ref.name)
    patterns = [canonical_plugin(one) for one in http.plugins]
    return any(matches(one, patterns) for one in names)


def plugins_of(job: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the place, the kind and the name of every plugin in a job."""
    for kind in ("trainer", "launcher"):
        yield from _use(f"/{kind}", kind, job.get(kind))
    for key in DATA_SECTIONS:
        if isinstance(dataset := job.get(key), Mapping):
            yield from _use(f"/{key}/source", "data_source", dataset.get("source"))
            for position, part in enumerate(parts_of(dataset)):
                yield from _use(f"/{key}/of/{position}/source", "data_source", part.get("source"))
    for listed in (one for one in KINDS.values() if one.is_listed):
        uses = job.get(listed.job_key)
        for position, use in enumerate(uses if isinstance(uses, list) else [uses]):
            yield from _use(f"/{listed.job_key}/{position}", listed.name, use)


def parts_of(dataset: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the parts of a mixture, before any other check; what is no object is empty."""
    parts = dataset.get("of")
    return [part if isinstance(part, Mapping) else {} for part in parts] if isinstance(parts, list) else []


def _use(pointer: str, kind: str, use: Any) -> Iterator[tuple[str, str, str]]:
    name = use.get("use") if isinstance(use, Mapping) else use
    if isinstance(name, str):
        yield pointer, kind, name


def _environment(job: Mapping[str, Any], http: HttpSettings) -> Iterator[HostcoreError]:
    """Yield errors for an environment that is not allowed. Nothing is built before the job runs."""
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
        name = _package(requirement) if isinstance(requirement, str) else None
        if name is None or not matches(canonical(name), http.requirements):
            told = f"the requirement {shown(requirement)} is not of the packages that the operator allows"
            yield _refused(f"/environment/requirements/{position}", told)
    indexes = environment.get("indexes")
    for position, index in enumerate(indexes if isinstance(indexes, list) else ()):
        if isinstance(index, str) and index not in http.indexes:  # no patterns: a * would stand for a host, too
            yield _refused(f"/environment/indexes/{position}", "the index is not one that the operator allows")


def _package(requirement: str) -> str | None:
    """Return the name of the package of a requirement with extras and versions; None for all others."""
    if not (requirement.isascii() and requirement.isprintable()) or set(requirement) & set("@;/"):
        return None  # a URL, a path, a marker, or more than a line
    try:
        return Requirement(requirement).name
    except InvalidRequirement:
        return None


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


def _controls(job: Mapping[str, Any]) -> Iterator[HostcoreError]:
    """Yield an error for every text and every key with a control character, or with lines where a line is meant."""
    for pointer, value in walk(job):
        if _CONTROL_IN_LINE.search(pointer.rpartition("/")[2]):
            yield NotAllowed("the key has a control character or a line separator", pointer=pointer)
        at, text = (f"{pointer}/{KEY}", value[KEY]) if is_reference(value) else (pointer, value)
        if isinstance(text, str) and (_CONTROL if _LINES.fullmatch(pointer) else _CONTROL_IN_LINE).search(text):
            yield NotAllowed("it has a control character or a line separator", pointer=at)


def _secrets(job: Mapping[str, Any], http: HttpSettings) -> Iterator[HostcoreError]:
    for pointer, reference in references(job):
        name = reference[KEY]
        if not isinstance(name, str) or not matches(name, http.secrets):
            yield _refused(pointer, "this secret is not among those that the operator allows")


def _refused(pointer: str, message: str) -> NotAllowed:
    return NotAllowed(message, pointer=pointer, hint="ask the operator of this service; [http] in HOSTCORE_CONFIG")
