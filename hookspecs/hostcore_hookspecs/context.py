"""What the host hands to every trainer method and lifecycle hook."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from hostcore_hookspecs.job import Job
from hostcore_hookspecs.run_state import RunState

if TYPE_CHECKING:
    import torch

    from hostcore_hookspecs.data_source import Dataset


class StopSignal(Protocol):
    """The host's side of stopping: asked by many, heard at the next batch boundary."""

    @property
    def requested(self) -> bool:
        """Whether anybody has asked."""

    def request(self, reason: str, requested_by: str) -> None:
        """Ask the run to stop."""


@attrs.define(kw_only=True, eq=False)
class StepContext:
    """The same object for a whole attempt. Tests of a trainer can make one: ``StepContext(job=Job(max_steps=3))``."""

    job: Job = attrs.field(factory=Job)
    #: An instance of the trainer's ``Hyperparams``, or the plain mapping of the job if it declares none.
    hyperparams: Any = attrs.field(factory=dict)
    #: Where to put the model and the batches.
    device: "torch.device | str" = "cpu"
    #: What ``precision`` asks for: ``torch.float32``, ``torch.bfloat16`` or ``torch.float16``.
    dtype: "torch.dtype | None" = None
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    run_state: RunState = attrs.field(factory=RunState)
    #: ``weights`` and the fetched ``inputs`` of the job: absolute paths, by name.
    model_handles: Mapping[str, Any] = attrs.field(factory=dict)
    #: The training data, opened; None without a data source.
    dataset: "Dataset | None" = None
    #: The optimizer and scheduler given to ``register_optimizer``.
    optimizer: "torch.optim.Optimizer | None" = None
    scheduler: Any = None
    #: A gradient scaler when ``precision`` is ``fp16``, else None.
    scaler: "torch.amp.GradScaler | None" = None
    _stop: StopSignal | None = None

    def is_canceled(self) -> bool:
        """Whether the run was asked to stop, by anybody. For long work inside one step."""
        return self._stop is not None and self._stop.requested

    def request_stop(self, reason: str) -> None:
        """End the run after this step, as succeeded, with this reason.

        :raises RuntimeError: When the context is not part of a run.
        """
        if self._stop is None:
            raise RuntimeError("request_stop() needs a run; this StepContext was made by hand")
        self._stop.request(reason, "component")

    def register_optimizer(self, optimizer: "torch.optim.Optimizer", scheduler: Any = None) -> None:
        """Make the optimizer (and its scheduler) known to callbacks, as ``ctx.optimizer`` and ``ctx.scheduler``."""
        self.optimizer = optimizer
        self.scheduler = scheduler

    def autocast(self) -> AbstractContextManager[Any]:
        """The autocast context for the job's precision; does nothing for ``fp32``."""
        if self.dtype is None or self.job.precision == "fp32":
            return nullcontext()
        import torch

        return torch.autocast(torch.device(self.device).type, dtype=self.dtype)
