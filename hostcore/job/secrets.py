"""References to secrets in a job: ``{"$secret": "env:NAME"}`` and ``{"$secret": "file:/path"}``.

A job keeps its references, and so does every record of it. They are resolved right before the settings of one plugin
are structured, in the process that loads the plugin; what they stand for is known to :mod:`hostcore.scrubbing` from
then on. A value must be such that it can be hidden: what also occurs by chance, or in the files of every run, cannot.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from hostcore import scrubbing
from hostcore.errors import Errors
from hostcore.job.paths import absolute
from hostcore.job.pointers import escaped, tokens
from hostcore.job.wording import did_you_mean, near
from hostcore_hookspecs.errors import HostcoreError

if TYPE_CHECKING:
    from hostcore.job.spec import JobSpec

#: The key that makes an object a reference.
KEY: Final = "$secret"
FORM: Final = '{"$secret": "env:NAME"} or {"$secret": "file:/path"}'

_DATASETS: Final = ("dataset", "validation", "test")
_LISTS: Final = ("callbacks", "reporters", "uploaders", "resolvers", "policies")


class SecretText(str):
    """The value of a secret among the settings of a plugin, until they are structured."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(scrubbing.HIDDEN)


def is_reference(value: Any) -> bool:
    """Whether a JSON value is meant as a reference, be it a right one or not."""
    return isinstance(value, Mapping) and KEY in value


def resolve_secrets(settings: Any, pointer: str = "") -> Any:
    """A copy of settings with :class:`SecretText` in place of references; nothing of it is shown from now on.

    :param settings: Plain JSON: the settings of one plugin, or a part of them.
    :param pointer: Where they stand in the job.
    :raises Errors: ``secret.reference``, ``secret.unset``, ``secret.file``, ``secret.value``: every reference that is
        none, or stands for nothing, or for what cannot be hidden.
    """
    errors: list[HostcoreError] = []

    def resolved(value: Any, at: str) -> Any:
        if is_reference(value):
            try:
                return SecretText(_reveal(value))
            except HostcoreError as error:
                error.pointer = at
                errors.append(error)
                return None
        if isinstance(value, Mapping):
            return {key: resolved(item, f"{at}/{escaped(key)}") for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [resolved(item, f"{at}/{index}") for index, item in enumerate(value)]
        return value

    if next(_references(settings, ""), None) is None:
        return settings
    found = resolved(settings, pointer)
    if errors:
        raise Errors(errors)
    return found


def without_marks(value: Any) -> Any:
    """A value with plain strings in place of :class:`SecretText`, for a library that takes plain JSON."""
    if isinstance(value, SecretText):
        return str(value)
    if isinstance(value, Mapping):
        return {key: without_marks(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_marks(item) for item in value]
    return value


def remember_secrets(job: Any) -> None:
    """Never show any of a job's secrets from now on, in this process; those that stand for nothing are passed over.

    To be called before any plugin of the job is imported, since plugins of one process see each other.

    :param job: A job as plain JSON, or a part of it.
    """
    for _, reference in _references(job, ""):
        try:
            _reveal(reference)
        except HostcoreError:
            continue  # told to the user when the plugin that wants it is loaded


def keep_secrets(spec: "JobSpec", *paths: str | Path) -> None:
    """Never show any of a job's secrets from now on, in this process.

    :param paths: Where the run is written, and where its job lies.
    :raises Errors: ``secret.open``: the value also stands in the job or in one of the paths, where all can see it, and
        where stars in its place would break the run.
    """
    job = _without_profiles(spec.to_json())
    remember_secrets(job)
    errors = []
    shown = [*_strings(job, ""), *(("", str(path)) for path in paths)]
    for pointer, reference in _references(job, ""):
        try:
            value = _reveal(reference).strip()
        except HostcoreError:
            continue
        place = next(((at, text) for at, text in shown if value in text), None)
        if place is not None:
            errors.append(_open_secret(pointer, *place))
    if errors:
        raise Errors(errors)


def wrong_references(document: Mapping[str, Any]) -> list[HostcoreError]:
    """What is wrong with the references in a job, short of resolving them: their form, and where they stand."""
    errors = []
    for pointer, reference in _references(_without_profiles(document), ""):
        if not _may_stand_at(tokens(pointer)):
            errors.append(
                HostcoreError(
                    "a reference to a secret may only stand in the settings of a plugin",
                    code="secret.misplaced",
                    pointer=pointer,
                    hint='those under "hyperparams", "dataset", "callbacks", "reporters", "uploaders", "resolvers", '
                    '"launcher" and "inputs", beside the keys that hostcore reads itself',
                )
            )
            continue
        try:
            _parsed(reference)
        except HostcoreError as error:
            error.pointer = pointer
            errors.append(error)
    return errors


def with_absolute_files(value: Any, base_dir: Path) -> Any:
    """A copy of a job in which the paths of ``file:`` references are absolute.

    :param base_dir: Where relative ones start.
    """
    if is_reference(value):
        text = value[KEY]
        if isinstance(text, str) and text.startswith("file:") and text != "file:":
            return {**value, KEY: f"file:{absolute(text.removeprefix('file:'), base_dir)}"}
        return value
    if isinstance(value, Mapping):
        return {key: with_absolute_files(item, base_dir) for key, item in value.items()}
    if isinstance(value, list):
        return [with_absolute_files(item, base_dir) for item in value]
    return value


def _references(value: Any, pointer: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every reference in a value, with its pointer."""
    if is_reference(value):
        yield pointer, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _references(item, f"{pointer}/{escaped(key)}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _references(item, f"{pointer}/{index}")


def _strings(value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    """Every string in a value that is no reference, keys included, with its pointer."""
    if isinstance(value, str):
        yield pointer, value
    elif isinstance(value, Mapping) and not is_reference(value):
        for key, item in value.items():
            yield f"{pointer}/{escaped(key)}", key
            yield from _strings(item, f"{pointer}/{escaped(key)}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _strings(item, f"{pointer}/{index}")


def _without_profiles(job: Mapping[str, Any]) -> dict[str, Any]:
    """A job without what it does not use: the profile that it does use has been merged in."""
    return {key: value for key, value in job.items() if key != "profiles"}


def _may_stand_at(path: list[str]) -> bool:
    """Whether a place in a job is one in the settings of a plugin."""
    from hostcore.job.forms import object_form
    from hostcore.job.sections import DeliveryUse, dataset_keys

    section, *inside = path or [""]
    if section in _LISTS:
        return len(inside) >= 2 and inside[1] not in object_form(DeliveryUse).keys
    if section == "launcher":
        return len(inside) >= 1 and inside[0] != "use"
    if section in _DATASETS:
        return len(inside) >= 1 and inside[0] not in dataset_keys()
    return section in ("hyperparams", "inputs") and len(inside) >= 1


def _parsed(reference: Mapping[str, Any]) -> tuple[str, str]:
    """``env`` or ``file``, and the name or the path.

    :raises HostcoreError: ``secret.reference``.
    """
    text = reference[KEY]
    kind, colon, name = text.partition(":") if isinstance(text, str) else ("", "", "")
    if len(reference) == 1 and colon and name and kind in ("env", "file"):
        return kind, name
    hint = 'nothing else may stand beside "$secret"' if len(reference) > 1 else None
    raise HostcoreError(f"not a reference to a secret: expected {FORM}", code="secret.reference", hint=hint)


def _reveal(reference: Mapping[str, Any]) -> str:
    """What a reference stands for; it is not shown any more from now on.

    :raises HostcoreError: When it stands for nothing, or for what cannot be hidden.
    """
    kind, name = _parsed(reference)
    value = _of_environment(name) if kind == "env" else _of_file(Path(name))
    _require_hidable(value, f"the environment variable {name}" if kind == "env" else f"the file {name}")
    scrubbing.remember(value)
    return value


def _open_secret(pointer: str, at: str, text: str) -> HostcoreError:
    where = f"the job itself, at {at}" if at else f"the path {scrubbing.scrub(text)}"
    return HostcoreError(
        f"the value of this secret also stands in {where}, in plain text",
        code="secret.open",
        pointer=pointer,
        hint="take it out there; or, if it is none, write it into the job as it is",
    )


_LARGEST_FILE: Final = 64 * 1024
#: So few digits are found in numbers and in checksums.
_BY_CHANCE: Final = re.compile(r"[0-9a-fA-F]{1,7}")

#: Names of files, folders and keys of a run directory, values that its documents have, and what any program prints.
_WORDS: Final = (
    *("attempts", "attempt-", "checkpoints", "config/", "contract", "control", "cancel", "cursors", "events.jsonl"),
    *("launch.json", "lease.json", "logs/", "plots/loss.png", "rank-", "result.json", "run.json", "samples", "spool"),
    *("step-", "uploads.jsonl", "hostcore", "hostcore-builtin-plugins", "hostcore_hookspecs", "hostcore.run/1"),
    *("contract_version", "trainer_plugin", "job_spec_path", "arrow_ipc_path", "checkpoints_dir", "samples_dir"),
    *("events_path", "run_dir", "attempts_dir", "start_from", "must_resume", "only_check", "evaluate", "trace_path"),
    *(
        "apart",
        "job_dir",
        "plugins",
        "environment",
        "conditions",
        "parent",
        "submitted_ms",
        "total_steps",
        "world_size",
    ),
    *("rows_left_out", "warnings", "code", "message", "hint", "metric", "first_step", "last_step", "is_over"),
    *("submitted", "running", "succeeded", "failed", "cancelled", "preempted", "lost", "status", "exit_code"),
    *("brought", "reason", "requested_by", "left", "metrics", "best", "final_checkpoint", "started_ms", "ended_ms"),
    *("distribution", "version", "sha256", "name", "value", "kind", "process", "host", "boot_id", "started"),
    *("last_progress_ms", "renewed_ms", "handle", "details", "launch_id", "sees_run_dir", "force", "uploader", "size"),
    *("recorded", "interpreter", "requirements", "lock", "pylock.toml", "used_by", "programs", "programs_python"),
    *("python", "torch", "threads", "null", "none", "true", "false", "error", "warning", "http", "https", "file"),
    *("localhost", "train", "test", "validation"),
)


def _of_environment(name: str) -> str:
    """The value of an environment variable.

    :raises HostcoreError: ``secret.unset``.
    """
    value = os.environ.get(name)
    if value is None:
        raise HostcoreError(
            f"the environment variable {name} is not set",
            code="secret.unset",
            hint=did_you_mean(near(name, os.environ)) or f"set it for the process that starts the run: export {name}=…",
        )
    return value


def _of_file(path: Path) -> str:
    """The text of a file, without the newline at its end.

    :raises HostcoreError: ``secret.file``.
    """
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise _file_error(path, "is a folder")
        if not stat.S_ISREG(found.st_mode):  # a pipe can be read once, and several processes need it
            raise _file_error(path, "is not a regular file")
        if found.st_size > _LARGEST_FILE:
            raise _file_error(path, f"is larger than {_LARGEST_FILE // 1024} KB, too large for a secret")
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        raise _file_error(path, "is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or "not a file name").lower()
        raise _file_error(path, f"cannot be read: {reason}") from None
    return text.removesuffix("\n").removesuffix("\r")


def _file_error(path: Path, what: str) -> HostcoreError:
    return HostcoreError(f"the file of a secret, {path}, {what}", code="secret.file", file=str(path))


def _require_hidable(value: str, origin: str) -> None:
    """See that stars in place of a value, wherever it stands, hide it and nothing else.

    :raises HostcoreError: ``secret.value``.
    """
    plain = value.strip()
    problem, hint = None, "use a longer one"
    if not plain:
        problem, hint = "is empty", "a secret has at least 4 characters"
    elif len(plain) < scrubbing.SHORTEST:
        problem = f"has fewer than {scrubbing.SHORTEST} characters: it cannot be told from other text"
    elif not _is_text(value):
        problem, hint = "is not text in UTF-8", "encode it, in base64 for example, and have the plugin decode it"
    elif _BY_CHANCE.fullmatch(plain):
        problem = "has fewer than 8 characters, all of them hexadecimal digits: it stands by chance in other numbers"
    elif _is_of_the_host(plain):
        problem = "is a word that stands in the files of every run"
    if problem:
        raise HostcoreError(f"{origin}, a secret, {problem}", code="secret.value", hint=hint)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_of_the_host(value: str) -> bool:
    """Whether a value is, or is in, a word of the run's own files: then stars in its place would break them."""
    return set(value) == {"*"} or any(value in word for word in _own_words())


@cache
def _own_words() -> frozenset[str]:
    """The keys and names in the files of a run."""
    from hostcore.job.forms import object_form
    from hostcore.job.sections import DatasetSpec, DeliveryUse, EnvironmentSpec, ResourcesSpec
    from hostcore.job.spec import JobSpec
    from hostcore_hookspecs.errors import RunError
    from hostcore_hookspecs.events import PAYLOADS, SCHEMA, Event
    from hostcore_hookspecs.kinds import KINDS

    keys = [
        key
        for cls in (JobSpec, DatasetSpec, DeliveryUse, EnvironmentSpec, ResourcesSpec)
        for key in object_form(cls).keys
    ]
    fields = [field.name for cls in (Event, RunError, *PAYLOADS.values()) for field in attrs.fields(cls)]
    return frozenset([*keys, *fields, *PAYLOADS, SCHEMA, *KINDS, *_WORDS])
