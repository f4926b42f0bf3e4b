"""The training loop.

What is called, in this order::

    on_train_begin
    for each epoch:
        on_epoch_begin                                  not when a run resumes inside the epoch
        for each batch of the feed:
            transform_batch                             ahead, in other processes, with dataset.workers
            prepare_batch
            on_batch_begin
            train_step
            on_batch_end
            every metric_every steps, and after the last: the metrics event
            every checkpoint_every steps, and after the last: state_dict, save_checkpoint
            when that checkpoint is on the disk, some steps later: on_checkpoint_saved
        on_epoch_end                                    not for an epoch that was cut short
    if anybody asked to stop:
        on_stop_requested                               for each request
        a checkpoint: state_dict, save_checkpoint
    on_checkpoint_saved
    on_train_end

Hooks that nobody implements are not called, and a hook with one plain implementation is that method itself. Between two
cadence steps nothing reads a tensor.
"""

from collections.abc import Callable, Iterator
from typing import Any

from hostcore.events.codec import finite
from hostcore.worker.metrics import InvalidStepResult, read_metrics
from hostcore.worker.training import Training
from hostcore_hookspecs import events
from hostcore_hookspecs.step import StepResult


def train(training: Training, restore_randomness: Callable[[], None]) -> None:
    """Run the loop from where the run stands to its end, or to a request to stop.

    :param restore_randomness: Called right before the first epoch or batch.
    """
    hooks, ctx, run_state = training.hooks, training.ctx, training.progress.state
    hooks.on_train_begin(run_state, ctx)
    restore_randomness()
    training.meter.start(run_state.step, run_state.samples_seen)
    while not (_hear_requests(training) or run_state.step >= training.total_steps):
        _train_epoch(training)
    if run_state.step >= training.total_steps:
        training.saver.save(final=True)  # it has been, unless the run was asked for less than it had done
    elif training.stop.first:
        training.saver.save(final=training.stop.first.status == "succeeded")
    training.saver.finish()
    hooks.on_train_end(run_state, ctx)


def _train_epoch(training: Training) -> None:
    """Train to the end of the current epoch, of the run, or to a request to stop."""
    hooks, ctx, progress, feed = training.hooks, training.ctx, training.progress, training.feed
    run_state = progress.state
    if run_state.batch_in_epoch == 0:
        training.emit(events.EpochStarted())
        hooks.on_epoch_begin(run_state, ctx)
    _train_batches(training)
    if run_state.batch_in_epoch == feed.steps_per_epoch:
        hooks.on_epoch_end(run_state, ctx)
        if run_state.step < training.total_steps:
            progress.next_epoch()


def _train_batches(training: Training) -> None:
    """Train to the end of the current epoch, of the run, or to a request to stop."""
    asked = training.meter.clock()
    with training.batches() as batches:
        _train_each(batches, asked, training)


def _train_each(batches: Iterator[Any], asked: float, training: Training) -> None:
    """The innermost loop: everything it needs is a local name."""
    job, ctx, state, stop, meter = training.job, training.ctx, training.state, training.stop, training.meter
    progress, saver, total_steps, clock = training.progress, training.saver, training.total_steps, meter.clock
    prepare_batch, train_step = training.hooks.prepare_batch, training.hooks.train_step
    on_batch_begin, on_batch_end = training.hooks.on_batch_begin, training.hooks.on_batch_end
    run_state, metric_every, checkpoint_every = progress.state, job.metric_every, job.checkpoint_every

    for raw_batch in batches:
        arrived = clock()
        meter.data_wait += arrived - asked
        batch = prepare_batch(raw_batch, state, ctx)
        if on_batch_begin is not None:
            on_batch_begin(batch, run_state, ctx)
        result = train_step(batch, state, ctx)
        step = progress.advance()
        control = result.control if result.__class__ is StepResult else _control_of(result, step)
        if on_batch_end is not None:
            on_batch_end(result, run_state, ctx)

        due = metric_every and (step % metric_every == 0 or step == total_steps)
        if due and not (control and control.skip_cadence_emit):
            _record(training, result)
        elif arrived > meter.sign_due:
            training.emit(events.Progress(samples_per_second=meter.sign_of_life(run_state.samples_seen)))
        if saver.has_news:
            saver.finish()
        if step == total_steps:
            saver.save(final=True)
            saver.finish()
            return
        if stop.requested:
            return  # the last checkpoint is written where the run ends
        if checkpoint_every and step % checkpoint_every == 0:
            saver.save(final=False)
        if control and control.backoff_seconds:
            _back_off(training, control.backoff_seconds)
            if stop.requested:
                return
        asked = clock()


def _back_off(training: Training, seconds: float) -> None:
    """Wait as long as a trainer asked for, with signs of life, or until somebody asks to stop."""
    every = training.meter.sign_seconds
    while seconds > 0 and not training.stop.requested:
        training.stop.sleep(min(seconds, every))
        seconds -= every
        training.emit(
            events.Progress(samples_per_second=training.meter.sign_of_life(training.progress.state.samples_seen))
        )


def _control_of(result: Any, step: int) -> Any:
    """The wishes of a result that is not a :class:`StepResult` but looks like one."""
    if not hasattr(result, "metrics"):
        raise InvalidStepResult(
            f"train_step returned {type(result).__name__} at step {step}, which has no `metrics`",
            hint="return hostcore_hookspecs.StepResult(metrics={'loss': loss})",
        )
    return getattr(result, "control", None)


def _record(training: Training, result: Any) -> None:
    """Read the metrics of a cadence step: this is where a GPU is synchronised."""
    run_state = training.progress.state
    metrics = read_metrics(result, run_state.step)
    training.progress.remember(metrics)
    values, nonfinite = finite(metrics)
    reading = training.meter.read(run_state.step, run_state.samples_seen)
    training.emit(events.Metrics(metrics=values, nonfinite=nonfinite, **reading))


def _hear_requests(training: Training) -> bool:
    """Tell the log and the callbacks about new requests to stop; whether there was ever one."""
    run_state = training.progress.state
    for request in training.stop.unheard():
        training.progress.note_stop(request.reason, request.requested_by)
        training.emit(events.StopRequested(reason=request.reason, requested_by=request.requested_by))
        training.hooks.on_stop_requested(request.reason, request.requested_by, run_state, training.ctx)
    return training.stop.requested
