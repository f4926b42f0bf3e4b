"""The training loop.

What is called, in this order::

    on_train_begin
    before step 1, with sanity_batches: the same calls as a validation for its first batches, but on_sanity_checked in
        place of on_validation_begin and on_validation_end
    what an interrupted attempt has left at its last step: on_validation_begin, and so on, as below
    for each epoch:
        on_epoch_begin                                  not when a run resumes inside the epoch
        for each batch of the feed:
            transform_batch                             ahead, in other processes, with dataset.workers
            prepare_batch                               of each micro-batch, with accumulate
            on_batch_begin
            train_step                                  again, in parts, when memory runs out, if the trainer allows it
            on_batch_end
            every metric_every steps, after the last, and where train_step wishes it: the metrics event
            after the attempt's first step: state_dict  to see that a checkpoint can hold what it returns
            every validate_every steps, and after the last: on_validation_begin,
                transform_batch, prepare_batch, validate_step for each batch, evaluation_metrics, on_validation_end
            every sample_every steps: generate_sample, on_sample_saved for each request
            if request_best: state_dict, save_checkpoint
            if request_restore: load_state_dict, load_checkpoint
            every checkpoint_every steps or seconds, and after the last: state_dict, save_checkpoint
            when that checkpoint is on the disk, some steps later: on_checkpoint_saved
        on_epoch_end                                    not for an epoch that was cut short; once, in whatever attempt
    if a stop was requested:
        on_stop_requested                               for each request
        a checkpoint: state_dict, save_checkpoint
    on_checkpoint_saved
    if the run was stopped, with prove_resume: some steps more, as above, without cadence, and forgotten
    unless the run was interrupted: on_test_begin,
        transform_batch, prepare_batch, test_step for each batch, evaluation_metrics, on_test_end
    on_train_end

Hooks without an implementation are not called, and a hook with one plain implementation is that method itself. Between
two cadence steps nothing reads a tensor.
"""

from collections.abc import Callable, Iterator
from typing import Any

from hostcore.worker.cadence import (
    answer,
    answer_in_step,
    check_sanity,
    hear_requests,
    record,
    run_test,
    save_end,
    save_last,
    sign_of_life,
)
from hostcore.worker.metrics import InvalidStepResult
from hostcore.worker.proving import emit_probe, prove
from hostcore.worker.training import Training
from hostcore_hookspecs import events
from hostcore_hookspecs.step import StepResult


def train(training: Training, restore_randomness: Callable[[], None]) -> bool:
    """Run the loop from where the run stands to its end, or to a request to stop.

    :param restore_randomness: Called right before the first epoch or batch.
    :return: Whether the run came to its end, or to one that a component asked for; else it was interrupted.
    """
    hooks, ctx, run_state, owed = training.hooks, training.ctx, training.progress.state, training.requests.owed
    has_left = training.requests.pending  # an earlier attempt, at its last step
    hooks.on_train_begin(run_state, ctx)
    check_sanity(training)
    restore_randomness()
    training.meeting.meet()  # who has been asked to stop by now stops all before the first step
    training.meter.start(run_state.step, run_state.samples_seen)
    training.requests.in_step = True
    if has_left:
        answer(training)
        if run_state.step >= training.total_steps:
            save_last(training)
    _end_epoch(training)
    while not (hear_requests(training) or run_state.step >= training.total_steps):
        _train_epoch(training)
    training.requests.in_step = False
    stopped = training.stop.first
    answer(training)
    complete = run_state.step >= training.total_steps or (stopped is not None and stopped.status == "succeeded")
    complete = complete and not owed.names
    training.meeting.meet()  # none of them has anything else to do
    if complete or stopped is not None:
        save_end(training, final=complete)  # it has been, unless a request to stop came between
    training.saver.finish()
    if not complete:
        prove(training)
    if complete and not run_test(training):
        complete = False
        save_end(training, final=True)
        training.saver.finish()
    hooks.on_train_end(run_state, ctx)
    return complete


def _train_epoch(training: Training) -> None:
    """Train to the end of the current epoch, of the run, or to a request to stop."""
    progress, run_state = training.progress, training.progress.state
    if progress.epoch_has_ended:
        progress.next_epoch()  # only here: a run that ends, or stops, at an epoch's end stays in that epoch
    if run_state.batch_in_epoch == 0:
        training.emit(events.EpochStarted())
        training.hooks.on_epoch_begin(run_state, training.ctx)
    _train_batches(training)
    _end_epoch(training)


def _end_epoch(training: Training) -> None:
    """End an epoch of which all steps are done; once, in whatever attempt."""
    progress, run_state = training.progress, training.progress.state
    if run_state.batch_in_epoch != training.feed.steps_per_epoch or training.requests.owed.names:
        return
    if not progress.epoch_has_ended:
        progress.epoch_has_ended = training.saver.lags = True  # a checkpoint that it asks for is behind it
        training.hooks.on_epoch_end(run_state, training.ctx)
        training.meeting.meet()
        answer(training)


def _train_batches(training: Training) -> None:
    """Train to the end of the current epoch, of the run, or to a request to stop."""
    asked = training.meter.clock()
    with training.batches() as batches:
        _train_each(batches, asked, training)


def _train_each(batches: Iterator[Any], asked: float, training: Training) -> None:
    """The innermost loop: what it needs is a local name. Most steps have nothing due, and end at one condition."""
    ctx, state, stop, meter, clock = training.ctx, training.state, training.stop, training.meter, training.meter.clock
    progress, saver, requests, run_state = training.progress, training.saver, training.requests, training.progress.state
    prepare_batch, train_step = training.hooks.prepare_batch, training.hooks.train_step
    on_batch_begin, on_batch_end = training.hooks.on_batch_begin, training.hooks.on_batch_end
    accumulates, due = training.job.accumulate > 1, _next_due(training)

    for raw_batch in batches:
        arrived = clock()
        meter.data_wait += arrived - asked
        if accumulates:
            batch = training.prepared(raw_batch)
        else:
            ctx.batch_index = run_state.batch_in_epoch
            batch = prepare_batch(raw_batch, state, ctx)
        if on_batch_begin is not None:
            on_batch_begin(batch, run_state, ctx)
        result = train_step(batch, state, ctx)
        step = progress.advance()
        control = result.control if result.__class__ is StepResult else _control_of(result, step)
        if on_batch_end is not None:
            on_batch_end(result, run_state, ctx)

        is_silent = arrived > meter.sign_due
        if step >= due or control or is_silent or requests.pending or saver.has_news or stop.requested:
            if not _follow(training, step, result, control, is_silent=is_silent):
                return
            due = _next_due(training)
        asked = clock()


def _next_due(training: Training) -> int:
    """Return the next step behind which there is something to do; several ranks meet behind each."""
    job, step = training.job, training.progress.state.step
    if training.beat is not None or step < training.watched_until:
        return step + 1
    cadences = (job.metric_every, job.checkpoint_every, training.validate_every, training.sample_every)
    return min([training.total_steps, *(step - step % every + every for every in cadences if every)])


def _follow(training: Training, step: int, result: Any, control: Any, *, is_silent: bool) -> bool:
    """Do what is due behind a step.

    :param is_silent: Whether a sign of life is due.
    :return: Whether the next step of the epoch follows.
    """
    job, stop, saver, requests = training.job, training.stop, training.saver, training.requests
    is_last = step == training.total_steps
    shown = not (control and control.skip_cadence_emit)
    wished = control and getattr(control, "record_metrics", False)
    if job.metric_every and (step % job.metric_every == 0 or is_last or wished):
        record(training, result if shown else None)
    elif is_silent:
        sign_of_life(training)
    if step <= training.watched_until:
        _watch(training, result)
    if saver.has_news:
        saver.finish()
    if training.validate_every and (step % training.validate_every == 0 or is_last):
        requests.owe_validation()
    if training.sample_every and step % training.sample_every == 0 and shown:
        requests.owe_samples()
    if requests.pending:
        answer_in_step(training)
    if training.beat is not None:
        training.beat(step)
    if is_last:
        save_last(training)
        return False
    if stop.requested:
        return False  # the last checkpoint is written where the run ends
    if job.checkpoint_every and step % job.checkpoint_every == 0:
        saver.save(final=False)
    if control and control.backoff_seconds:
        _back_off(training, control.backoff_seconds)
    return not stop.requested


def _watch(training: Training, result: Any) -> None:
    """Emit probes of a resume and rehearse a checkpoint, in the first steps of an attempt."""
    step = training.progress.state.step
    if step <= training.probed_until:
        emit_probe(training, result)
    if step == training.first_step:
        training.saver.rehearse()


def _back_off(training: Training, seconds: float) -> None:
    """Wait as long as a trainer asked for, with signs of life, or until the run is asked to stop."""
    every = training.meter.sign_seconds
    while seconds > 0 and not training.stop.requested:
        training.stop.sleep(min(seconds, every))
        seconds -= every
        sign_of_life(training)


def _control_of(result: Any, step: int) -> Any:
    """The wishes of a result that is not a :class:`StepResult` but looks like one."""
    if not hasattr(result, "metrics"):
        raise InvalidStepResult(
            f"train_step returned {type(result).__name__} at step {step}, which has no `metrics`",
            hint="return hostcore_hookspecs.StepResult(metrics={'loss': loss})",
        )
    return getattr(result, "control", None)
