"""A job: every key of a job file, with type, bounds, default and meaning.

The converter, the JSON Schema and the job reference are made from these classes. The rules between keys are in
:mod:`hostcore.job.rules`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
from annotated_types import Ge, Le, MinLen

from hostcore.job.forms import key
from hostcore.job.json_values import to_plain
from hostcore.job.names import (
    BUILTIN,
    DeviceName,
    PeriodOrEpoch,
    PluginName,
    RankDevices,
    RunId,
    is_builtin,
    seconds_of,
)
from hostcore.job.sections import (
    ComponentUse,
    DatasetSpec,
    DeliveryUse,
    EnvironmentSpec,
    InputSpec,
    ResourcesSpec,
    Text,
)
from hostcore_hookspecs.api_version import TRAINER_API_VERSION
from hostcore_hookspecs.job import Job, PluginUse, Resources
from hostcore_hookspecs.run_state import SampleRequest

Cadence = Annotated[int, Ge(0)]
Seconds = Annotated[float, Ge(0)]


@attrs.frozen(kw_only=True)
class JobSpec:
    """A job after profile, command line and defaults were applied."""

    trainer_api_version: Text = key(
        "The version of the contract; an unknown one is refused.", default=TRAINER_API_VERSION
    )
    run_id: RunId = key("The name of the run and of its directory.", default="", shown="generated")
    trainer: PluginName = attrs.field(metadata={"help": "`name`, `distribution/name` or `module:symbol`."})
    hyperparams: Mapping[str, Any] = key(
        "The trainer's own settings; strict if it declares `Hyperparams`.", factory=dict
    )
    dataset: DatasetSpec | None = key(
        "The data to train on.", default=None, shown="what the trainer brings, if it does"
    )
    validation: DatasetSpec | None = key(
        "The data to validate on.", default=None, shown="what the trainer brings, if it does"
    )
    test: DatasetSpec | None = key(
        "The data to test on, at the end.", default=None, shown="what the trainer brings, if it does"
    )
    mock_batches: Annotated[tuple[Any, ...], MinLen(1)] | None = key(
        "A list of batches in place of `dataset`, each for `prepare_batch` as it is.", default=None
    )
    max_steps: Annotated[int, Ge(0)] = key(
        "Steps after which the run ends; 0: no limit. Required without data.", default=0
    )
    epochs: Annotated[int, Ge(1)] | None = key(
        "Epochs after which the run ends.", default=None, shown="1 if `max_steps` is 0, else no limit"
    )
    metric_every: Cadence = key("Record metrics every so many steps; 0: never.", default=10)
    checkpoint_every: Cadence | PeriodOrEpoch = key(
        'Write a checkpoint every so many steps, after a time (`"90s"`, `"10m"`, `"2h"`) or after every '
        '`"epoch"`; 0: only the final one.',
        default="10m",
    )
    sample_every: Cadence = key("Let the trainer generate `samples` every so many steps; 0: never.", default=0)
    validate_every: Cadence | Literal["epoch"] = key(
        'Validate every so many steps, or after every `"epoch"`; 0: never.', default=0
    )
    sanity_batches: Annotated[int, Ge(0)] = key(
        "Validate so many batches before the first step, so that a mistake in the validation, or in a metric's "
        "name, is found then; 0: none. Only if the job validates.",
        default=2,
    )
    accumulate: Annotated[int, Ge(1)] | None = key(
        "Micro-batches per step.", default=None, shown="1, or what `global_batch_size` needs"
    )
    global_batch_size: Annotated[int, Ge(1)] | None = key(
        "Rows per step over all ranks.", default=None, shown="`batch_size` times ranks times `accumulate`"
    )
    seed: Annotated[int, Ge(0), Le(2**32 - 1)] = key("Seeds the data order, Python, NumPy and torch.", default=0)
    deterministic: bool = key("Use deterministic kernels only.", default=False)
    device: DeviceName = key("`cpu`, `mps`, `cuda` or `cuda:1`; `auto` takes the best that works.", default="auto")
    devices: RankDevices | Annotated[tuple[RankDevices, ...], MinLen(1)] | None = key(
        "A list of devices in place of `device`; one rank each. `auto:2` takes two free GPUs, and starts two "
        "ranks on the CPU where there is no GPU.",
        default=None,
    )
    share_devices: bool = key("Whether the run may use GPUs that other runs hold, and they may use its.", default=False)
    precision: Literal["fp32", "bf16", "fp16"] = key("The precision of `ctx.autocast()`.", default="fp32")
    samples: tuple[SampleRequest, ...] = key(
        "What the trainer is asked to generate every `sample_every` steps. Without any, it gets one empty request.",
        default=(),
    )
    callbacks: tuple[ComponentUse, ...] = key("Callbacks, in the order in which they are called.", default=())
    reporters: tuple[DeliveryUse, ...] = key(
        "What is told of every event, besides `terminal`. The event log is always written.", default=()
    )
    terminal: bool = key(
        "Show the progress on standard error, with the reporter `terminal`; `reporters` may have it with "
        "settings. `false`: not at all.",
        default=True,
    )
    uploaders: tuple[DeliveryUse, ...] = key("What copies artifacts elsewhere.", default=())
    spool_bytes: Annotated[int, Ge(0)] = key(
        "Bytes that may wait for their upload; above that the oldest checkpoints are given up, never the newest. "
        "0: no limit.",
        default=100 * 2**30,
        shown="100 GiB",
    )
    spool_seconds: Seconds = key(
        "How long a checkpoint may wait for its upload, unless it is the newest; 0: no limit.", default=7 * 86400.0
    )
    resolvers: tuple[ComponentUse, ...] = key("What turns the references in `inputs` into URIs.", default=())
    policies: tuple[ComponentUse, ...] = key("Who may refuse the job, besides the operator's policies.", default=())
    import_paths: bool | tuple[Text, ...] = key(
        "Whether import paths, of plugins or in their settings, may name code, and plugins run programs that the "
        "job names; or the plugins (`distribution/name`) that may. A service that does not allow it has `false` "
        "in its jobs.",
        default=True,
    )
    launcher: ComponentUse = key("Where the run is started.", default=ComponentUse(use=f"{BUILTIN}local"))
    checkpoint_base_uri: Text | None = key("Where the run is mirrored to.", default=None)
    keep_checkpoints: Annotated[int, Ge(0)] = key(
        "How many of the newest checkpoints stay, besides the best and final ones.", default=3
    )
    require_checkpoints: bool = key(
        "Whether the run fails when a checkpoint cannot be written; else that is a warning.", default=False
    )
    resume_from_checkpoint: bool | Text = key(
        "`auto`: go on if the run has a checkpoint; `true`: it must have one; `false`: it must be new; a path: "
        "start a new run from that checkpoint.",
        default="auto",
    )
    weights: Text | None = key(
        'Initial weights, a path or a URI; for the trainer in `ctx.model_handles["weights"]`.', default=None
    )
    inputs: Mapping[str, InputSpec] = key(
        "References to models and data, fetched for `ctx.model_handles`, by name.", factory=dict
    )
    max_runtime_seconds: Seconds = key(
        "Write a checkpoint and end an attempt after this time, as preempted; 0: no limit.", default=0.0
    )
    on_inexact_resume: Literal["warn", "fail"] = key(
        "What happens when steps that are trained again after a resume give other metrics than before: a warning, "
        "or the end of the run, as failed.",
        default="warn",
    )
    prove_resume: Annotated[int, Ge(0)] = key(
        "Steps that a stopped run trains behind its last checkpoint, in memory, for the next attempt to compare with.",
        default=0,
    )
    max_restarts: Annotated[int, Ge(0)] = key(
        "New attempts after a failure, each from the newest checkpoint.", default=0
    )
    stall_seconds: Seconds = key(
        "End a run whose training makes no progress for so long, as failed; 0: never.", default=600.0
    )
    grace_seconds: Seconds = key(
        "How long a stopping run may take to write its checkpoint, before it is killed.", default=25.0
    )
    owner: Text | None = key("Recorded with the run.", default=None)
    release_ref: Text | None = key("Recorded with the run.", default=None)
    labels: Mapping[str, str] = key("Recorded with the run.", factory=dict)
    annotations: Mapping[str, str] = key("Recorded with the run.", factory=dict)
    profiles: Mapping[str, Mapping[str, Any]] = key(
        "Named JSON merge patches; `--profile NAME` applies one.", factory=dict
    )
    environment: EnvironmentSpec | None = key("An isolated environment for the worker.", default=None)
    resources: ResourcesSpec | None = key("What the launcher asks its engine for.", default=None)
    #: Where relative paths in the settings of plugins start, and what import paths see: the job file's folder. A job
    #: that was loaded has an absolute one.
    job_dir: Path = attrs.field(factory=Path, eq=False, metadata={"key": False})
    #: Whether the job named no run, so that it cannot have run before.
    generated_run_id: bool = attrs.field(default=False, eq=False, metadata={"key": False})
    #: Ranks, when an engine has started them; None: one for each device.
    world_size: int | None = attrs.field(default=None, eq=False, metadata={"key": False})
    #: By top-level key, the last file, profile or option that touched it; see :mod:`hostcore.job.document`.
    origins: Mapping[str, str] = attrs.field(factory=dict, eq=False, metadata={"key": False})

    def to_json(self) -> dict[str, Any]:
        """As plain JSON that loads into an equal spec. ``job_dir`` is not part of it."""
        plain: dict[str, Any] = to_plain(self)
        if not self.run_id:
            del plain["run_id"]
        return plain

    @property
    def checkpoint_steps(self) -> int:
        """Steps between two checkpoints; 0: they come by time, by epoch, or not before the end."""
        return self.checkpoint_every if isinstance(self.checkpoint_every, int) else 0

    @property
    def checkpoint_seconds(self) -> float:
        """Seconds between two checkpoints; 0: they do not come by time."""
        every = self.checkpoint_every
        return seconds_of(every) if isinstance(every, str) and every != "epoch" else 0.0

    @property
    def requested_devices(self) -> tuple[str, ...]:
        """One device per rank, as the job asks for them: ``("auto",)``."""
        given = self.device if self.devices is None else self.devices
        listed = (given,) if isinstance(given, str) else given
        if len(listed) == 1 and listed[0].startswith("auto:"):
            return ("auto",) * int(listed[0].removeprefix("auto:"))
        return listed

    @property
    def is_mirrored(self) -> bool:
        """True if uploaders copy its checkpoints."""
        return bool(self.uploaders) or self.checkpoint_base_uri is not None

    @property
    def has_data(self) -> bool:
        """True if it names data to train on, or has it in itself. If not, its trainer may bring some."""
        return self.dataset is not None or self.mock_batches is not None

    @property
    def batch_size(self) -> int:
        """Rows per rank and micro-batch. A mock batch counts as one row."""
        return self.dataset.batch_size if self.dataset else 1

    @property
    def ranks(self) -> int:
        """Processes that train together: those that an engine has started, or will, or one for each device."""
        return self.world_size or self._launched_ranks or len(self.requested_devices)

    @property
    def runs_elsewhere(self) -> bool:
        """True if its launcher hands it to an engine, whose machines and devices are not those of this process."""
        return not is_builtin(self.launcher.use, "local") and self.world_size is None

    @property
    def _launched_ranks(self) -> int:
        """Those that the launcher's engine will start; 0: it starts none, they are this machine's."""
        if self.resources is None or not self.runs_elsewhere:
            return 0
        return self.resources.num_nodes * max(1, self.resources.gpus_per_node)

    @property
    def micro_batches(self) -> int:
        """Micro-batches per step: ``accumulate``, or what ``global_batch_size`` needs."""
        if self.accumulate is None and self.global_batch_size is not None:
            return self.global_batch_size // (self.batch_size * self.ranks)
        return self.accumulate or 1

    @property
    def rows_per_step(self) -> int:
        """The global batch: rows per step, over all ranks and micro-batches."""
        return self.batch_size * self.ranks * self.micro_batches

    def rows_left_out(self, num_rows: int) -> int:
        """Rows that an epoch leaves out, because they do not fill a step.

        :param num_rows: Of the data; of mock batches, their number.
        """
        return num_rows % self.rows_per_step

    @property
    def terminal_use(self) -> DeliveryUse | None:
        """The reporter ``terminal``, as ``reporters`` has it or with its defaults; None if the job wants none."""
        named = [one for one in self.reporters if is_builtin(one.use, "terminal")]
        return (named or [DeliveryUse(use=f"{BUILTIN}terminal")])[0] if self.terminal else None

    @property
    def begins_from(self) -> str | None:
        """The checkpoint that a new run is to begin from."""
        resume = self.resume_from_checkpoint
        return resume if isinstance(resume, str) and resume != "auto" else None

    @property
    def epoch_limit(self) -> int | None:
        """Epochs after which the run ends; None: no limit."""
        return 1 if self.epochs is None and not self.max_steps else self.epochs


def job_view(spec: JobSpec) -> Job:
    """The job as plugins see it."""
    return Job(
        run_id=spec.run_id,
        trainer=spec.trainer,
        hyperparams=spec.hyperparams,
        dataset=spec.dataset.to_json() if spec.dataset else None,
        validation=spec.validation.to_json() if spec.validation else None,
        test=spec.test.to_json() if spec.test else None,
        batch_size=spec.batch_size,
        global_batch_size=spec.rows_per_step,
        accumulate=spec.micro_batches,
        max_steps=spec.max_steps,
        epochs=spec.epoch_limit,
        metric_every=spec.metric_every,
        checkpoint_every=spec.checkpoint_steps,
        checkpoint_seconds=spec.checkpoint_seconds,
        sample_every=spec.sample_every,
        validate_every=spec.validate_every,
        seed=spec.seed,
        deterministic=spec.deterministic,
        precision=spec.precision,
        owner=spec.owner,
        release_ref=spec.release_ref,
        labels=spec.labels,
        annotations=spec.annotations,
        resources=Resources(**attrs.asdict(spec.resources)) if spec.resources else Resources(),
        environment=to_plain(spec.environment) if spec.environment else None,
        checkpoint_base_uri=spec.checkpoint_base_uri,
        uploaders=tuple(PluginUse(name=one.use, settings=one.settings) for one in spec.uploaders),
        samples=spec.samples or ((SampleRequest(),) if spec.sample_every else ()),
        begins_from=spec.begins_from,
        weights=spec.weights,
        inputs=to_plain(spec.inputs),
    )
