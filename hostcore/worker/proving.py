"""Steps behind the checkpoint of a stop, trained for the next attempt to compare: ``prove_resume``.

After a kill, the log has metrics behind the newest checkpoint, which the next attempt makes again. A stop leaves none.
These steps are trained once, in memory: step, place in the data and history are put back, and no checkpoint is written.
"""

from typing import Any, Final

from hostcore.events.codec import finite
from hostcore.plugins.errors import one_line
from hostcore.worker.metrics import read_metrics
from hostcore.worker.ranks.outcome import on_first
from hostcore.worker.training import Training
from hostcore_hookspecs import events

#: No step is begun after so many seconds: the supervisor waits for the end of the run.
_LONGEST_SECONDS: Final = 5.0


def prove(training: Training) -> None:
    """Train steps behind the last checkpoint, of one epoch, and emit the metrics of each.

    An error is a warning, since the run has its last checkpoint. On several ranks it fails the run: the others may wait
    for this one.
    """
    if not training.prove_resume or training.requests.owed.names or training.saver.lags:
        return
    training.requests.in_step = True
    try:
        with training.progress.trial(), training.requests.ignored():
            _train(training)
    except Exception as error:
        if training.ranks.world_size > 1:
            raise
        message = f"the steps behind the last checkpoint, for `prove_resume`, failed: {one_line(error)}"
        training.emit(events.Warning(code="resume.not_proved", message=message))
    finally:
        training.requests.in_step = False


def _train(training: Training) -> None:
    hooks, ctx, state, run_state = training.hooks, training.ctx, training.state, training.progress.state
    until = training.meter.clock() + _LONGEST_SECONDS
    steps = min(training.prove_resume, training.total_steps - run_state.step)
    if training.progress.epoch_has_ended and steps:
        training.progress.next_epoch()
        hooks.on_epoch_begin(run_state, ctx)
    with training.batches(stops=False) as batches:
        for _, raw_batch in zip(range(steps), batches, strict=False):
            batch = training.prepared(raw_batch)
            if hooks.on_batch_begin is not None:
                hooks.on_batch_begin(batch, run_state, ctx)
            result = hooks.train_step(batch, state, ctx)
            training.progress.advance()
            if hooks.on_batch_end is not None:
                hooks.on_batch_end(result, run_state, ctx)
            emit_probe(training, result)
            if on_first(training.ranks, lambda: training.meter.clock() > until):
                return


def emit_probe(training: Training, result: Any) -> None:
    """Emit the metrics of a step that two attempts train: those of the first rank."""
    training.requests.recorded.clear()
    values, _ = finite(read_metrics(result, f"train_step at step {training.progress.state.step}"))
    training.emit(events.ResumeProbe(values=values))
