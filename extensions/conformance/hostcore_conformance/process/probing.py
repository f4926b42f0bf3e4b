"""Asking what importing and constructing a plugin does to a process: in one of its own, once a session."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.process import import_probe
from hostcore_conformance.process.fork_server import Imported, fork_server
from hostcore_conformance.subject import Subject

#: Frameworks that take seconds and hundreds of megabytes to import.
HEAVY: Final = ("torch", "tensorflow", "jax", "transformers", "lightning")
#: Generous: the process may have to import torch and transformers, from a cold disk.
_TIMEOUT_SECONDS: Final = 120.0
_LONGEST_TAIL: Final = 400


@attrs.frozen(kw_only=True)
class Effect:
    """Something that running code of a module has done to the process, or outside of it."""

    #: ``threads``, ``files``, ``random``, … : the variants of the checks.
    effect: str
    #: Whose code was running; empty if no module was being imported.
    module: str
    line: int | None
    #: A sentence without its subject: ``started the thread 'poller'``.
    what: str

    def __str__(self) -> str:
        at = f", line {self.line}," if self.line else ""
        return f"{self.module or 'the constructor'}{at} {self.what}"


@attrs.frozen(kw_only=True)
class HostName:
    """A name in one of the plugin's modules that is defined in the host."""

    module: str
    name: str
    #: The module of the host.
    source: str


@attrs.frozen(kw_only=True)
class Import:
    """Effects of importing a plugin and, then, of constructing it."""

    #: The top-level package of the plugin.
    package: str
    effects: tuple[Effect, ...]
    #: Of the constructor, called a second time, so that what it imports does not count.
    construction: tuple[Effect, ...]
    #: The time that each module took, without those that it imported.
    seconds: Mapping[str, float]
    #: Wall clock, all that it imported included.
    total_seconds: float
    #: Those of :data:`HEAVY` that were there afterwards.
    heavy: tuple[str, ...]
    host_names: tuple[HostName, ...]
    #: Why it could not be constructed there; None if it was.
    not_constructed: str | None

    def is_own(self, module: str) -> bool:
        """Return whether a module belongs to the plugin's own package."""
        return not module or module.partition(".")[0] == self.package

    @property
    def own_seconds(self) -> Mapping[str, float]:
        """The time that the plugin's own modules took, the slowest first."""
        own = {module: seconds for module, seconds in self.seconds.items() if self.is_own(module)}
        return dict(sorted(own.items(), key=lambda item: -item[1]))


def observed_import(subject: Subject) -> Import:
    """Return the effects of importing the plugin in a new process; measured once a session.

    :raises ConformanceError: The import fails there, or does not come to an end.
    """
    return subject.shared("plugin.import", lambda: ask(subject))


def ask(subject: Subject) -> Import:
    """Import the plugin in a new process, and construct it there with the settings of its example.

    :raises ConformanceError: The import fails there, or does not come to an end.
    """
    package = subject.ref.value.partition(":")[0].partition(".")[0]
    request = {
        "value": subject.ref.value,
        "ref": attrs.asdict(subject.ref),
        "job_dir": str(subject.example.folder),
        "settings": subject.settings,
        "sys_path": _absolute([*sys.path, *([str(subject.example.folder)] if subject.ref.dist is None else [])]),
        "heavy": HEAVY,
        # The supervisor never imports it, so that there its import is an effect; the worker always does.
        "torch": subject.kind.room == "worker",
    }
    answer = _run(request, folder=subject.folder())
    if answer["error"] is not None:
        raise ConformanceError(
            expected="that the plugin can be imported in a process of its own",
            got=str(answer["error"]),
            fix="Import in the module itself what it needs; it must not depend on what others have imported before.",
        )
    return Import(
        package=package,
        effects=_effects(answer["effects"]),
        construction=_effects(answer["construction"]),
        seconds=answer["seconds"],
        total_seconds=answer["total_seconds"],
        heavy=tuple(answer["heavy"]),
        host_names=tuple(HostName(**one) for one in answer["host_names"]),
        not_constructed=answer["not_constructed"],
    )


def _run(request: Mapping[str, Any], *, folder: Path) -> dict[str, Any]:
    ended = fork_server().call(
        f"{import_probe.__name__}:{import_probe.examine.__name__}",
        {"request": json.dumps(request, default=str)},
        folder=folder,
        timeout_seconds=_TIMEOUT_SECONDS,
        environment={"PYTHONPATH": os.pathsep.join(request["sys_path"])},
        imported=Imported.TORCH if request["torch"] else Imported.LITTLE,
    )
    if ended.timed_out:
        raise ConformanceError(
            expected="that the import comes to an end",
            got=f"nothing after {_TIMEOUT_SECONDS:g} seconds",
            fix="Look at what the module does when it is imported: downloads, input(), waiting for a server.",
        )
    seen: dict[str, Any] | None = ended.value
    if ended.code or seen is None:
        tail = ended.output.strip()[-_LONGEST_TAIL:]
        raise ConformanceError(
            expected="that importing the plugin leaves the process alive",
            got=f"it ended with {ended.code}{f': {tail}' if tail else ''}",
            fix="Try it alone: python -X faulthandler -c 'import MODULE'; nothing may call os._exit, or crash.",
        )
    return seen


def _effects(found: Sequence[Mapping[str, Any]]) -> tuple[Effect, ...]:
    return tuple(dict.fromkeys(Effect(**one) for one in found))


def _absolute(path: Sequence[str]) -> list[str]:
    return [str(Path(entry).absolute()) for entry in path]
