"""The job as plugins see it."""

from collections.abc import Mapping
from typing import Any

import attrs


def _empty() -> Mapping[str, Any]:
    return {}


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
    checkpoint_every: int = 0
    sample_every: int = 0
    #: In steps, or ``"epoch"``; 0 is off.
    validate_every: int | str = 0
    seed: int = 0
    deterministic: bool = False
    precision: str = "fp32"
    owner: str | None = None
    release_ref: str | None = None
    labels: Mapping[str, str] = attrs.field(factory=_empty)
    annotations: Mapping[str, str] = attrs.field(factory=_empty)
