"""State of a run, as plugins may read it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import attrs


class MetricPoint(NamedTuple):
    """One recorded value of a metric."""

    step: int
    value: float


@attrs.frozen(kw_only=True)
class Checkpoint:
    """A committed checkpoint."""

    step: int
    epoch: int
    #: Absolute path of its folder.
    path: str
    #: Size of all its files together, in bytes.
    bytes: int
    #: Written at the end of the run.
    final: bool


@attrs.frozen(kw_only=True)
class SampleRequest:
    """Request for a generated sample, from the job's ``samples``."""

    prompt: str | None = None
    negative_prompt: str | None = None
    instruction: str | None = None
    source_image: str | None = None
    seed: int | None = None
    task: str | None = None


@attrs.frozen(kw_only=True)
class GeneratedSample:
    """Generated output that ``generate_sample`` wrote."""

    step: int
    #: Absolute path of its folder.
    path: str
    request: SampleRequest
    #: What ``generate_sample`` returned.
    info: Mapping[str, object]


@attrs.frozen(kw_only=True)
class StopRequest:
    """A request to stop the run."""

    reason: str
    #: A component (``callback:early-stopping``), ``user``, ``signal:SIGTERM``, or ``host``.
    requested_by: str


@attrs.frozen(kw_only=True)
class Best:
    """The best value seen of a validated metric."""

    metric: str
    value: float
    step: int


@attrs.frozen(kw_only=True, eq=False)
class RunState:
    """State of a run. The host advances it; plugins read it, and cannot assign to it."""

    #: Finished steps, over all attempts.
    step: int = 0
    #: The current epoch, from 0.
    epoch: int = 0
    #: Finished steps in the current epoch.
    batch_in_epoch: int = 0
    #: The step after which the run is complete; 0: it has none.
    total_steps: int = 0
    #: Rows consumed over all ranks since the run began.
    samples_seen: int = 0
    #: The value recorded last of each metric, of training, validation and test.
    metrics: Mapping[str, float] = attrs.field(factory=dict)
    #: Recorded values by metric, oldest first; only the newest are kept.
    history: Mapping[str, Sequence[MetricPoint]] = attrs.field(factory=dict)
    #: What a callback gave to ``ctx.request_best`` last.
    best: Best | None = None
    #: Committed checkpoints that still exist, oldest first.
    checkpoints: Sequence[Checkpoint] = ()
    stop_requests: Sequence[StopRequest] = ()
    #: The ``callback_state`` of each callback of the job that has one, as it is when it is read, by name:
    #: ``early-stopping``; of several with one name the second is ``early-stopping#2``. To be read, not changed.
    callback_states: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
