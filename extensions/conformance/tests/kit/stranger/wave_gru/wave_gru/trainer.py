"""The trainer: a convolution and a GRU over a list column, with warm-up and an average of the weights."""

import json
from pathlib import Path
from typing import Annotated, Any

import attrs
import numpy as np
import pyarrow as pa
import torch
from annotated_types import Ge, Gt, Le, Lt
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from hostcore_hookspecs import Capabilities, InvalidData, StepContext, StepResult
from hostcore_toolkit import to_tensors


@attrs.frozen(kw_only=True)
class Hyperparams:
    """The job's ``hyperparams``."""

    #: The column of lists of numbers.
    signal: str = "signal"
    #: The column of classes, integers from 0.
    label: str = "label"
    num_classes: Annotated[int, Ge(2)] = 3
    hidden_size: Annotated[int, Ge(1)] = 32
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.1
    learning_rate: Annotated[float, Gt(0)] = 0.01
    #: Steps over which the learning rate rises to its full height.
    warmup_steps: Annotated[int, Ge(1)] = 20
    #: How much of the averaged weights stays at each step.
    ema_decay: Annotated[float, Ge(0), Le(1)] = 0.98


@attrs.frozen(kw_only=True, eq=False)
class Batch:
    """Some signals, padded with zeros to the longest of them."""

    #: (rows, longest), float32.
    signals: Tensor
    #: (rows,), int64.
    lengths: Tensor
    #: (rows,), int64.
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


class Classifier(nn.Module):
    """A convolution, a GRU, and the mean of what the GRU says of each place; padding does not count."""

    def __init__(self, hyperparams: Hyperparams) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, hyperparams.hidden_size, kernel_size=5, padding=2)
        self.gru = nn.GRU(hyperparams.hidden_size, hyperparams.hidden_size, batch_first=True)
        self.dropout = nn.Dropout(hyperparams.dropout)
        self.head = nn.Linear(hyperparams.hidden_size, hyperparams.num_classes)

    def forward(self, signals: Tensor, lengths: Tensor) -> Tensor:
        """Give the logits of each row."""
        features = torch.relu(self.conv(signals[:, None])).transpose(1, 2)
        hidden, _ = self.gru(self.dropout(features))
        inside = torch.arange(signals.shape[1], device=signals.device) < lengths[:, None]
        mean = (hidden * inside[..., None]).sum(1) / lengths[:, None]
        logits: Tensor = self.head(self.dropout(mean))
        return logits


@attrs.frozen(kw_only=True, eq=False)
class State:
    """What the trainer carries from step to step."""

    model: Classifier
    #: The moving average of the model's weights, which is validated and saved.
    average: AveragedModel
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler


class WaveTrainer:
    """Classifies signals of any length with a small recurrent network."""

    CAPABILITIES = Capabilities(accumulate=True)
    Hyperparams = Hyperparams

    def setup(self) -> None:
        """Nothing to prepare."""

    def configure(self, ctx: StepContext) -> State:
        """Build the model, its average, the optimizer and the warm-up."""
        hyperparams: Hyperparams = ctx.hyperparams
        model = Classifier(hyperparams).to(ctx.device)
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(hyperparams.ema_decay))
        optimizer = torch.optim.AdamW(model.parameters(), lr=hyperparams.learning_rate)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=hyperparams.warmup_steps)
        ctx.register_optimizer(optimizer, scheduler)
        return State(model=model, average=average, optimizer=optimizer, scheduler=scheduler)

    def prepare_batch(self, raw_batch: pa.RecordBatch, ctx: StepContext) -> Batch:
        """Pad the lists of a batch to the longest of them."""
        hyperparams: Hyperparams = ctx.hyperparams
        column = raw_batch[hyperparams.signal]
        lengths = column.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
        if not lengths.all():
            raise InvalidData(f"a row of the column {hyperparams.signal!r} is empty", hint="drop rows without values")
        inside = np.arange(lengths.max()) < lengths[:, None]
        signals = np.zeros(inside.shape, dtype=np.float32)
        signals[inside] = column.flatten().to_numpy(zero_copy_only=False)
        labels = to_tensors(raw_batch, [hyperparams.label], ctx=ctx)[hyperparams.label].long()
        return Batch(
            signals=torch.from_numpy(signals).to(ctx.device),
            lengths=torch.from_numpy(lengths).to(ctx.device),
            labels=labels,
        )

    def loss_sum(self, batch: Batch, state: State) -> Tensor:
        """Sum the losses of the rows of a batch."""
        return cross_entropy(state.model(batch.signals, batch.lengths), batch.labels, reduction="sum")

    def train_step(self, prepared_batch: Batch | tuple[Batch, ...], state: State) -> StepResult:
        """One update of the model by one batch or several, then one of the average."""
        batches = prepared_batch if isinstance(prepared_batch, tuple) else (prepared_batch,)
        rows = sum(len(batch) for batch in batches)
        state.optimizer.zero_grad()
        total = torch.zeros((), device=batches[0].labels.device)
        for batch in batches:
            loss = self.loss_sum(batch, state) / rows
            loss.backward()
            total += loss.detach()
        learning_rate = state.optimizer.param_groups[0]["lr"]
        state.optimizer.step()
        state.scheduler.step()
        state.average.update_parameters(state.model)
        return StepResult(metrics={"loss": total, "lr": learning_rate}, weight=rows)

    def validate_step(self, prepared_batch: Batch, state: State) -> StepResult:
        """Score the averaged model."""
        logits = state.average(prepared_batch.signals, prepared_batch.lengths)
        accuracy = (logits.argmax(1) == prepared_batch.labels).float().mean()
        return StepResult(
            metrics={"loss": cross_entropy(logits, prepared_batch.labels), "accuracy": accuracy},
            weight=len(prepared_batch),
        )

    def test_step(self, prepared_batch: Batch, state: State) -> StepResult:
        """Score the averaged model on what it has never seen."""
        return self.validate_step(prepared_batch, state)

    def state_dict(self, state: State) -> dict[str, object]:
        """Everything that is needed to go on."""
        return {
            "model": state.model.state_dict(),
            "average": state.average.state_dict(),
            "optimizer": state.optimizer.state_dict(),
            "scheduler": state.scheduler.state_dict(),
        }

    def load_state_dict(self, state: State, payload: dict[str, Any]) -> None:
        """Go on from what :meth:`state_dict` returned."""
        state.model.load_state_dict(payload["model"])
        state.average.load_state_dict(payload["average"])
        state.optimizer.load_state_dict(payload["optimizer"])
        state.scheduler.load_state_dict(payload["scheduler"])

    def save_checkpoint(self, state: State, step: int, output_dir: str, ctx: StepContext) -> dict[str, object]:
        """Write the averaged weights, and what they are weights of, for programs that know nothing of hostcore."""
        weights = {name: tensor.contiguous() for name, tensor in state.average.module.state_dict().items()}
        save_file(weights, Path(output_dir, "model.safetensors"))
        Path(output_dir, "model.json").write_text(json.dumps(attrs.asdict(ctx.hyperparams)))
        return {"model": "model.safetensors", "step": step}
