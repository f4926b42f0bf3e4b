"""What a step returns, and what a trainer declares that it can do."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from torch import Tensor


@attrs.frozen(kw_only=True)
class StepControl:
    """Wishes of a trainer about what happens after this step."""

    #: Do not record metrics or samples of this step. A checkpoint is never skipped.
    skip_cadence_emit: bool = False
    #: Wait this long before the next step; a stop interrupts the wait.
    backoff_seconds: float | None = None


@attrs.frozen(kw_only=True, eq=False)
class StepResult:
    """What one step reports.

    An object of another class with the attributes ``metrics`` and, if it likes, ``debug``, ``control`` and ``weight``
    is accepted as well.
    """

    #: Scalars or zero-dimensional tensors, by name. Tensors are not read before a cadence step, so returning one does
    #: not synchronise a GPU. ``loss`` is recorded as ``train/loss``, ``lr`` as ``train/lr``.
    metrics: "Mapping[str, float | int | Tensor]" = attrs.field(factory=dict)
    #: Anything that helps in a debugger; not recorded.
    debug: Mapping[str, Any] = attrs.field(factory=dict)
    control: StepControl | None = None
    #: Samples or tokens behind the metrics. None: the rows of the batch.
    weight: float | None = None


@attrs.frozen(kw_only=True)
class Capabilities:
    """What a trainer can do beyond one rank in fp32. A job that asks for more is invalid before it starts.

    Assigned in the class: ``CAPABILITIES = Capabilities(precisions=("fp32", "bf16"))``.
    """

    #: ``train_step`` takes a tuple of prepared batches when the job sets ``accumulate``.
    accumulate: bool = False
    #: Of ``fp32``, ``bf16``, ``fp16``.
    precisions: tuple[str, ...] = ("fp32",)
    #: May run on several ranks.
    distributed: bool = False
