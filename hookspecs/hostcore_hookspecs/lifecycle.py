"""The lifecycle hooks, which callbacks implement. The argument names are the interface; take the ones you need.

All callbacks are called, in the order of the job's ``callbacks``; what they return is ignored, except for
:func:`select_device`. At a step the order is: metrics, validation, sample, checkpoint.

A class may declare ``CHANGES_TRAINING = True``: it clips gradients, ends the run, or changes in another way what is
learned. Without it a callback declares that it only looks on, and the conformance kit checks that: with it or without
it, losses, final state and random generators are the same to the bit. ``hostcore evaluate`` trains nothing, and leaves
out the callbacks that declare it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.job import Job
from hostcore_hookspecs.markers import hookspec
from hostcore_hookspecs.run_state import Checkpoint, GeneratedSample, RunState
from hostcore_hookspecs.step import StepResult

REQUIRED = ()


@hookspec(firstresult=True)
def select_device(job: Job, available: Sequence[str], local_rank: int) -> str | None:
    """Called once, before the trainer's ``setup``, when the job leaves the device to the host (``"auto"``).

    Stops at the first non-None result; the host's own choice (the best of ``available``) comes last.

    :param job: The job.
    :param available: The devices that the run may use here, best first: ``cuda:0``, …, ``mps``, ``cpu``. The GPUs are
        those that it holds, as this process numbers them.
    :param local_rank: The rank on this machine.
    :return: One of ``available``, or None for no opinion.
    :raises Exception: The job is invalid, and does not start.
    """


@hookspec
def on_train_begin(run_state: RunState, ctx: StepContext) -> None:
    """Called once per attempt, before the first step; after the state was loaded, if the run resumes.

    :param run_state: Where the run stands.
    :param ctx: The context of this attempt.
    :raises Exception: The run fails. An ``InvalidData`` or ``InvalidSettings`` before the first step of the attempt is
        done makes the job invalid.
    """


@hookspec
def on_train_end(run_state: RunState, ctx: StepContext) -> None:
    """Called once per attempt after the last step and the final checkpoint, unless the run failed.

    :param run_state: Where the run stands.
    :param ctx: The context of this attempt.
    :raises Exception: The run fails.
    """


@hookspec
def on_epoch_begin(run_state: RunState, ctx: StepContext) -> None:
    """Called before the first batch of an epoch. Not called again when a run resumes in the middle of one.

    :param run_state: Where the run stands.
    :param ctx: The context of this attempt.
    :raises Exception: The run fails. An ``InvalidData`` or ``InvalidSettings`` before the first step of the attempt is
        done makes the job invalid.
    """


@hookspec
def on_epoch_end(run_state: RunState, ctx: StepContext) -> None:
    """Called after the last batch of an epoch. Not called for an epoch that was cut short.

    :param run_state: Where the run stands.
    :param ctx: The context of this attempt.
    :raises Exception: The run fails.
    """


@hookspec
def on_batch_begin(batch: Any, run_state: RunState, ctx: StepContext) -> None:
    """Called before every step, with the batch prepared.

    :param batch: What the trainer's ``prepare_batch`` returned.
    :param run_state: Where the run stands.
    :param ctx: The context of this attempt.
    :raises Exception: The run fails. An ``InvalidData`` or ``InvalidSettings`` before the first step of the attempt is
        done makes the job invalid.
    """


@hookspec
def on_batch_end(result: StepResult, run_state: RunState, ctx: StepContext) -> None:
    """Called after every step, before its metrics are recorded.

    :param result: What the trainer's ``train_step`` returned. Reading a tensor in it synchronises a GPU.
    :param run_state: Where the run stands; ``step`` counts this step already.
    :param ctx: The context of this attempt.
    :raises Exception: The run fails.
    """


@hookspec
def on_sanity_checked(metrics: Mapping[str, float], run_state: RunState, ctx: StepContext) -> None:
    """Called before the first step of a run, after the first batches of the validation data were evaluated.

    For callbacks that need a metric: raise if it is missing. Values mean nothing yet, and requests to stop, to keep or
    to restore are ignored. Not called when the run resumes, nor with ``sanity_batches`` 0. Since 1.1.

    :param metrics: As for :func:`on_validation_end`, of these batches.
    :param run_state: Where the run stands.
    :param ctx: The context of this attempt.
    :raises Exception: The run fails. An ``InvalidData`` or ``InvalidSettings`` makes the job invalid.
    """


@hookspec
def on_validation_begin(run_state: RunState, ctx: StepContext) -> None:
    """Called before a validation; again for one that a request to stop has cut, in the next attempt.

    :param run_state: Where the run stands.
    :param ctx: The context of this attempt.
    :raises Exception: The run fails.
    """


@hookspec
def on_validation_end(metrics: Mapping[str, float], run_state: RunState, ctx: StepContext) -> None:
    """Called after a validation.

    :param metrics: The weighted means over the validation data, and what the trainer's ``evaluation_metrics`` returned
        on the first rank; by recorded name (``val/loss``).
    :param run_state: Where the run stands.
    :param ctx: The context of this attempt.
    :raises Exception: The run fails.
    """


@hookspec
def on_test_begin(run_state: RunState, ctx: StepContext) -> None:
    """Called before the test.

    :param run_state: Where the run stands.
    :param ctx: The context of this attempt.
    :raises Exception: The run fails; of ``hostcore evaluate``, the evaluation.
    """


@hookspec
def on_test_end(metrics: Mapping[str, float], run_state: RunState, ctx: StepContext) -> None:
    """Called after the test.

    :param metrics: The weighted means over the test data, and what the trainer's ``evaluation_metrics`` returned on the
        first rank; by recorded name (``test/loss``).
    :param run_state: Where the run stands.
    :param ctx: The context of this attempt.
    :raises Exception: The run fails; of ``hostcore evaluate``, the evaluation.
    """


@hookspec
def on_checkpoint_saved(checkpoint: Checkpoint, run_state: RunState, ctx: StepContext) -> None:
    """Called after a checkpoint was committed, which happens in the background: some steps after it was begun.

    How many depends on the disk, and a run that dies in between does not call it. So nothing that a resume must bring
    back exactly belongs here; what is drawn from global random generators leaves no trace.

    :param checkpoint: The checkpoint.
    :param run_state: Where the run stands.
    :param ctx: The context of this attempt.
    :raises Exception: The run fails.
    """


@hookspec
def on_sample_saved(sample: GeneratedSample, run_state: RunState, ctx: StepContext) -> None:
    """Called after the trainer generated a sample.

    :param sample: The generated sample.
    :param run_state: Where the run stands.
    :param ctx: The context of this attempt.
    :raises Exception: The run fails.
    """


@hookspec
def on_stop_requested(reason: str, requested_by: str, run_state: RunState, ctx: StepContext) -> None:
    """Called once per request to stop, at the next batch boundary.

    :param reason: Why.
    :param requested_by: Who: a component, ``user``, ``signal:SIGTERM``, or ``host``.
    :param run_state: Where the run stands.
    :param ctx: The context of this attempt.
    :raises Exception: The run fails.
    """


@hookspec
def on_exception(error: BaseException, run_state: RunState, ctx: StepContext) -> None:
    """Called when the run is about to fail.

    :param error: What was raised.
    :param run_state: Where the run stands.
    :param ctx: The context of this attempt.
    :raises Exception: A warning: the run fails for its first error.
    """
