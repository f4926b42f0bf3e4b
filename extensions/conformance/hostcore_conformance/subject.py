"""The plugin that is checked, as the checks see it."""

import copy
import functools
import itertools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from hostcore.job.data import needed, with_sections
from hostcore.job.load import load_job
from hostcore.job.names import canonical
from hostcore.job.paths import with_absolute_paths
from hostcore.plugins.attribution import in_package, place
from hostcore.plugins.errors import PluginError, one_line
from hostcore.plugins.hooks import WORKER_KINDS, Hooks
from hostcore.plugins.installed import Discovered, discover
from hostcore.plugins.load import Component, import_class, load_component
from hostcore.plugins.resolve import Selected, resolve
from hostcore.runs.directory import cache_dir
from hostcore_conformance.errors import NotApplicable
from hostcore_conformance.example import Example
from hostcore_hookspecs.data_source import DataContext
from hostcore_hookspecs.kinds import KINDS, Kind
from hostcore_hookspecs.plan import PluginRef
from hostcore_hookspecs.step import Capabilities

_T = TypeVar("_T")

#: A plugin may inherit from these, but its author did not write them.
_NOT_AUTHORS = frozenset({"builtins", "abc", "typing", "hostcore", "hostcore_hookspecs", "hostcore_toolkit", "torch"})
#: What the kit decides itself in every job that it runs.
_KEPT_OF_A_JOB = (
    "trainer_api_version",
    "trainer",
    "hyperparams",
    "dataset",
    "validation",
    "test",
    "mock_batches",
    "seed",
    "deterministic",
    "device",
    "precision",
    "accumulate",
    "samples",
    "weights",
    "inputs",
    "resolvers",
    "callbacks",
)


class Subject:
    """The plugin under check.

    :param ref: The plugin.
    :param example: What its author gives the kit to work with.
    :param scratch: An empty folder for what the checks write.
    :param harness: The opened harness of the example; None if there is none.
    """

    def __init__(self, ref: PluginRef, example: Example, *, scratch: Path, harness: Any = None) -> None:
        self.ref = ref
        self.example = example
        self.harness = harness
        self._scratch = scratch
        self._numbers = itertools.count(1)
        self._shared: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """Its registered name, or its import path."""
        return self.ref.name

    @property
    def kind(self) -> Kind:
        """Its kind."""
        return KINDS[self.ref.kind]

    @property
    def qualified_name(self) -> str:
        """The name under which a job finds this plugin and no other: ``distribution/name``, or its import path."""
        return f"{self.ref.dist}/{self.ref.name}" if self.ref.dist else self.ref.name

    @property
    def owner(self) -> type:
        """Its class; importing it is what this may do.

        :raises PluginError: It cannot be imported, or is no class.
        """
        return import_class(self.ref, job_dir=self.example.folder)[0]

    @property
    def settings(self) -> dict[str, Any]:
        """A copy of the example's settings, as a job would give them; of a trainer its ``hyperparams``."""
        given: Any = getattr(self.harness, "settings", None)
        if given is None:
            given = self.example.settings
            if self.kind.name == "trainer":
                given = (self._example_job or {}).get("hyperparams", {})
        copied: dict[str, Any] = copy.deepcopy(dict(given))
        return copied

    @property
    def has_job(self) -> bool:
        """True if the author gave an example job."""
        return self._example_job is not None

    @property
    def job(self) -> dict[str, Any]:
        """A copy of what matters of the example job: data, hyperparameters, precision; no reporters, no uploaders.

        The check sets its length and its output. Of a trainer, ``trainer`` is the subject, and data
        that it brings is written into the job, where it means the same. Empty if the author gave none.
        """
        given = self._example_job or {}
        job = {key: copy.deepcopy(given[key]) for key in _KEPT_OF_A_JOB if key in given}
        if self.kind.name == "trainer" and job:
            job["trainer"] = self.qualified_name
            job |= copy.deepcopy(self.shared("data that the trainer brings", lambda: self._brought(job)))
        return job

    def _brought(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """The sections of data that the trainer brings to a job, with absolute paths."""
        try:
            return brought_sections(self, job)
        except Exception:  # noqa: BLE001 - a check and every run ask again, and report the error
            return {}

    @property
    def _example_job(self) -> Mapping[str, Any] | None:
        made: Mapping[str, Any] | None = getattr(self.harness, "job", None)
        return self.example.job if made is None else with_absolute_paths(made, self.example.folder)

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities that a trainer declares; the defaults for all other kinds."""
        return self._declaring.capabilities

    def has(self, hook: str) -> bool:
        """Return whether it implements a hook of its kind."""
        return hook in self._declaring.hook_names

    @property
    def _declaring(self) -> Component:
        """An instance that is only asked for what its class declares."""
        return self.shared("what the class declares", self.component)

    def component(self, settings: Mapping[str, Any] | None = None) -> Component:
        """A new instance of the plugin, made as the host makes it.

        :param settings: As a job would give them; those of the example if not given.
        :raises HostcoreError: It cannot be imported or constructed, or its settings or methods are wrong.
        """
        selected = Selected(ref=self.ref, settings=self.settings if settings is None else settings)
        return load_component(selected, job_dir=self.example.folder, import_paths=True)

    def calls(self, component: Component | None = None) -> Mapping[str, Callable[..., Any]]:
        """The hooks that a component implements, by name, as the host calls them: all arguments by position.

        :param component: A new instance if not given.
        """
        component = component or self.component()
        hooks = Hooks([component], kinds=WORKER_KINDS if self.kind.room == "worker" else (self.kind.name,))
        return {name: call for name in self.kind.hooks if (call := hooks.bind(name, of=component)) is not None}

    def harness_method(self, name: str, purpose: str) -> Any:
        """A method of the author's harness.

        :param name: Such as ``received``. A harness that has None in its place declares that its other side cannot do
            this: a local file does not hang.
        :param purpose: What for: ``so that the kit can see what has arrived``.
        :raises NotApplicable: It has none.
        """
        if self.harness is None:
            raise NotApplicable(
                f"there is no harness: give an object with {name}(), {purpose}"
                f' (harness = "tests/harness.py:Harness" in [tool.hostcore.conformance.{self.name}])',
                wants_example=True,
            )
        if not hasattr(self.harness, name):
            raise NotApplicable(
                f"the harness has no {name}(), {purpose}; write `{name} = None` in it if there can be none",
                wants_example=True,
            )
        found = getattr(self.harness, name)
        if found is None:
            raise NotApplicable(f"the harness declares that there is no {name}()")
        return found

    def in_words(self, error: BaseException) -> str:
        """An exception in one line, with its place in the plugin's code: ``KeyError: 'x' at reporter.py:31``."""
        own = self.owner.__module__.partition(".")[0]
        bases = {cls.__module__.partition(".")[0] for cls in self.owner.__mro__} - _NOT_AUTHORS
        belongs = [in_package(package) for package in {own, *bases}]
        where = place(error, lambda frame: any(one(frame) for one in belongs))
        text = one_line(error).removeprefix("hostcore_hookspecs.errors.")
        return f"{text} at {Path(where[0]).name}:{where[1]}" if where else text

    def folder(self) -> Path:
        """A new empty folder, gone when the session is over."""
        path = self._scratch / str(next(self._numbers))
        path.mkdir(parents=True)
        return path

    def shared(self, key: str, make: Callable[[], _T]) -> _T:
        """Return an object that several checks share and the first one makes: a run, a component. None may change it.

        :param key: Names it within the session.
        """
        if key not in self._shared:
            self._shared[key] = make()
        made: _T = self._shared[key]
        return made


def brought_sections(
    subject: Subject, job: Mapping[str, Any], *, component: Component | None = None, rank: int = 0, world_size: int = 1
) -> dict[str, Any]:
    """The sections of data that a trainer brings to a job, as the host takes them; empty if it brings none.

    :param component: A new instance if not given.
    :raises HostcoreError: When they are none; also whatever the trainer raises.
    """
    component = component or subject.component()
    data_sections = subject.calls(component).get("data_sections")
    if data_sections is None:
        return {}
    spec = load_job(job, job_dir=subject.example.folder)
    context = DataContext(seed=spec.seed, rank=rank, world_size=world_size, cache_dir=str(cache_dir()))
    sections = needed(spec, data_sections(component.settings, context))
    complete = with_sections(spec, sections)
    return {key: getattr(complete, key).to_json() for key in sections}


def installed() -> Discovered:
    """Return the plugins that are installed, found once: each run of a check asks, and no check installs anything."""
    return _installed_on(tuple(sys.path))


@functools.cache
def _installed_on(_: tuple[str, ...]) -> Discovered:
    return discover()


def find_plugin(name: str, kind: str | None = None) -> PluginRef:
    """The plugin of a name.

    :param name: ``name``, ``distribution/name`` or, with a kind, ``module:symbol``.
    :param kind: Needed where plugins of several kinds share the name.
    :raises PluginError: There is none, or there are several.
    """
    found = installed()
    if kind is not None:
        return resolve(name, kind, found)
    if ":" in name:
        raise PluginError(
            f"{name} could be of any kind", code="plugin.kind", hint=f"Say which: kind is one of {', '.join(KINDS)}."
        )
    distribution, _, plain = name.rpartition("/")
    kinds = {
        ref.kind
        for ref in found.refs
        if ref.name == plain and (not distribution or canonical(ref.dist or "") == canonical(distribution))
    }
    if not kinds:
        near = _near(plain, {ref.name for ref in found.refs})
        broken = ", ".join(f"{one.distribution} ({one.error})" for one in found.broken)
        raise PluginError(
            f"no plugin {name!r} is installed" + (f"; could not be read: {broken}" if broken else ""),
            code="plugin.unknown",
            hint=near or "Install its package: pip install -e . ; `hostcore plugins` shows what is installed.",
        )
    if len(kinds) > 1:
        listed = " and ".join(KINDS[one].label for one in KINDS if one in kinds)
        raise PluginError(f"{name!r} is a {listed}", code="plugin.kind", hint="Say which with kind (--kind).")
    return resolve(name, kinds.pop(), found)


def _near(name: str, known: set[str]) -> str | None:
    import difflib

    near = difflib.get_close_matches(name, sorted(known), n=3)
    return f"Did you mean {' or '.join(map(repr, near))}?" if near else None
