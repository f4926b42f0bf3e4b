"""The plan of a run: the job and the plugins that its names stand for, before anything is started or written.

It is made once. The run's record holds the job and the plugins; workers load these plugins and discover none.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs

from hostcore.errors import all_errors, for_each
from hostcore.job.document import blame
from hostcore.job.load import load_job
from hostcore.job.names import is_builtin
from hostcore.job.rules import keep_secrets
from hostcore.job.sections import DeliveryUse
from hostcore.job.spec import JobSpec, job_view
from hostcore.plugins.contract import deprecation_warnings
from hostcore.plugins.installed import Discovered, discover
from hostcore.plugins.load import Component, load_component
from hostcore.plugins.provenance import Provenance, other_code, provenance
from hostcore.plugins.resolve import Selected, in_room, select, unknown_trainer
from hostcore.runs.directory import RunDirectory, runs_dir
from hostcore.secrets.reference import remember_secrets
from hostcore.supervisor.delivery.subscription import mirroring
from hostcore.supervisor.device_leases import HeldDevices
from hostcore.supervisor.devices import require_clear_devices
from hostcore.supervisor.environment import JobEnvironment, environment_of
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.job import Job

if TYPE_CHECKING:
    from hostcore_hookspecs.kinds import Room

#: The kinds whose components serve a run in this process.
SERVING: Final = ("reporter", "uploader", "resolver")
#: Every override is called ``--set KEY``.
_NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})


@attrs.frozen(kw_only=True)
class RunPlan:
    """A well-formed job whose plugins are installed, and whose reporters, uploaders and resolvers are loaded."""

    spec: JobSpec
    job: Job
    #: The plugins that were installed when the plan was made: its policies and its launcher are looked up in the same.
    discovered: Discovered = attrs.field(eq=False, repr=False)
    #: The Python that the workers run in, absolute; empty: that of this process.
    python: str = ""
    #: The Python of the programs that the workers start, absolute; empty: none is known to be theirs.
    programs_python: str = ""
    #: The ``pylock.toml`` of the job's environment; None if it was not built for the job.
    lock: str | None = attrs.field(default=None, repr=False)
    #: The plugins of both rooms, in the order of the job.
    selected: Sequence[Selected]
    reporters: Sequence[Component]
    uploaders: Sequence[Component]
    resolvers: Sequence[Component]
    directory: RunDirectory
    #: Where checkpoints and generated samples go; usually in the run directory.
    checkpoints_dir: Path
    samples_dir: Path
    #: The job's ``inputs`` and ``weights`` on this machine, absolute paths by name, once they were brought here.
    inputs: Mapping[str, str] = attrs.field(factory=dict)
    #: The commit record, on this machine, of the checkpoint that the run begins from, if that lies in a store; empty
    #: if not, or before it was brought here.
    fetched_parent: str = ""
    #: The GPUs that the workers get.
    devices: HeldDevices = attrs.field(factory=HeldDevices, eq=False)
    #: Whether the workers write down every call of a hook.
    trace_hooks: bool = False
    #: Whether an attempt with other plugins than the one before is refused.
    same_plugins: bool = False
    #: Whether the loss curve is drawn at the end.
    plots: bool = True
    #: How often the run is started again, should it fail.
    restarts_left: int = 0

    @property
    def is_built_elsewhere(self) -> bool:
        """Return whether the workers' environment is built where the run is launched: here, its trainer is unknown."""
        environment = self.spec.environment
        return environment is not None and environment.used_by == "worker" and not self.python

    @property
    def deprecated(self) -> Sequence[str]:
        """Return a sentence for each deprecated name that plugins of this process use; the worker reports its own."""
        here = [*self.reporters, *self.uploaders, *self.resolvers]
        return deprecation_warnings((one.ref, one.implementations) for one in here)

    @property
    def other_code(self) -> Sequence[str]:
        """Return sentences about plugins of this process whose code is not that of their distribution."""
        here = in_room(self.selected, "supervisor")
        return [message for one in here if (message := other_code(one.ref)) is not None]

    @property
    def refs(self) -> Sequence[Mapping[str, Any]]:
        """Return the selected plugins, each once, as the record of a run has them."""
        return [attrs.asdict(ref) for ref in dict.fromkeys(one.ref for one in self.selected)]

    def provenance_of(self, one: Selected) -> Provenance:
        """Return the origin of a plugin's code, as far as it is known in this process."""
        return provenance(one.ref, job_dir=self.spec.job_dir, path=self.discovered.path_of(one.ref))


def _silently(_: object) -> None:
    """Drop a line."""


def make_plan(
    source: Path | Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    override_names: Mapping[str, str] = _NO_NAMES,
    profile: str | None = None,
    extra_reporters: Sequence[DeliveryUse] = (),
    runs: Path | None = None,
    job_dir: Path | None = None,
    world_size: int | None = None,
    load: bool = True,
    submits: bool = False,
    discovered: Discovered | None = None,
    tell: Callable[[str], object] = _silently,
) -> RunPlan:
    """Load a job and find its plugins.

    :param source: The job file, or the job itself.
    :param overrides: ``key=value``, applied last.
    :param override_names: Names of overrides that are no ``--set`` in errors: ``--devices``, ``$TRAINER_PLUGIN``.
    :param profile: One of the job's ``profiles``.
    :param extra_reporters: Reporters beside the job's. One that writes a file that the same reporter of the job writes
        takes its place.
    :param runs: The folder of all runs; None for the usual one.
    :param job_dir: The folder that import paths and relative paths start at; None for the job file's folder, or for a
        mapping the working directory.
    :param world_size: Ranks, when an engine has started them. None: one for each device of the job.
    :param load: Whether to load the plugins that serve a run in this process; a plan without them cannot be run here,
        and no environment is built for it.
    :param submits: Whether the run is for the job's launcher to start. An engine's machines build its environment.
    :param discovered: The plugins that are installed; they are looked for if not given.
    :param tell: Called with a line, now and then, while the job's environment is built.
    :raises HostcoreError: Everything that is wrong with the job, as far as this process can find out.
    """
    spec = load_job(
        source,
        overrides=overrides,
        override_names=override_names,
        profile=profile,
        job_dir=job_dir,
        world_size=world_size,
        also=lambda document, folder: unknown_trainer(document, discovered or discover(), job_dir=folder),
    )
    try:
        return _planned(
            spec,
            extra_reporters=extra_reporters,
            runs=runs or runs_dir(),
            load=load,
            builds=load and not (submits and spec.runs_elsewhere),
            discovered=discovered or discover(),
            tell=tell,
        )
    except HostcoreError as error:
        blame(all_errors(error), spec.origins)
        raise


def _planned(
    spec: JobSpec,
    *,
    extra_reporters: Sequence[DeliveryUse],
    runs: Path,
    load: bool,
    builds: bool,
    discovered: Discovered,
    tell: Callable[[str], object],
) -> RunPlan:
    require_clear_devices(spec)
    directory = RunDirectory(runs / spec.run_id)
    room: Room | None = None
    if builds or spec.environment is None:
        environment = environment_of(spec, discovered, lock=_recorded_lock(spec, directory), tell=tell)
    else:
        environment = JobEnvironment(discovered=discovered)
        if spec.environment.used_by == "worker":  # the plugins of its room are known where it is built
            room = "supervisor"
    spec = attrs.evolve(
        spec,
        reporters=_with_extra(_with_terminal(spec), extra_reporters),
        uploaders=mirroring(spec.uploaders, spec.checkpoint_base_uri),
    )
    keep_secrets(spec, spec.job_dir, runs)
    spec, selected = _without_unwanted(spec, select(spec, environment.discovered, room=room))
    here = load_here(
        selected if load else (), job_dir=spec.job_dir, run_dir=directory.path, import_paths=spec.import_paths
    )
    _check_that_something_is_copied(here["uploader"])
    return RunPlan(
        spec=spec,
        job=job_view(spec),
        discovered=environment.discovered,
        python=environment.python,
        programs_python=environment.programs_python,
        lock=environment.lock,
        selected=selected,
        reporters=here["reporter"],
        uploaders=here["uploader"],
        resolvers=here["resolver"],
        directory=directory,
        checkpoints_dir=directory.checkpoints,
        samples_dir=directory.samples,
    )


def _check_that_something_is_copied(uploaders: Sequence[Component]) -> None:
    """Check that the job has an uploader that copies, if it has uploaders.

    :raises HostcoreError: When all of them only wrap others.
    """
    if uploaders and not any("upload_artifact" in one.hook_names for one in uploaders):
        first = uploaders[0].ref.name
        raise HostcoreError(
            f"uploader {first} is around the other uploaders of the job, and there is none",
            code="uploader.alone",
            pointer="/uploaders",
            hint='name an uploader that copies, or the store in "checkpoint_base_uri"',
        )


def _recorded_lock(spec: JobSpec, directory: RunDirectory) -> str | None:
    """Return the lock of an earlier attempt, here or in the mirror that the run is adopted from; None without one."""
    if spec.environment is None:
        return None
    if (recorded := directory.read_lock()) is not None:
        return recorded
    is_new = spec.resume_from_checkpoint is False or spec.begins_from is not None or spec.generated_run_id
    if is_new or spec.checkpoint_base_uri is None or directory.record.exists():
        return None
    from hostcore.supervisor.remote.mirror import mirror_of
    from hostcore_builtin_plugins.stores.errors import Unreachable

    try:
        mirror = mirror_of(spec)
        return mirror.lock() if mirror is not None else None
    except Unreachable:
        return None  # adopting the run reports the outage


def _with_terminal(spec: JobSpec) -> tuple[DeliveryUse, ...]:
    """Return the job's reporters, and ``terminal``, unless it is one of them or the job turns it off."""
    terminal = spec.terminal_use
    return spec.reporters if terminal is None or terminal in spec.reporters else (*spec.reporters, terminal)


def _without_unwanted(spec: JobSpec, selected: Sequence[Selected]) -> tuple[JobSpec, Sequence[Selected]]:
    """Remove the reporter ``terminal`` if the job names it, and turns it off, as ``--quiet`` does.

    After the selection: the pointers of the others are those of the job as it was written.
    """
    if spec.terminal:
        return spec, selected
    unwanted = {at for at, one in enumerate(spec.reporters) if is_builtin(one.use, "terminal")}
    kept = tuple(one for at, one in enumerate(spec.reporters) if at not in unwanted)
    pointers = {f"/reporters/{at}" for at in unwanted}
    return attrs.evolve(spec, reporters=kept), [one for one in selected if one.named_at not in pointers]


def _with_extra(reporters: Sequence[DeliveryUse], extra: Sequence[DeliveryUse]) -> tuple[DeliveryUse, ...]:
    joined = list(reporters)
    for one in extra:
        at = next((at for at, use in enumerate(joined) if _writes_the_file_of(use, one)), len(joined))
        known = joined[at : at + 1] or [one]
        joined[at : at + 1] = [attrs.evolve(use, settings={**use.settings, **one.settings}) for use in known]
    return tuple(joined)


def _writes_the_file_of(use: DeliveryUse, other: DeliveryUse) -> bool:
    path = other.settings.get("path")
    same = use.use.rpartition("/")[2] == other.use.rpartition("/")[2]
    return same and path is not None and use.settings.get("path") == path


def load_here(
    selected: Sequence[Selected],
    *,
    job_dir: Path,
    import_paths: bool | Collection[str],
    run_dir: Path | None = None,
) -> dict[str, list[Component]]:
    """Load the plugins that serve a run in this process: components by kind, in the order of the job.

    :param import_paths, run_dir: See :func:`~hostcore.plugins.load.load_component`.
    :raises Errors: Everything that is wrong with any of them.
    """
    remember_secrets([one.settings for one in selected])  # they may be others than they were at the attempt before
    serving = [one for one in selected if one.ref.kind in SERVING]
    loaded = for_each(serving, partial(load_component, job_dir=job_dir, run_dir=run_dir, import_paths=import_paths))
    return {kind: [one for one in loaded if one.ref.kind == kind] for kind in SERVING}
