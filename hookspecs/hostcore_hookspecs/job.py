"""The job as plugins see it."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from hostcore_hookspecs.run_state import SampleRequest


def _empty() -> Mapping[str, Any]:
    return {}


@attrs.frozen(kw_only=True)
class Resources:
    """Resources requested of a launcher's engine."""

    #: Machines.
    num_nodes: int = 1
    #: GPUs on each machine, a rank on each; 0: one rank on its processors.
    gpus_per_node: int = 0
    #: CPU cores on each machine; None: what the engine gives.
    cpus_per_node: float | None = None
    #: Memory of each machine in GB (10^9 bytes); None: what the engine gives.
    memory_per_node_gb: float | None = None
    #: The container image; None: that of the launcher's settings, or none.
    image: str | None = None
    #: The Kubernetes namespace, or the Slurm account.
    namespace: str | None = None
    #: Environment variables of every process.
    env: Mapping[str, str] = attrs.field(factory=_empty)

    @property
    def ranks_per_node(self) -> int:
        """Processes that train on each machine."""
        return max(1, self.gpus_per_node)


@attrs.frozen(kw_only=True)
class PluginUse:
    """One use of a plugin by a job."""

    #: As the job names it: ``name``, ``distribution/name``, or an import path.
    name: str
    #: As given.
    settings: Mapping[str, Any] = attrs.field(factory=_empty)


@attrs.frozen(kw_only=True)
class Job:
    """A job after defaults, profile and command line were applied. Read-only.

    Plain values throughout: settings of components are mappings as the job file gave them (secrets are references).
    """

    run_id: str = "run"
    trainer: str = ""
    #: The trainer's own settings, as given. ``StepContext.hyperparams`` has them structured.
    hyperparams: Mapping[str, Any] = attrs.field(factory=_empty)
    #: The training data's settings; None for a job with ``mock_batches`` or without data.
    dataset: Mapping[str, Any] | None = None
    #: The data to validate and to test on, likewise.
    validation: Mapping[str, Any] | None = None
    test: Mapping[str, Any] | None = None
    #: Rows per rank and micro-batch.
    batch_size: int = 32
    #: Rows per step, over all ranks and micro-batches.
    global_batch_size: int = 32
    #: Micro-batches per step.
    accumulate: int = 1
    #: 0: no limit.
    max_steps: int = 0
    #: None: no limit.
    epochs: int | None = None
    #: In steps; 0 is off.
    metric_every: int = 10
    #: 0 is off, or by time; by epoch it is 0 outside of the worker, which knows the steps of an epoch.
    checkpoint_every: int = 0
    sample_every: int = 0
    #: In steps, or ``"epoch"``; 0 is off.
    validate_every: int | str = 0
    #: Seconds between two checkpoints, by the clock of the first rank; 0: not by time. Since 1.1.
    checkpoint_seconds: float = 0.0
    seed: int = 0
    deterministic: bool = False
    precision: str = "fp32"
    owner: str | None = None
    release_ref: str | None = None
    labels: Mapping[str, str] = attrs.field(factory=_empty)
    annotations: Mapping[str, str] = attrs.field(factory=_empty)
    #: What the launcher asks its engine for.
    resources: Resources = attrs.field(factory=Resources)
    #: What the job's own environment is made of: ``requirements``, ``lock``, ``python``, ``interpreter``, ``used_by``.
    #: None: it runs in that of the host.
    environment: Mapping[str, Any] | None = None
    #: Where the run is mirrored to.
    checkpoint_base_uri: str | None = None
    #: What copies the run elsewhere, the one that ``checkpoint_base_uri`` stands for included.
    uploaders: Sequence[PluginUse] = ()
    #: What the trainer is asked to generate.
    samples: Sequence[SampleRequest] = ()
    #: The checkpoint of another run that this one begins from; a path or a URI.
    begins_from: str | None = None
    #: Initial weights; a path or a URI.
    weights: str | None = None
    #: References and URIs of models and data that the trainer gets as local paths, by name.
    inputs: Mapping[str, Any] = attrs.field(factory=_empty)
