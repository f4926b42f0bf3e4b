"""That a step does what a step is for: the parameters change, by the gradients of its own batch, and the loss falls."""

import copy
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AnySet
from contextlib import contextmanager
from typing import Any, Final

import attrs

from hostcore_conformance.check import check
from hostcore_conformance.checks.trainer.stage import Stage, losses_in, models_of, on_stage
from hostcore_conformance.differences import first_difference
from hostcore_conformance.errors import ConformanceError, NotApplicable
from hostcore_conformance.subject import Subject

#: The loss has this many steps to fall in. The seconds are for a trainer that would never end.
_LEARNING_STEPS: Final = 40
_LEARNING_SECONDS: Final = 90.0
_FEWEST_STEPS: Final = 8
#: By how many standard errors of the difference of two means it must fall.
_CLEARLY: Final = 2.0


@contextmanager
def gradients_seen() -> Iterator[list[Any]]:
    """Collect the gradients of every ``optimizer.step()`` of the process: a list of flat float64 vectors, one a step.

    A step without any gradient is not in it.
    """
    import torch

    from hostcore_toolkit import before_updates

    seen: list[Any] = []

    def look(optimizer: Any) -> None:
        parameters = (one for group in optimizer.param_groups for one in group["params"])
        gradients = [one.grad.detach().double().flatten().cpu() for one in parameters if one.grad is not None]
        if gradients:
            seen.append(torch.cat(gradients))

    with before_updates(look):
        yield seen


def gradient_of_step(stage: Stage, *prepared: Any) -> Any:
    """Make a step with the model in evaluation mode; return its gradient, a flat vector.

    :param prepared: The batches of the step.
    :raises NotApplicable: No torch optimizer takes part in it.
    """
    import torch

    from hostcore.worker.modes import modules_in

    for module in (module for model in modules_in(stage.state) for module in model.modules()):
        module.training = False
    with gradients_seen() as seen:
        stage.step(prepared if len(prepared) > 1 else prepared[0])
    if not seen:
        raise NotApplicable("no torch optimizer takes part in its train_step")
    return torch.cat(seen)


@contextmanager
def gradients_received(parameters: Mapping[str, Any]) -> Iterator[AnySet[str]]:
    """Collect the names of the parameters that ``backward()`` gives a gradient, also one that is cleared afterwards."""
    received: set[str] = set()

    def look(name: str) -> Any:
        return lambda _: received.add(name)

    handles = [
        parameter.register_post_accumulate_grad_hook(look(name))
        for name, parameter in parameters.items()
        if parameter.requires_grad
    ]
    try:
        yield received
    finally:
        for handle in handles:
            handle.remove()


def _copies(state: Any) -> dict[str, Any]:
    """The parameters that are to be trained, as they are now."""
    found = {name: one.detach().clone() for name, one in models_of(state).items() if one.requires_grad}
    if not found:
        raise NotApplicable("there is no torch module in the state that configure returns, as far as the host can see")
    return found


@attrs.frozen(kw_only=True)
class _Movement:
    """Values that some steps have left unchanged."""

    #: What was compared: ``parameters``.
    whose: str
    #: Names of those that did not change.
    same: list[str]
    count: int
    #: What else is known, to be appended.
    about: str


@check("trainer.parameters_change", requires=("trainer.trains",))
def parameters_change(subject: Subject) -> None:
    """Training changes the parameters.

    The kit copies all parameters that require gradients of the modules in the trainer's state, trains three steps of
    the example, and compares. Some of them must be different; single ones may stay, as those of a layer that gets no
    gradient yet. Where backward() has given parameters gradients, one of these must be different: a moving average
    that moves is not training. Where there is no torch module in the state, what state_dict returns is compared, and
    the files that save_checkpoint writes.

    If none changes, optimizer.step() is not called, the learning rate is zero (a warmup that starts at 0 and is never
    stepped), or the optimizer was built for another model: before the model was moved, wrapped or replaced, or in
    setup. Build both in configure, the optimizer last, and return both in the state.
    """

    def scene(stage: Stage) -> _Movement:
        if not models_of(stage.state):
            return _of_checkpoint(stage, subject)
        before = _copies(stage.state)
        with gradients_received(models_of(stage.state)) as received:
            for _ in stage.steps(3):
                pass
        after = _copies(stage.state)
        asked = [name for name in before if name in received] or list(before)
        same = [name for name in asked if name in after and after[name].equal(before[name])]
        whose = "parameters that get gradients" if received else "parameters"
        return _Movement(whose=whose, same=same, count=len(asked), about=_about_optimizer(stage))

    found = on_stage(subject, scene)
    if len(found.same) == found.count:
        raise ConformanceError(
            expected=f"{found.whose} to change within three steps",
            got=f"all {found.count} of them as they were, bit for bit ({', '.join(found.same[:3])}, ...){found.about}",
            fix="Call optimizer.step() in train_step, with an optimizer that configure builds from the parameters of"
            " the model that it returns.",
        )


def _of_checkpoint(stage: Stage, subject: Subject) -> _Movement:
    """The same of a trainer whose state has no torch module: by what its checkpoints hold."""
    before = _in_checkpoint(stage, subject)
    if not before:
        raise NotApplicable("it has no state: no torch module, nothing in state_dict, no file of save_checkpoint")
    for _ in stage.steps(3):
        pass
    same = first_difference(before, _in_checkpoint(stage, subject)) is None
    return _Movement(whose="values", same=list(map(str, before)) if same else [], count=len(before), about="")


def _in_checkpoint(stage: Stage, subject: Subject) -> dict[str, Any]:
    """Return the result of state_dict, by key, and the files of save_checkpoint, by name."""
    found = dict(copy.deepcopy(stage.call("state_dict", stage.state)))
    if subject.has("save_checkpoint"):
        folder = subject.folder()
        stage.call("save_checkpoint", stage.state, stage.ctx.run_state.step, str(folder), False, stage.ctx)
        files = (path for path in sorted(folder.rglob("*")) if path.is_file())
        found |= {f"file {path.relative_to(folder)}": path.read_bytes() for path in files}
    return found


def _about_optimizer(stage: Stage) -> str:
    optimizer = stage.ctx.optimizer
    if optimizer is None:
        return ""
    own = {id(one) for one in models_of(stage.state).values()}
    foreign = [one for group in optimizer.param_groups for one in group["params"] if id(one) not in own]
    rates = [group["lr"] for group in optimizer.param_groups]
    if foreign:
        return f"; {len(foreign)} parameters of the registered optimizer are not of the model in the state"
    return f"; the registered optimizer's learning rate is {rates[0]:g}"


@check("trainer.fresh_gradients", requires=("trainer.trains",))
def fresh_gradients(subject: Subject) -> None:
    """A step uses the gradients of its own batch alone.

    The example is trained for three steps twice. The second time, the kit sets all gradients to zero between the
    steps. For a trainer that does so itself, at the beginning of a step or at its end, this makes no difference; the
    parameters must be equal, bit for bit.

    If they are not, optimizer.zero_grad() is missing, or is called for another optimizer: every step then goes in the
    direction of all batches since the start. Several batches for one step are what the job's `accumulate` is for.
    """

    def scene(clear: bool) -> Any:
        def play(stage: Stage) -> tuple[dict[str, Any], list[float]]:
            norms = []
            with gradients_seen() as seen:
                for _ in stage.steps(3):
                    norms.append(float(seen[-1].norm()) if seen else 0.0)
                    for parameter in models_of(stage.state).values():
                        if clear and parameter.grad is not None:
                            parameter.grad.zero_()
            return _copies(stage.state), norms

        return on_stage(subject, play)

    (plain, norms), (cleared, cleared_norms) = scene(False), scene(True)
    different = [name for name, value in plain.items() if not _alike(value, cleared[name])]
    if different:
        raise ConformanceError(
            expected="steps that begin with gradients of zero",
            got=f"other parameters ({different[0]}, ...) when the kit clears the gradients between steps: their norms"
            f" at the optimizer are {_numbers(norms)}, and {_numbers(cleared_norms)} when cleared",
            fix="Call optimizer.zero_grad() in train_step, before backward() or after optimizer.step().",
        )


def _alike(one: Any, other: Any) -> bool:
    """Bit for bit on a CPU; elsewhere to what atomic additions leave."""
    if one.device.type == "cpu":
        return bool(one.equal(other))
    return bool(one.sub(other).abs().max() <= 1e-3 * one.abs().max() + 1e-6)


def _numbers(values: list[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


@check("trainer.training_mode", level="should", requires=("trainer.trains",))
def training_mode(subject: Subject) -> None:
    """The model is in training mode while it trains.

    During a step of the example the kit looks at every dropout and batch normalisation layer that computes. At least
    one of them should be in training mode.

    If none is, dropout drops nothing and the statistics of batch normalisation stand still. Libraries that load
    pretrained models return them in evaluation mode: call model.train() in configure. The host itself puts models into
    evaluation mode for a validation, and back, so validate_step needs neither eval() nor train(). Layers that are to
    stay frozen may be in evaluation mode, as long as some of the others are not.
    """

    def scene(stage: Stage) -> dict[str, bool]:
        import torch

        from hostcore.worker.modes import modules_in

        modal = (torch.nn.modules.dropout._DropoutNd, torch.nn.modules.batchnorm._NormBase)
        seen: dict[str, bool] = {}

        def look(name: str) -> Any:
            return lambda module, _: seen.update({name: seen.get(name, False) or module.training})

        handles = [
            module.register_forward_pre_hook(look(f"{name} ({type(module).__name__})"))
            for model in modules_in(stage.state)
            for name, module in model.named_modules()
            if isinstance(module, modal) and _is_trained(model, name)
        ]
        next(stage.steps(1), None)
        for handle in handles:
            handle.remove()
        return seen

    seen = on_stage(subject, scene)
    if not seen:
        raise NotApplicable("its model has no layer that does something else in training than in evaluation")
    if not any(seen.values()):
        raise ConformanceError(
            expected="dropout and batch normalisation in training mode during train_step",
            got=f"all {len(seen)} of these layers in evaluation mode: {', '.join(list(seen)[:3])}",
            fix="Call model.train() at the end of configure, and leave eval() to the host.",
        )


def _is_trained(model: Any, name: str) -> bool:
    """Return whether a layer is trained: whether the innermost part around it with parameters requires gradients."""
    while True:
        parameters = list(model.get_submodule(name).parameters())
        if parameters or not name:
            return any(one.requires_grad for one in parameters)
        name = name.rpartition(".")[0]


def _on_one_batch(subject: Subject) -> list[dict[str, float]]:
    """The metrics of forty steps on the first batch of the example, by step; of fewer if they take too long."""

    def scene(stage: Stage) -> list[dict[str, float]]:
        from hostcore.worker import randomness

        size = stage.training.job.accumulate
        batch = stage.raw_batches(size)
        told: list[dict[str, float]] = []
        began = time.monotonic()
        for _ in range(_LEARNING_STEPS):
            with randomness.kept():
                group = tuple(stage.prepared(one, place) for place, one in enumerate(batch))
                told.append(stage.metrics(stage.step(group if size > 1 else group[0])))
            if time.monotonic() - began > _LEARNING_SECONDS:
                break
        return told

    return subject.shared("trainer.one_batch", lambda: on_stage(subject, scene, max_steps=_LEARNING_STEPS))


@check("trainer.loss_stays_finite", requires=("trainer.metrics_finite",))
def loss_stays_finite(subject: Subject) -> None:
    """The loss is still a finite number after forty steps.

    The first six steps of a run are looked at by trainer.metrics_finite. Here the kit trains for forty, on the first
    batch of the example again and again, and reads the losses: all metrics with `loss` in their names, or every metric
    if none has.

    A training that diverges reports NaN from then on. It does not fail: the run continues to its last step, and the
    model in its checkpoints is of no use. Mostly the example's learning rate is too high for a model of its size, or
    never comes down after a warmup; or a term of the loss divides by, or takes the logarithm of, what training brings
    to 0.
    """
    for number, metrics in enumerate(_on_one_batch(subject), 1):
        lost = {name: value for name, value in losses_in(metrics).items() if not math.isfinite(value)}
        for name, value in lost.items():
            raise ConformanceError(
                expected=f"a finite loss in each of {_LEARNING_STEPS} steps on one batch",
                got=f"{name} = {value} at step {number}",
                fix="Lower the example's learning rate, clip the gradients, and guard what the loss divides by or takes"
                " the logarithm of.",
            )


@check("trainer.loss_falls", level="should", requires=("trainer.reports_loss", "trainer.loss_stays_finite"))
def loss_falls(subject: Subject) -> None:
    """The loss of a batch falls when it is trained on again and again.

    The kit trains on the first batch of the example alone, for forty steps, each of which begins with the random
    generators in the same state: dropout drops the same, and a diffusion draws the same noise, so that the losses can
    be compared. The mean of the last ten should be below that of the first ten, and not just by chance: by more than
    two standard errors of the difference.

    A model that cannot learn one batch by heart learns nothing: labels that are shuffled against their inputs, a sign
    that is wrong, a loss of another output, a detached tensor in the middle, a learning rate that is much too high or
    too low. If the loss of this trainer does not fall by its nature, as with an adversarial one, list it in
    expected_failures.
    """
    losses = [metrics["train/loss"] for metrics in _on_one_batch(subject) if "train/loss" in metrics]
    if len(losses) < _FEWEST_STEPS:
        raise NotApplicable(
            f"only {len(losses)} of {_LEARNING_STEPS} steps report a loss, so there is little to compare"
        )
    quarter = len(losses) // 4
    first, last = losses[:quarter], losses[-quarter:]
    (before, spread), (after, spread_after) = _mean_and_error(first), _mean_and_error(last)
    error = math.hypot(spread, spread_after)
    if not after < before - _CLEARLY * error:
        raise ConformanceError(
            expected=f"a loss that clearly falls within {len(losses)} steps on one batch",
            got=f"a mean of {before:.6g} over the first {quarter} steps and {after:.6g} over the last {quarter}, where"
            f" their difference has a standard error of {error:.2g}",
            fix="See that inputs and targets belong together, that the loss reaches the parameters, and that the"
            " example's learning rate suits a model of its size.",
        )


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and its standard error."""
    count = len(values)
    mean = sum(values) / count
    return mean, math.sqrt(sum((one - mean) * (one - mean) for one in values) / (count - 1) / count)
