"""The trainer contract: three required methods, three with a default, and nine optional ones.

A trainer is a plain class without markers or base class; its methods may take any subset of the arguments below, by
name. Callbacks may wrap them: ``@hookimpl(wrapper=True)``. All ranks call every method at the same step.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from hostcore_hookspecs import default_state
from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.data_source import DataContext
from hostcore_hookspecs.markers import hookspec
from hostcore_hookspecs.run_state import SampleRequest
from hostcore_hookspecs.step import StepResult

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from torch import Tensor

REQUIRED = ("configure", "prepare_batch", "train_step")
#: Hooks whose specification below is called for a trainer that lacks the method; it has all of a group, or none.
DEFAULTS = (("setup",), ("state_dict", "load_state_dict"))


@hookspec(firstresult=True)
def data_sections(hyperparams: Any, ctx: DataContext) -> Mapping[str, Mapping[str, Any]] | None:
    """Called once at start-up, on every rank, before the data is opened and before :func:`setup`: the data it brings.

    For a trainer that knows its data already, as a ``DataModule`` does, so that a job need not name it again. Also
    called when a job is only checked, and before an evaluation: it should be quick, and depend on its arguments alone.

    :param hyperparams: As ``ctx.hyperparams``: an instance of ``Hyperparams``, or the job's own mapping.
    :param ctx: About the run: seed, ranks and ``cache_dir``. Its ``split`` has no meaning.
    :return: The sections ``dataset``, ``validation`` and ``test``, any of them, as a job would have them: plain JSON.
        Equal on all ranks. A section that the job has wins, as a whole, and so do its ``mock_batches`` over
        ``dataset``. A ``source`` may be an import path. None for none.
    :raises Exception: The job is invalid, and does not start.
    """


@hookspec(firstresult=True)
def setup(ctx: StepContext) -> None:
    """Called once, before anything else but :func:`data_sections`, on every rank.

    The place for downloads, tokenizers and statistics of the data. A trainer without it has nothing to set up.

    :param ctx: The context of this attempt.
    :raises Exception: The run fails. An ``InvalidData`` or ``InvalidSettings`` before the first step of the attempt is
        done makes the job invalid.
    """


@hookspec(firstresult=True)
def configure(ctx: StepContext) -> Any:
    """Called once, after :func:`setup`: build the model and the optimizer, and return them as the trainer's state.

    :param ctx: The context of this attempt.
    :return: The state. The host hands it to every other method; only the default of :func:`state_dict` looks inside.
    :raises Exception: The run fails. An ``InvalidData`` or ``InvalidSettings`` before the first step of the attempt is
        done makes the job invalid.
    """


@hookspec(firstresult=True)
def prepare_batch(raw_batch: "pa.RecordBatch | Any", state: Any, ctx: StepContext) -> Any:
    """Called for every batch, on the loop's thread: turn rows into what :func:`train_step` takes.

    Batches of a validation or a test come here too; ``ctx.split`` is the split of this one, ``ctx.batch_index`` its
    number.

    :param raw_batch: ``job.batch_size`` rows, with the columns of the job's ``dataset.columns``. An element of the
        job's ``mock_batches``, or None, for a job without data.
    :param state: What :func:`configure` returned.
    :param ctx: The context of this attempt.
    :return: The prepared batch, usually tensors on ``ctx.device``.
    :raises Exception: The run fails. An ``InvalidData`` or ``InvalidSettings`` before the first step of the attempt is
        done makes the job invalid.
    """


@hookspec(firstresult=True)
def train_step(prepared_batch: Any, state: Any, ctx: StepContext) -> StepResult:
    """Called once per step: forward, backward, one optimizer update.

    When it raises an error about exhausted memory, and the trainer declares ``Capabilities(split_on_oom=True)``,
    it is called again for the same step, with the batch in parts.

    :param prepared_batch: What :func:`prepare_batch` returned; with ``accumulate`` n > 1, a tuple of n of them. Of a
        batch in parts, a tuple of what :func:`prepare_batch` returned for each part.
    :param state: What :func:`configure` returned.
    :param ctx: The context of this attempt.
    :raises Exception: The run fails. An ``InvalidData`` or ``InvalidSettings`` before the first step of the attempt is
        done makes the job invalid.
    """


@hookspec(firstresult=True)
def state_dict(state: Any) -> dict[str, object]:
    """Called for every checkpoint: everything that is needed to continue.

    Also called after the first step of each attempt, to see that a checkpoint can hold what it returns.

    A trainer without it and :func:`load_state_dict` has the default (since 1.1), for a state that is a dictionary, a
    dataclass or an attrs class. A value with methods ``state_dict`` and ``load_state_dict``, such as modules,
    optimizers and schedulers have, is stored by these, also in dictionaries within; any other as it is. What a
    checkpoint cannot hold is refused before the first step, and so is a name that the first step adds.

    :param state: What :func:`configure` returned.
    :return: A dictionary of tensors, numbers, strings, bytes, NumPy arrays, None, and lists, tuples and dictionaries of
        these. Model, optimizer and scheduler; the host itself stores the random states and the place in the data. A
        :class:`~hostcore_hookspecs.TensorFile` selects the file of its tensors.
    :raises Exception: The run fails.
    """
    stored: dict[str, object] = default_state.stored(state)
    return stored


@hookspec(firstresult=True)
def load_state_dict(state: Any, payload: dict[str, object], ctx: StepContext) -> None:
    """Called once after :func:`configure`, when the run resumes.

    The default, see :func:`state_dict`, loads in the order of the names. A tensor that requires a gradient is filled in
    place; any other plain value is replaced, also in a frozen class. State and payload must have the same names.

    :param state: What :func:`configure` returned.
    :param payload: What :func:`state_dict` returned when the checkpoint was written. Tensors are on the CPU.
    :param ctx: The context of this attempt.
    :raises Exception: The run fails. An ``InvalidData`` or ``InvalidSettings`` before the first step of the attempt is
        done makes the job invalid.
    """
    default_state.load(state, payload, ctx)


@hookspec(firstresult=True)
def save_checkpoint(
    state: Any, step: int, output_dir: str, final: bool, ctx: StepContext
) -> Mapping[str, object] | None:
    """Called for every checkpoint, after :func:`state_dict`: write files of the trainer's own, such as model weights.

    What it writes is committed with the checkpoint, or not at all.

    :param state: What :func:`configure` returned.
    :param step: Finished steps.
    :param output_dir: An empty folder to write into; absolute.
    :param final: Whether this is the last checkpoint of the run.
    :param ctx: The context of this attempt.
    :return: Plain JSON to keep with the checkpoint, or None.
    :raises Exception: The run fails.
    :raises OSError: Of a disk that is full or broken: this checkpoint is left out with a warning, unless it is the
        final one or the job has ``require_checkpoints``.
    """


@hookspec(firstresult=True)
def load_checkpoint(state: Any, checkpoint_dir: str, payload: dict[str, object], ctx: StepContext) -> None:
    """Called once after :func:`load_state_dict`, when the run resumes.

    :param state: What :func:`configure` returned.
    :param checkpoint_dir: The folder that :func:`save_checkpoint` wrote; absolute.
    :param payload: What :func:`state_dict` returned when the checkpoint was written.
    :param ctx: The context of this attempt.
    :raises Exception: The run fails. An ``InvalidData`` or ``InvalidSettings`` before the first step of the attempt is
        done makes the job invalid.
    """


@hookspec(firstresult=True)
def validate_step(prepared_batch: Any, state: Any, ctx: StepContext) -> StepResult:
    """Called for every batch of a validation, without gradients.

    Also before the first step of a run, for the first ``sanity_batches`` batches (since 1.1): ``ctx.sanity_checking``.

    The host averages the metrics, weighted by ``StepResult.weight``.

    :param prepared_batch: What :func:`prepare_batch` returned.
    :param state: What :func:`configure` returned.
    :param ctx: The context of this attempt.
    :raises Exception: The run fails; of ``hostcore evaluate``, the evaluation. Before the first step it is a warning
        with one rank, if the trainer has no :func:`evaluation_metrics`.
    """


@hookspec(firstresult=True)
def test_step(prepared_batch: Any, state: Any, ctx: StepContext) -> StepResult:
    """Called for every batch of the test at the end, without gradients.

    :param prepared_batch: What :func:`prepare_batch` returned.
    :param state: What :func:`configure` returned.
    :param ctx: The context of this attempt.
    :raises Exception: The run fails; of ``hostcore evaluate``, the evaluation.
    """


@hookspec(firstresult=True)
def evaluation_metrics(state: Any, ctx: StepContext) -> "Mapping[str, float | int | Tensor] | None":
    """Called once after the last batch of every validation and test, without gradients.

    For metrics that are no mean over batches, such as F1 or AUROC: :func:`validate_step` and :func:`test_step` add up
    what they need (where ``ctx.batch_counts``), and this method computes them and begins anew. All ranks call it, so it
    may contain collectives. What it raises after the first batches alone (``ctx.sanity_checking``) is no error with
    one rank: it is called again after the others. It is not called for an evaluation that a request to stop has ended
    early.

    :param state: What :func:`configure` returned.
    :param ctx: The context of this attempt.
    :return: Scalars or zero-dimensional tensors, by name, or None for none. What the first rank returns is recorded
        beside the weighted means, on all ranks alike; a name that is among these is an error.
    :raises Exception: The run fails; of ``hostcore evaluate``, the evaluation.
    """


@hookspec(firstresult=True)
def generate_sample(
    state: Any, step: int, request: SampleRequest, output_dir: str, ctx: StepContext
) -> Mapping[str, object] | None:
    """Called for every sample request of the job, each ``sample_every`` steps: generate output and write it.

    :param state: What :func:`configure` returned.
    :param step: Finished steps.
    :param request: One element of the job's ``samples``; in a job with ``sample_every`` that has none, an empty one.
    :param output_dir: A folder to write into; absolute.
    :param ctx: The context of this attempt.
    :return: Plain JSON to keep with the sample, or None.
    :raises Exception: The run fails; what is in ``output_dir`` is no sample.
    """


@hookspec(firstresult=True)
def transform_batch(raw_batch: "pa.RecordBatch", rng: "np.random.Generator", ctx: StepContext) -> Any:
    """Called for every batch ahead of the loop, in ``dataset.workers`` processes: decode, tokenise, augment.

    Without ``dataset.workers``, called on the loop's thread when the batch is asked for. Stateless: what it returns
    depends on its arguments alone, so that results are the same for any number of processes. A process has an instance
    of its own, on which neither :func:`setup` nor :func:`configure` is called.

    :param raw_batch: ``job.batch_size`` rows. An element of the job's ``mock_batches``, or None, for a job without
        data.
    :param rng: The only source of randomness: its state is a pure function of ``job.seed``, the epoch and the batch's
        position in it.
    :param ctx: ``job``, ``hyperparams``, ranks and ``model_handles`` of this attempt. No optimizer, dataset or
        precision; ``device`` is ``"cpu"``, ``run_state`` stays at its beginning, and ``request_stop`` raises.
        ``split`` and ``batch_index`` are those of this batch, in whichever process.
    :return: What :func:`prepare_batch` gets as its ``raw_batch``: arrays, tensors on the CPU, record batches, plain
        values, or anything else that can be pickled.
    :raises Exception: The run fails, also when it was raised in another process.
    """


@hookspec(firstresult=True)
def teardown(state: Any, ctx: StepContext) -> None:
    """Called once at the end, however the run ended, if :func:`configure` returned.

    :param state: What :func:`configure` returned.
    :param ctx: The context of this attempt.
    :raises Exception: The run fails; if it has failed already, a warning.
    """


class Trainer(Protocol):
    """The required methods, for type checkers: ``trainer: Trainer = MyTrainer()``.

    The host calls by name, hence the keyword-only arguments: methods that take them by position as well fit too.
    """

    def configure(self, *, ctx: StepContext) -> Any:
        """See :func:`configure`."""

    def prepare_batch(self, *, raw_batch: Any, state: Any, ctx: StepContext) -> Any:
        """See :func:`prepare_batch`."""

    def train_step(self, *, prepared_batch: Any, state: Any, ctx: StepContext) -> StepResult:
        """See :func:`train_step`."""
