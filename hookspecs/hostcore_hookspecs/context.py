"""Context that the host passes to every trainer method and lifecycle hook."""

import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import attrs

from hostcore_hookspecs.job import Job
from hostcore_hookspecs.run_state import Best, RunState

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import torch

    from hostcore_hookspecs.data_source import Dataset

#: Apart from the streams 0 to 2 of the host, which draw the order of the data and for ``transform_batch``.
_STREAMS: Final = {"train": 3, "validation": 4, "test": 5}


class Host(Protocol):
    """The host's side of what a component may ask for."""

    def is_stopping(self) -> bool:
        """Return whether the run was asked to stop, as far as all ranks know."""

    def request_stop(self, reason: str) -> None:
        """Note a request to stop."""

    def request_best(self, best: Best) -> None:
        """Note that the present state is the best yet."""

    def request_restore(self, step: int, reason: str) -> None:
        """Note that the trainer is to go back to the state of a checkpoint."""

    def any_rank(self, flag: bool) -> bool:
        """Return whether the flag is set on any rank."""

    def begin_update(self) -> None:
        """Note that the present step cannot be made again from here on."""

    def keep_batches_whole(self, reason: str) -> None:
        """Note that no step of this run can be made again."""

    @property
    def repeats_steps(self) -> bool:
        """Return whether the trainer's step can be made again before its update."""

    def repeat_step(self) -> NoReturn:
        """Break off the present step, for ``train_step`` to be called again."""

    def warn(self, message: str) -> None:
        """Record a warning."""

    def record(self, name: str, value: "float | int | torch.Tensor") -> None:
        """Add to the metrics of the present step."""


@attrs.define(eq=False)
class RowSlice:
    """Rows that the data source gave at once, and the batch at hand as a slice of them.

    For what can be made of all of them once, such as tensors, and sliced for each batch.
    """

    #: The batch that the other attributes are about. If it is not the ``raw_batch`` at hand, nothing is known of that.
    batch: "pa.RecordBatch | None" = None
    rows: "pa.RecordBatch | None" = None
    #: The first row of the batch in ``rows``.
    start: int = 0
    #: What was made of ``rows``, by whoever makes it; empty again with other rows.
    made: dict[Any, Any] = attrs.field(factory=dict)

    def begin(self, rows: "pa.RecordBatch | None") -> None:
        """Go on to other rows."""
        self.batch, self.rows, self.made = None, rows, {}


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
    #: What the batch at hand is of: ``train``, ``validation`` or ``test``. ``train`` also where there is no batch.
    split: str = "train"
    #: The number of the batch at hand on this rank, from 0: in training since the beginning of the epoch, also when the
    #: run is resumed inside of it; else since the beginning of this validation or test. With ``accumulate`` each batch
    #: of a step counts, and ``train_step`` sees the number of its last one.
    batch_index: int = 0
    #: ``weights`` and the fetched ``inputs`` of the job: absolute paths, by name.
    model_handles: Mapping[str, Any] = attrs.field(factory=dict)
    #: The training data, opened; None without a data source.
    dataset: "Dataset | None" = None
    #: 0: an epoch never ends.
    steps_per_epoch: int = 0
    #: The optimizer and scheduler given to ``register_optimizer``.
    optimizer: "torch.optim.Optimizer | None" = None
    scheduler: Any = None
    #: A gradient scaler when ``precision`` is ``fp16``, else None.
    scaler: "torch.amp.GradScaler | None" = None
    #: The run directory, absolute: a callback's own files go into a folder there named like the callback, written by
    #: rank 0. Empty in a context made by hand.
    run_dir: str = ""
    #: False in a validation or test for a batch that this rank repeats, so that all ranks have as many. What its step
    #: returns does not count, and a trainer that adds up predictions for ``evaluation_metrics`` leaves it out.
    batch_counts: bool = True
    #: Whether a checkpoint that is due by time follows the step at hand; on all ranks alike. One that is due by its
    #: step is not announced: it follows from ``job.checkpoint_every``. Since 1.1.
    checkpoint_due: bool = False
    #: Whether the batches at hand are those of the check before the first step; see the job's ``sanity_batches``. For
    #: trainers that decide something by a validation. Requests made meanwhile are ignored. Since 1.1.
    sanity_checking: bool = False
    #: Where the training batch at hand lies in the data; of other batches nothing is known. Since 1.1.
    row_slice: RowSlice | None = None
    _host: Host | None = None
    #: With the split, the step and the batch that it is of. A hook on ``batch_index`` would cost every step 1 µs.
    _rng: "tuple[tuple[str, int, int], np.random.Generator] | None" = attrs.field(default=None, init=False)

    @property
    def rng(self) -> "np.random.Generator":
        """The random generator of the batch at hand, for what a trainer draws itself, such as windows of a long text.

        A function of ``job.seed``, step, rank and ``batch_index``, so that a resumed run draws the same as before.
        In a validation or test the step does not count: each draws the same. Every batch begins another generator, also
        when its step is made again; calls for one batch go on in the same. In ``transform_batch`` it is the ``rng``
        that this is given. Anywhere else, such as in ``configure``, it is not to be used. Since 1.1.
        """
        place = self.split, self.run_state.step, self.batch_index
        if self._rng is None or self._rng[0] != place:
            import numpy as np

            step = self.run_state.step if self.split == "train" else 0
            counter = (0, _STREAMS[self.split], self.batch_index, self.rank)
            self._rng = place, np.random.Generator(np.random.Philox(key=(self.job.seed, step), counter=counter))
        return self._rng[1]

    @rng.setter
    def rng(self, rng: "np.random.Generator | None") -> None:
        """Give the batch at hand a generator; None: it begins anew."""
        self._rng = None if rng is None else ((self.split, self.run_state.step, self.batch_index), rng)

    def is_canceled(self) -> bool:
        """Return whether the run was asked to stop. For long work inside one step. All ranks get one answer."""
        return self._host is not None and self._host.is_stopping()

    def request_stop(self, reason: str) -> None:
        """End the run after this step, as succeeded, with this reason. One rank that asks is enough.

        :raises RuntimeError: When the context is not part of a run.
        """
        self._of_run("request_stop").request_stop(reason)

    def request_best(self, best: Best) -> None:
        """Have a checkpoint of this step written and kept, because a metric was never better.

        It is kept until there is a better one of the same metric, or the run is over and beyond. To be called by all
        ranks alike; ``on_validation_end`` and ``on_epoch_end`` are good places.

        :param best: Becomes ``run_state.best``.
        :raises RuntimeError: When the context is not part of a run.
        """
        self._of_run("request_best").request_best(best)

    def request_restore(self, step: int, reason: str) -> None:
        """Load the trainer's state from a checkpoint of this run, after this step; called by all ranks alike.

        Model and optimizer go back; the step, the place in the data, the random states and the callbacks go on.

        :param step: One of ``run_state.checkpoints``.
        :param reason: Recorded in the event ``trainer_restored``.
        :raises RuntimeError: When the context is not part of a run.
        """
        self._of_run("request_restore").request_restore(step, reason)

    def any_rank(self, flag: bool) -> bool:
        """Return whether the flag is set on any rank: a collective, so all ranks must call it at the same place.

        One rank gets its own answer back, and so does a context made by hand.
        """
        return flag if self._host is None else self._host.any_rank(flag)

    def begin_update(self) -> None:
        """All gradients of the step are there: from here on ``train_step`` changes more than them.

        For trainers that declare ``Capabilities(split_on_oom=True)``, once in each ``train_step``, behind the last
        ``backward`` and before the first collective, clipping, or update of the optimizer. When memory has run out
        before, the step is made again with its batch in smaller parts. On several ranks it is a collective: when memory
        has run out on another rank, it does not return but raises, and all ranks make the step again. Does nothing for
        other trainers, and in a context made by hand.
        """
        if self._host is not None:
            self._host.begin_update()

    def keep_batches_whole(self, reason: str) -> None:
        """Do not make steps of this run again when memory runs out, whatever the trainer declares.

        To be called in ``configure``, by all ranks alike, when ``train_step`` will call collectives before
        ``begin_update``, as DDP and FSDP do. ``toolkit.parallelize`` does so for these two.

        :param reason: Added to the error of a step for which memory runs out.
        """
        if self._host is not None:
            self._host.keep_batches_whole(reason)

    @property
    def repeats_steps(self) -> bool:
        """Return whether :meth:`repeat_step` may be called: the trainer declares ``repeatable``. Since 1.1."""
        return self._host is not None and self._host.repeats_steps

    def repeat_step(self) -> NoReturn:
        """Break off the present ``train_step``, and have it called again with the same batch.

        For callbacks, in a hook before the first ``step()`` of the optimizer, on all ranks alike. The callback brings
        back gradients, buffers and random generators first. Wrappers of ``train_step`` are entered again; metrics that
        were recorded since it began are dropped. Since 1.1.

        :raises RuntimeError: When the trainer does not declare that its step is repeatable, or outside of a run.
        """
        self._of_run("repeat_step").repeat_step()

    def warn(self, message: str) -> None:
        """Record a ``warning`` event in the name of the component that calls: for what does not stop the run.

        A rank's own; where all ranks see the same, let the first rank record it. In a context made by hand it becomes a
        Python warning.

        :param message: One line.
        """
        if self._host is None:
            warnings.warn(message, stacklevel=2)
        else:
            self._host.warn(message)

    def record(self, name: str, value: "float | int | torch.Tensor") -> None:
        """Add a metric to those that ``train_step`` returns for the present step.

        For callbacks, in ``on_batch_begin`` and ``on_batch_end``, around ``prepare_batch`` and ``train_step``, and in
        what these call, such as a hook of the optimizer; on the loop's thread. What holds for a metric of a step holds
        for it: a tensor is not read before a step whose metrics are recorded, other steps leave no trace, and several
        ranks record their weighted mean. A name that the step has already fails the run, with both who report it.

        :param name: ``loss`` is recorded as ``train/loss``, ``lr`` as ``train/lr``.
        :param value: A number, or a tensor with one element.
        :raises HostcoreError: Outside of a step, where there is none that it could belong to.
        :raises RuntimeError: When the context is not part of a run.
        """
        self._of_run("record").record(name, value)

    def _of_run(self, method: str) -> Host:
        if self._host is None:
            raise RuntimeError(f"{method}() needs a run; this StepContext was made by hand")
        return self._host

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
