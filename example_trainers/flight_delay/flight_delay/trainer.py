"""The trainer: what hostcore calls, in the order it calls it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import attrs
import pyarrow as pa
from annotated_types import Ge, Gt, Lt, MinLen
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import l1_loss, smooth_l1_loss
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from flight_delay.batch import Batch
from flight_delay.features import COLUMN_NAMES
from flight_delay.model import FlightDelayModel
from flight_delay.weights import WEIGHTS_FILE, save_model
from hostcore_hookspecs import Capabilities, InvalidData, StepContext, StepResult
from hostcore_toolkit import build_default_adamw_bundle


@attrs.frozen(kw_only=True)
class Hyperparams:
    """The job's ``hyperparams``. hostcore checks types and bounds before the run starts."""

    learning_rate: Annotated[float, Gt(0)] = 2e-3
    weight_decay: Annotated[float, Ge(0)] = 0.01
    #: The share of the run in which the learning rate rises; after it, it falls to zero along a cosine.
    warmup: Annotated[float, Ge(0), Lt(1)] = 0.1
    #: The widths of the hidden layers.
    hidden_sizes: Annotated[tuple[Annotated[int, Gt(0)], ...], MinLen(1)] = (256, 128)
    #: The share of hidden values that training drops.
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.1
    #: Noise on the weather and the time of day while training, in standard deviations.
    input_noise: Annotated[float, Ge(0)] = 0.5
    #: The loss is the absolute error, smoothed below this: large delays are rare, and should not outweigh all others.
    smooth_below_minutes: Annotated[float, Gt(0)] = 5.0


@attrs.frozen(kw_only=True, eq=False)
class State:
    """State of the trainer from step to step. A checkpoint holds all of it."""

    model: FlightDelayModel
    optimizer: Optimizer
    #: None when the run's length is not known: then the learning rate is constant.
    scheduler: LRScheduler | None


class FlightDelayTrainer:
    """Predicts arrival delays of flights, in minutes."""

    Hyperparams = Hyperparams
    CAPABILITIES = Capabilities(precisions=("fp32", "bf16"), repeatable=True)

    def setup(self, ctx: StepContext) -> None:
        """Refuse data that the model cannot read, before anything is built."""
        if ctx.dataset is None:
            return
        missing = [name for name in COLUMN_NAMES if name not in ctx.dataset.schema.names]
        if missing:
            raise InvalidData(
                f"the data lacks {len(missing)} of the {len(COLUMN_NAMES)} columns it should have: {missing[0]}, …",
                pointer="/dataset",
                hint="Prepare it with: python -m flight_delay.prepare_data --out DIR",
            )

    def configure(self, ctx: StepContext) -> State:
        """Build the model, the optimizer and the learning rate's schedule."""
        hyperparams: Hyperparams = ctx.hyperparams
        model = FlightDelayModel(
            hidden_sizes=hyperparams.hidden_sizes,
            dropout=hyperparams.dropout,
            input_noise=hyperparams.input_noise,
        ).to(ctx.device)
        if "weights" in ctx.model_handles:  # the job's "weights", or --weights: to begin from
            model.load_state_dict(load_file(ctx.model_handles["weights"]))
        steps = ctx.run_state.total_steps
        bundle = build_default_adamw_bundle(
            model,
            hyperparams={
                "learning_rate": hyperparams.learning_rate,
                "weight_decay": hyperparams.weight_decay,
                "warmup_steps": int(hyperparams.warmup * steps),
            },
            max_steps=steps,
        )
        ctx.register_optimizer(bundle.optimizer, bundle.scheduler)
        return State(model=model, optimizer=bundle.optimizer, scheduler=bundle.scheduler)

    def prepare_batch(self, raw_batch: pa.RecordBatch, ctx: StepContext) -> Batch:
        """Turn rows of the prepared data into tensors on the run's device."""
        return Batch.from_arrow(raw_batch, ctx.device)

    def train_step(self, prepared_batch: Batch, state: State, ctx: StepContext) -> StepResult:
        """Forward, backward, one update."""
        learning_rate = state.optimizer.param_groups[0]["lr"]
        loss, mae = _loss_and_mae(prepared_batch, state, ctx)
        state.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        state.optimizer.step()
        if state.scheduler is not None:
            state.scheduler.step()
        # Tensors, not .item(), which would wait for the GPU at every step: the host reads them when it records them.
        return StepResult(metrics={"loss": loss.detach(), "mae": mae, "lr": learning_rate})

    def validate_step(self, prepared_batch: Batch, state: State, ctx: StepContext) -> StepResult:
        """Score a batch of the job's ``validation`` data. The host averages over the batches by their flights.

        It has put the model into evaluation mode, without gradients, and puts it back afterwards.
        """
        loss, mae = _loss_and_mae(prepared_batch, state, ctx)
        return StepResult(metrics={"loss": loss, "mae": mae}, weight=len(prepared_batch.arrival_delay))

    def test_step(self, prepared_batch: Batch, state: State, ctx: StepContext) -> StepResult:
        """Score a batch of the job's ``test`` data."""
        return self.validate_step(prepared_batch, state, ctx)

    def save_checkpoint(self, state: State, output_dir: str) -> Mapping[str, object]:
        """Write the model for those who want to predict with it, such as :mod:`flight_delay.score`."""
        save_model(state.model, Path(output_dir))
        return {"weights": WEIGHTS_FILE, "parameters": sum(p.numel() for p in state.model.parameters())}


def _loss_and_mae(batch: Batch, state: State, ctx: StepContext) -> tuple[Tensor, Tensor]:
    """The loss, and the mean absolute error in minutes, which has no gradient. Both are zero-dimensional, float32."""
    with ctx.autocast():
        predicted = state.model(batch.ids, batch.numbers)
    loss = smooth_l1_loss(predicted, batch.arrival_delay, beta=ctx.hyperparams.smooth_below_minutes)
    return loss, l1_loss(predicted.detach(), batch.arrival_delay)
