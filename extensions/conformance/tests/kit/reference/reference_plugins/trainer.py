"""A trainer with every optional method and capability: a small network that learns to multiply two numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import attrs
import numpy as np
import pyarrow as pa
import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.optim import AdamW
from torch.optim.lr_scheduler import ExponentialLR

from hostcore_hookspecs import Capabilities, DataContext, InvalidData, SampleRequest, Secret, StepContext, StepResult

COLUMNS = ("a", "b")
AVERAGE_FILE = "average.pt"
SAMPLE_FILE = "product.txt"


@attrs.frozen(kw_only=True)
class Hyperparams:
    """The job's ``hyperparams``."""

    learning_rate: Annotated[float, Gt(0)] = 0.01
    #: The learning rate of a step, of that of the step before.
    decay: Annotated[float, Gt(0), Le(1)] = 0.98
    weight_decay: Annotated[float, Ge(0)] = 0.01
    hidden: Annotated[int, Gt(0)] = 16
    #: The share of hidden values that training drops.
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.1
    #: Standard deviation of what ``transform_batch`` adds to the numbers.
    noise: Annotated[float, Ge(0)] = 0.01
    #: How much of the average of the weights a step keeps.
    averaging: Annotated[float, Ge(0), Lt(1)] = 0.9
    #: For a hub that the data would come from.
    token: Secret | None = None


@attrs.frozen(kw_only=True, eq=False)
class State:
    """What the trainer carries from step to step."""

    model: nn.Sequential
    optimizer: AdamW
    scheduler: ExponentialLR
    #: The moving average of the weights, by their names: what is evaluated, and what is shipped.
    average: dict[str, Tensor]
    #: How far off the products were, of the evaluation that is going on.
    errors: list[Tensor] = attrs.field(factory=list)


@attrs.frozen(kw_only=True, eq=False)
class Batch:
    """Some pairs of numbers."""

    #: (pairs, 2), float32.
    numbers: Tensor
    #: (pairs,), float32: their product.
    product: Tensor


class ReferenceTrainer:
    """Learns to multiply."""

    Hyperparams = Hyperparams
    CAPABILITIES = Capabilities(
        accumulate=True, precisions=("fp32", "bf16", "fp16"), distributed=True, split_on_oom=True, repeatable=True
    )

    def data_sections(self, hyperparams: Hyperparams, ctx: DataContext) -> Mapping[str, Mapping[str, Any]]:
        """Bring data to jobs that have none."""
        types = dict.fromkeys(COLUMNS, "float32")
        return {"dataset": {"source": "mock", "types": types, "num_rows": 64, "seed": ctx.seed, "shuffle": True}}

    def setup(self, ctx: StepContext) -> None:
        """Refuse data that the model cannot read, before anything is built."""
        missing = [name for name in COLUMNS if ctx.dataset is not None and name not in ctx.dataset.schema.names]
        if missing:
            raise InvalidData(f"the data has no column {missing[0]!r}", pointer="/dataset", hint="It needs a and b.")

    def configure(self, ctx: StepContext) -> State:
        """Build the model, the optimizer and the learning rate's schedule."""
        settings: Hyperparams = ctx.hyperparams
        model = nn.Sequential(
            nn.Linear(len(COLUMNS), settings.hidden),
            nn.Tanh(),
            nn.Dropout(settings.dropout),
            nn.Linear(settings.hidden, 1),
        ).to(ctx.device)
        optimizer = AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
        scheduler = ExponentialLR(optimizer, settings.decay)
        ctx.register_optimizer(optimizer, scheduler)
        average = {name: value.detach().clone() for name, value in model.named_parameters()}
        return State(model=model, optimizer=optimizer, scheduler=scheduler, average=average)

    def transform_batch(
        self, raw_batch: pa.RecordBatch, rng: np.random.Generator, ctx: StepContext
    ) -> dict[str, np.ndarray]:
        """Add a little noise to the numbers, ahead of the loop."""
        numbers = np.stack([raw_batch.column(name).to_numpy() for name in COLUMNS], axis=1)
        noise = rng.normal(scale=ctx.hyperparams.noise, size=numbers.shape)
        return {"numbers": numbers + noise.astype(numbers.dtype), "product": numbers.prod(axis=1)}

    def prepare_batch(self, raw_batch: Mapping[str, np.ndarray], ctx: StepContext) -> Batch:
        """Put the numbers on the run's device."""
        tensors = {name: torch.from_numpy(values).to(ctx.device) for name, values in raw_batch.items()}
        return Batch(**tensors)

    def train_step(self, prepared_batch: Batch | Sequence[Batch], state: State, ctx: StepContext) -> StepResult:
        """One update. There may be several batches for it, or parts of one, which count as one large batch."""
        batches = [prepared_batch] if isinstance(prepared_batch, Batch) else prepared_batch
        pairs = sum(len(batch.product) for batch in batches)
        learning_rate = state.optimizer.param_groups[0]["lr"]
        state.optimizer.zero_grad()
        losses = []
        for batch in batches:
            loss = _loss(state.model, batch, ctx) * (len(batch.product) / pairs)
            (loss if ctx.scaler is None else ctx.scaler.scale(loss)).backward()
            losses.append(loss.detach())
        ctx.begin_update()
        _average_gradients(state.model, ctx.world_size)
        if ctx.scaler is None:
            state.optimizer.step()
        else:  # fp16: undoes the scaling, and leaves the step out if a gradient has overflowed
            ctx.scaler.step(state.optimizer)
            ctx.scaler.update()
        state.scheduler.step()
        with torch.no_grad():
            for name, value in state.model.named_parameters():
                state.average[name].lerp_(value, 1 - ctx.hyperparams.averaging)
        return StepResult(metrics={"loss": sum(losses), "lr": learning_rate}, weight=pairs)

    def validate_step(self, prepared_batch: Batch, state: State, ctx: StepContext) -> StepResult:
        """Score the averaged weights on a batch."""

        def averaged(numbers: Tensor) -> Tensor:
            return torch.func.functional_call(state.model, state.average, (numbers,))

        if ctx.batch_counts:
            state.errors.append((averaged(prepared_batch.numbers).squeeze(1) - prepared_batch.product).abs().cpu())
        return StepResult(metrics={"loss": _loss(averaged, prepared_batch, ctx)}, weight=len(prepared_batch.product))

    def test_step(self, prepared_batch: Batch, state: State, ctx: StepContext) -> StepResult:
        """Score a batch of the job's ``test`` data."""
        return self.validate_step(prepared_batch, state, ctx)

    def evaluation_metrics(self, state: State, ctx: StepContext) -> Mapping[str, Tensor] | None:
        """The median error, over the rows of all ranks."""
        of_ranks = [state.errors]
        if ctx.world_size > 1:
            of_ranks = [[] for _ in range(ctx.world_size)]
            torch.distributed.all_gather_object(of_ranks, state.errors)
        errors = [one for own in of_ranks for one in own]
        state.errors.clear()
        return {"median_error": torch.cat(errors).median()} if errors else None

    def generate_sample(
        self, state: State, request: SampleRequest, output_dir: str, ctx: StepContext
    ) -> Mapping[str, object]:
        """Multiply the two numbers of the prompt."""
        numbers = [float(word) for word in (request.prompt or "0.5 0.5").split()]
        product = float(state.model(torch.tensor([numbers], device=ctx.device)))
        if ctx.rank == 0:
            Path(output_dir, SAMPLE_FILE).write_text(f"{product}\n")
        return {"file": SAMPLE_FILE, "product": product}

    def state_dict(self, state: State) -> dict[str, object]:
        """Everything that is needed to go on, but for what :meth:`save_checkpoint` writes."""
        return {
            "model": state.model.state_dict(),
            "optimizer": state.optimizer.state_dict(),
            "scheduler": state.scheduler.state_dict(),
        }

    def load_state_dict(self, state: State, payload: dict[str, Any]) -> None:
        """Go on from what :meth:`state_dict` returned."""
        state.model.load_state_dict(payload["model"])
        state.optimizer.load_state_dict(payload["optimizer"])
        state.scheduler.load_state_dict(payload["scheduler"])

    def save_checkpoint(self, state: State, output_dir: str, ctx: StepContext) -> Mapping[str, object]:
        """Write the averaged weights for those who want to multiply with them."""
        if ctx.rank == 0:
            torch.save(state.average, Path(output_dir, AVERAGE_FILE))
        return {"average": AVERAGE_FILE}

    def load_checkpoint(self, state: State, checkpoint_dir: str, ctx: StepContext) -> None:
        """Go on from the averaged weights that :meth:`save_checkpoint` wrote."""
        stored = torch.load(Path(checkpoint_dir, AVERAGE_FILE), map_location=ctx.device, weights_only=True)
        for name, value in stored.items():
            state.average[name].copy_(value)

    def teardown(self, state: State) -> None:
        """Nothing is open; what is held is let go of."""
        state.average.clear()


def _loss(predict: Any, batch: Batch, ctx: StepContext) -> Tensor:
    """The mean squared error: zero-dimensional, float32."""
    with ctx.autocast():
        predicted = predict(batch.numbers).squeeze(1)
    return mse_loss(predicted.float(), batch.product)


def _average_gradients(model: nn.Module, ranks: int) -> None:
    """Make the gradients those of the batches of all ranks, which have as many rows each."""
    if ranks == 1:
        return
    for parameter in model.parameters():
        torch.distributed.all_reduce(parameter.grad)
        parameter.grad /= ranks
