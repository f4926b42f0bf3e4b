"""The values of secrets: where they are taken from, and which of them can be hidden."""

import os
import re
import stat
from functools import cache
from pathlib import Path
from typing import Final

import attrs

from hostcore import scrubbing
from hostcore.job.wording import did_you_mean, near
from hostcore_hookspecs.errors import HostcoreError

_LARGEST_FILE: Final = 64 * 1024
#: So few digits are found in numbers and in checksums.
_BY_CHANCE: Final = re.compile(r"[0-9a-fA-F]{1,7}")

#: Names of files, folders and keys of a run directory, values that its documents have, and what any program prints.
_WORDS: Final = (
    *("attempts", "attempt-", "checkpoints", "config/", "contract", "control", "cancel", "cursors", "events.jsonl"),
    *("launch.json", "lease.json", "logs/", "plots/loss.png", "rank-", "result.json", "run.json", "samples", "spool"),
    *("step-", "uploads.jsonl", "hostcore", "hostcore-builtin-plugins", "hostcore_hookspecs", "hostcore.run/1"),
    *("contract_version", "trainer_plugin", "job_spec_path", "arrow_ipc_path", "checkpoints_dir", "samples_dir"),
    *("events_path", "run_dir", "attempts_dir", "start_from", "must_resume", "evaluate", "trace_path", "apart"),
    *("job_dir", "plugins", "environment", "parent", "submitted_ms", "total_steps", "world_size"),
    *("rows_left_out", "warnings", "code", "message", "hint", "metric", "first_step", "last_step", "is_over"),
    *("submitted", "running", "succeeded", "failed", "cancelled", "preempted", "lost", "status", "exit_code"),
    *("reason", "requested_by", "left", "metrics", "best", "final_checkpoint", "started_ms", "ended_ms"),
    *("distribution", "version", "sha256", "name", "value", "kind", "process", "host", "boot_id", "started"),
    *("last_progress_ms", "renewed_ms", "handle", "details", "launch_id", "sees_run_dir", "force", "uploader", "size"),
    *("recorded",),
    *("python", "torch", "threads", "null", "none", "true", "false", "error", "warning", "http", "https", "file"),
    *("localhost", "train", "test", "validation"),
)


def of_environment(name: str) -> str:
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


def of_file(path: Path) -> str:
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


def require_hidable(value: str, origin: str) -> None:
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
