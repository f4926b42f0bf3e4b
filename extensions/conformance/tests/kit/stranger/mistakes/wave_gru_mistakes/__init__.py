"""wave-gru, wrong in one way at a time, as people are: an entry point's name begins with the check that notices."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from attrs import evolve
from reference_plugins.breaking import after, before, broken, given, instead, then
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from wave_gru.trainer import Batch, Classifier, State, WaveTrainer

from hostcore_hookspecs import StepContext, StepResult
from hostcore_toolkit import to_tensors


class _KeepsGradients:
    """An optimizer whose zero_grad does nothing, as if the line were not there."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.optimizer, name)

    def zero_grad(self) -> None:
        """Forget to."""


def _one_cycle(result: State, ctx: StepContext) -> State:
    schedule = torch.optim.lr_scheduler.OneCycleLR(result.optimizer, 0.01, total_steps=ctx.run_state.total_steps)
    return evolve(result, scheduler=schedule)


def _merge_two_classes(raw_batch: Any, ctx: StepContext) -> None:
    to_tensors(raw_batch, [ctx.hyperparams.label])[ctx.hyperparams.label].clamp_(max=1)


def _with_rare(result: StepResult, prepared_batch: Batch) -> StepResult:
    rare = prepared_batch.labels[prepared_batch.labels > 2].float()
    return evolve(result, metrics={**result.metrics, "rare": rare.mean()})


def _scored(state: State, batch: Batch) -> Tensor:
    logits: Tensor = state.average(batch.signals, batch.lengths)
    return logits


broken(
    globals(),
    WaveTrainer,
    # --- steps that do not do what they seem to
    # Never sets the gradients to zero.
    NoZeroGrad=given("train_step", state=lambda state: evolve(state, optimizer=_KeepsGradients(state.optimizer))),
    # Gives the optimizer a model that is replaced afterwards.
    OtherModel=after("configure", lambda result, ctx: evolve(result, model=Classifier(ctx.hyperparams).to(ctx.device))),
    # Returns the metrics alone.
    ReturnsDict=after("train_step", lambda result: result.metrics),
    # Seeds torch in every step: dropout drops the same each time.
    SeedInStep=before("train_step", lambda: torch.manual_seed(0)),
    # Leaves a debugging aid of torch on.
    DetectsAnomalies=then("setup", lambda: torch.autograd.set_detect_anomaly(True)),
    # Plans its learning rate to the end of the run, and not a step beyond.
    OneCycle=after("configure", _one_cycle),
    # --- what is done to the rows, and where they are put
    # Merges two classes by writing into the rows.
    BatchInPlace=before("prepare_batch", _merge_two_classes),
    # Leaves the batch where it was read.
    IgnoresDeviceInBatch=instead(
        "prepare_batch",
        lambda ctx, call: call(ctx=StepContext(hyperparams=ctx.hyperparams, device="cpu")),
    ),
    # --- validations that tell something else, or leave their traces
    # Divides the sum of the losses by 16 rows, however many there are.
    FixedBatchSizeInWeight=instead(
        "validate_step",
        lambda prepared_batch, state: StepResult(
            metrics={"loss": cross_entropy(_scored(state, prepared_batch), prepared_batch.labels, reduction="sum") / 16}
        ),
    ),
    # Takes the mean over rows of a class that the batch does not have.
    NotANumberInValidation=after("validate_step", _with_rare),
    # Updates the average where it is used.
    AverageInValidation=before("validate_step", lambda state: state.average.update_parameters(state.model)),
)


class LossesInList(WaveTrainer):
    """Keeps the losses of all steps, with their graphs, for a plot at the end."""

    def __init__(self) -> None:
        self.losses: list[Tensor] = []

    def loss_sum(self, batch: Batch, state: State) -> Tensor:
        self.losses.append(loss := super().loss_sum(batch, state))
        return loss


class Swallows(WaveTrainer):
    """Goes on whatever happens in a step."""

    def train_step(self, prepared_batch: Any, state: State) -> StepResult:
        try:
            return super().train_step(prepared_batch, state)
        except Exception as error:  # noqa: BLE001 - the mistake
            print(f"skipped a batch: {error}")
            return StepResult(metrics={"loss": 0.0})


# --- what is done to the rows, and where they are put -----------------------------------------------------------------


class OwnGenerator(WaveTrainer):
    """Augments with a generator on self, which begins anew after a resume."""

    def configure(self, ctx: StepContext) -> State:
        self.rng = np.random.default_rng(ctx.job.seed)
        return super().configure(ctx)

    def prepare_batch(self, raw_batch: Any, ctx: StepContext) -> Batch:
        batch = super().prepare_batch(raw_batch, ctx)
        noise = torch.from_numpy(self.rng.normal(0, 0.1, tuple(batch.signals.shape))).float().to(ctx.device)
        return evolve(batch, signals=batch.signals + noise)


class IgnoresDevice(WaveTrainer):
    """Leaves the model where it was made."""

    def configure(self, ctx: StepContext) -> State:
        state = super().configure(StepContext(hyperparams=ctx.hyperparams, job=ctx.job, device="cpu"))
        ctx.register_optimizer(state.optimizer, state.scheduler)
        return state


# --- validations that tell something else, or leave their traces ------------------------------------------------------


class Squeezes(WaveTrainer):
    """Squeezes away the rows as well, where there is one."""

    def validate_step(self, prepared_batch: Batch, state: State) -> StepResult:
        logits = _scored(state, prepared_batch).squeeze()
        accuracy = (logits.argmax(1) == prepared_batch.labels).float().mean()
        return StepResult(metrics={"loss": cross_entropy(logits, prepared_batch.labels), "accuracy": accuracy})


class _Normalised(Classifier):
    """A classifier with batch normalisation."""

    def __init__(self, hyperparams: Any) -> None:
        super().__init__(hyperparams)
        self.conv = nn.Sequential(self.conv, nn.BatchNorm1d(hyperparams.hidden_size))


class TrainModeInValidation(WaveTrainer):
    """Calls train() in validate_step, so that batch normalisation learns from the validation."""

    def configure(self, ctx: StepContext) -> State:
        model = _Normalised(ctx.hyperparams).to(ctx.device)
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.98))
        optimizer = torch.optim.AdamW(model.parameters(), lr=ctx.hyperparams.learning_rate)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=20)
        return State(model=model, average=average, optimizer=optimizer, scheduler=scheduler)

    def validate_step(self, prepared_batch: Batch, state: State) -> StepResult:
        state.model.train()
        logits = state.model(prepared_batch.signals, prepared_batch.lengths)
        return StepResult(metrics={"loss": cross_entropy(logits, prepared_batch.labels)})


# --- what a checkpoint lacks, or takes back wrongly -------------------------------------------------------------------


class NoScheduler(WaveTrainer):
    """Stores no scheduler: the warm-up begins again."""

    def state_dict(self, state: State) -> dict[str, object]:
        return {name: part for name, part in super().state_dict(state).items() if name != "scheduler"}

    def load_state_dict(self, state: State, payload: dict[str, Any]) -> None:
        super().load_state_dict(state, {**payload, "scheduler": state.scheduler.state_dict()})


class NotStrictPart(WaveTrainer):
    """Leaves one layer out of the state, which strict=False hides."""

    def state_dict(self, state: State) -> dict[str, object]:
        model = {name: value for name, value in state.model.state_dict().items() if "head" not in name}
        return {**super().state_dict(state), "model": model}

    def load_state_dict(self, state: State, payload: dict[str, Any]) -> None:
        state.model.load_state_dict(payload["model"], strict=False)
        super().load_state_dict(state, {**payload, "model": state.model.state_dict()})


class AbsolutePath(WaveTrainer):
    """Stores where its weights were written, and looks for them there."""

    def save_checkpoint(self, state: State, step: int, output_dir: str, ctx: StepContext) -> dict[str, object]:
        weights = Path(output_dir, "weights.pt")
        torch.save(state.model.state_dict(), weights)
        Path(output_dir, "where.json").write_text(json.dumps({"weights": str(weights)}))
        return super().save_checkpoint(state, step, output_dir, ctx)

    def load_checkpoint(self, state: State, checkpoint_dir: str) -> None:
        """Load the weights from where they were when they were written."""
        where = json.loads(Path(checkpoint_dir, "where.json").read_text())
        state.model.load_state_dict(torch.load(where["weights"], weights_only=True))


class PathInRun(WaveTrainer):
    """Keeps its classes in the run directory, and in a checkpoint only where they are."""

    def configure(self, ctx: StepContext) -> State:
        self.classes = Path(ctx.run_dir, "classes.json")
        self.classes.write_text('["sine", "square", "saw-tooth"]')
        return super().configure(ctx)

    def state_dict(self, state: State) -> dict[str, object]:
        return {**super().state_dict(state), "classes": str(self.classes)}

    def load_state_dict(self, state: State, payload: dict[str, Any]) -> None:
        self.classes = Path(payload["classes"])
        json.loads(self.classes.read_text())
        super().load_state_dict(state, payload)


class LockFile(WaveTrainer):
    """Guards its run with a file that only teardown removes."""

    def setup(self, ctx: StepContext) -> None:
        Path(ctx.run_dir, "wave.lock").touch(exist_ok=False)

    def teardown(self, ctx: StepContext) -> None:
        """Give the lock back."""
        Path(ctx.run_dir, "wave.lock").unlink()
