"""The cadences of the loop: metrics, validation, samples and test, and the requests of components between two steps."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hostcore.events.codec import finite
from hostcore.worker.evaluation import Evaluated, EvaluationLoop
from hostcore.worker.metrics import WeightedMeans, mean_over_ranks, read_debug, read_metrics, read_weight
from hostcore.worker.ranks.meeting import RanksDisagree
from hostcore.worker.training import Training
from hostcore_builtin_plugins.callbacks.oom_hint import is_out_of_memory
from hostcore_hookspecs import HostcoreError, events

#: Of a rank: Σ(weight·value) and Σ weight, by name.
Totals = Mapping[str, tuple[float, float]]


def record(training: Training, result: Any) -> None:
    """Read the metrics of a cadence step: this is where a GPU is synchronised.

    They are read in the current stream before the next step is queued in it, which may write over their memory. What
    waits for a later step is a copy (``kept``). A trainer that computes in a stream of its own has the current stream
    wait for that before it returns, as torch asks of whoever hands a tensor on.

    :param result: None: they are not recorded, as the trainer has asked for.
    """
    if result is None:
        _skip_record(training)
        return
    training.requests.look_at_clock()
    run_state = training.progress.state
    where = f"train_step at step {run_state.step}"
    metrics, debug = read_metrics(result, where), read_debug(result, where)
    if training.requests.recorded:
        metrics = training.requests.with_recorded(metrics)
    beside = {**training.meter.read(run_state.step, run_state.samples_seen), "debug": debug}
    if training.ranks.world_size > 1:
        weight = read_weight(result, where, rows=training.feed.rows_per_step // training.ranks.world_size)
        own = WeightedMeans()
        own.add(metrics, weight)
        _record_means(training, own.totals(), beside)
        return
    training.progress.remember(metrics)
    training.emit(_metrics(metrics, beside))


def _skip_record(training: Training) -> None:
    """Record nothing at a cadence step; the other ranks must not either."""
    if training.ranks.world_size > 1:
        _record_means(training, None, {})
    if training.meter.clock() > training.meter.sign_due:
        sign_of_life(training)


def sign_of_life(training: Training) -> None:
    """Emit progress of the run."""
    training.requests.look_at_clock()
    rate = training.meter.sign_of_life(training.progress.state.samples_seen)
    training.emit(events.Progress(samples_per_second=rate))


def _metrics(metrics: dict[str, float], beside: Mapping[str, Any]) -> events.Metrics:
    values, nonfinite = finite(metrics)
    return events.Metrics(metrics=values, nonfinite=nonfinite, **beside)


def _record_means(training: Training, own: Totals | None, beside: Mapping[str, Any]) -> None:
    """Gather the metrics of all ranks, and write their means, beside the steps that follow.

    Readers of the metrics, and writes behind them, wait; see :class:`hostcore.worker.progress.TrainingProgress`.

    :param own: This rank's; None: it skips the step.
    :param beside: The other fields of the event.
    """
    step, epoch = training.progress.state.step, training.progress.state.epoch

    def receive(told: list[tuple[int, Totals | None]]) -> dict[str, float]:
        totals = [one for _, one in told if one is not None]
        if len({at for at, _ in told}) > 1 or 0 < len(totals) < len(told):
            raise _disagreement(told)
        if not totals:
            return {}
        means, missing = mean_over_ranks(totals)
        for event in (*_warning_of_missing(missing, "train_step"), _metrics(means, beside)):
            training.emit_beside(event, step=step, epoch=epoch)
        return means

    training.progress.settle()
    training.progress.expect(training.ranks.gather_beside((step, own), receive))


def _disagreement(told: Sequence[tuple[int, Totals | None]]) -> RanksDisagree:
    each = (f"rank {rank} {'skips' if one is None else 'records'} step {at}" for rank, (at, one) in enumerate(told))
    return RanksDisagree(
        f"the ranks do not record the metrics of the same steps: {', '.join(each)}",
        hint="all ranks must return the same `control.skip_cadence_emit` and `control.record_metrics` at the same step",
    )


def _warning_of_missing(missing: list[str], method: str) -> list[events.Warning]:
    if not missing:
        return []
    message = f"not all ranks report {', '.join(missing)} in {method}: the mean is over those that do"
    return [events.Warning(code="metrics.missing", message=message)]


def _validate(training: Training) -> None:
    """Validate, unless the run was interrupted, or is meanwhile."""
    hooks, ctx, run_state, owed = training.hooks, training.ctx, training.progress.state, training.requests.owed
    if not owed.answered:
        _answer_components(training)  # a state that a component wants to leave is not worth validating
        owed.answered = True
    training.meeting.meet()  # none of them wants to leave it alone
    if training.stop.interrupted is not None:
        return
    with training.meter.paused():
        assert training.validation is not None
        hooks.on_validation_begin(run_state, ctx)
        evaluated = _evaluate(training, training.validation, events.Validation)
        if evaluated is not None:
            owed.validation = False
            training.saver.outdate()
            hooks.on_validation_end(evaluated.metrics, run_state, ctx)
            training.meeting.meet()  # what it asks for is done at this step, on any number of ranks


def check_sanity(training: Training) -> None:
    """Validate a few batches before the first step of a run, so that mistakes are found before the training.

    It leaves no trace: nothing is recorded, and requests of components are ignored. What the trainer raises is a
    warning, as it may be able to validate after a step. It fails the run on several ranks, of which others may wait,
    and of a trainer with ``evaluation_metrics``, whose next validation would count the batches of this check.
    """
    hooks, ctx, run_state = training.hooks, training.ctx, training.progress.state
    if run_state.step or not (training.sanity_batches and training.validate_every):
        return
    assert training.validation is not None
    fails = training.ranks.world_size > 1 or training.validation.evaluation_metrics is not None
    ctx.sanity_checking = True  # it stays so for what handles an error
    with training.requests.ignored():
        try:
            evaluated = training.validation.run(at_most=training.sanity_batches)
        except Exception as error:
            if fails or isinstance(error, HostcoreError) or is_out_of_memory(error):
                raise
            training.check_failed(error)
            evaluated = None
        if evaluated is not None:
            hooks.on_sanity_checked(evaluated.metrics, run_state, ctx)
    ctx.sanity_checking = False


def _sample(training: Training, first: int) -> None:
    """Have the trainer generate what the job asks for, as far as the run is not interrupted."""
    training.meeting.meet()  # none of them skips it
    with training.meter.paused():
        assert training.sampling is not None
        left = training.sampling.run(first)
    training.requests.owed.sample = left
    if left != first:
        training.saver.outdate()


def run_test(training: Training) -> bool:
    """Test, if the job has data for it; whether the run was interrupted neither before nor meanwhile."""
    hooks, ctx, run_state = training.hooks, training.ctx, training.progress.state
    if training.test is None:
        return True
    if training.stop.interrupted is not None:
        return False
    hooks.on_test_begin(run_state, ctx)
    evaluated = _evaluate(training, training.test, events.Test)
    if evaluated is None:
        hear_requests(training)
        return False
    hooks.on_test_end(evaluated.metrics, run_state, ctx)
    return True


def _evaluate(training: Training, evaluation: EvaluationLoop, event: Callable[..., events.Payload]) -> Evaluated | None:
    evaluated = evaluation.run()
    if evaluated is not None:
        for warning in _warning_of_missing(evaluated.missing, evaluation.method):
            training.emit(warning)
        training.progress.remember(evaluated.metrics)
        training.emit(event(**evaluated.content()))
    return evaluated


def answer(training: Training) -> None:
    """Do what is due at this step: validate, sample, and what components have asked for since the last time.

    An interruption leaves the rest to the next attempt, with what components ask for meanwhile: that comes behind it.

    :raises RanksDisagree: When not all ranks have been asked for the same.
    """
    owed = training.requests.owed
    training.requests.recorded.clear()  # its step is over
    if owed.validation:
        _validate(training)
    if owed.sample is not None and not owed.validation:
        _sample(training, owed.sample)
    if not owed.names:
        _answer_components(training)


def _answer_components(training: Training) -> None:
    progress, saver, owed = training.progress, training.saver, training.requests.owed
    owed.ending = training.stop.ending
    if owed.best or owed.restore is not None:
        training.meeting.meet()
    best = training.requests.take_best()
    for one in best:
        progress.note_best(one)
    if best:
        saver.save(final=progress.state.step == training.total_steps and not owed.names)
    if owed.restore is not None:
        step, reason, asked_by = owed.restore
        saver.restore_trainer(step)
        owed.restore = None
        values, _ = finite(progress.metrics_at(step))
        training.emit(events.TrainerRestored(restored_step=step, reason=reason, requested_by=asked_by, values=values))


def answer_in_step(training: Training) -> None:
    """Do what components have asked for, then write the checkpoint that is due by time.

    It is announced to one step and written behind that, so that components can prepare for it.
    """
    answer(training)
    ctx, requests, progress = training.ctx, training.requests, training.progress
    announced, ctx.checkpoint_due = ctx.checkpoint_due, requests.has_news
    if announced and not requests.owed.names:  # else the run is interrupted, and writes its last one
        training.meeting.meet()
        training.saver.save(final=progress.state.step == training.total_steps)
        requests.restart_clock()
        ctx.checkpoint_due = False


def save_last(training: Training) -> None:
    """Write the checkpoint of the last step, unless something is left to do before it."""
    if not training.requests.owed.names:
        training.saver.save(final=True)
        training.saver.finish()


def save_end(training: Training, *, final: bool) -> None:
    """Write the checkpoint that an attempt ends with; that of an interrupted attempt holds its last epoch's end."""
    if training.stop.interrupted is not None and training.saver.lags:
        training.saver.outdate()
    training.saver.save(final=final)


def hear_requests(training: Training) -> bool:
    """Report new requests to stop to the log and the callbacks; return whether there was ever one."""
    run_state = training.progress.state
    training.requests.owed.ending = training.stop.ending
    training.stop.announced = training.stop.interrupted is not None
    for request in training.stop.unheard():
        training.progress.note_stop(request.reason, request.requested_by)
        training.emit(events.StopRequested(reason=request.reason, requested_by=request.requested_by))
        training.hooks.on_stop_requested(request.reason, request.requested_by, run_state, training.ctx)
    return training.stop.requested
