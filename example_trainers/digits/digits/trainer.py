"""The trainer: what hostcore calls, in the order it calls it."""

from collections.abc import Sequence
from typing import Annotated, Any

import attrs
import pyarrow as pa
from annotated_types import Ge, Gt, Lt
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from digits.model import DigitsModel
from digits.prepare_data import IMAGE, LABEL, SCHEMA
from hostcore_hookspecs import Capabilities, InvalidData, StepContext, StepResult
from hostcore_toolkit import (
    build_default_adamw_bundle,
    load_training_state,
    parallelize,
    to_tensors,
    training_state,
)


@attrs.frozen(kw_only=True)
class Hyperparams:
    """The job's ``hyperparams``. hostcore checks types and bounds before the run starts."""

    learning_rate: Annotated[float, Gt(0)] = 3e-3
    weight_decay: Annotated[float, Ge(0)] = 0.05
    #: The share of the run in which the learning rate rises; after it, it falls to zero along a cosine.
    warmup: Annotated[float, Ge(0), Lt(1)] = 0.1
    #: Of the first convolution; the others have twice as many.
    channels: Annotated[int, Gt(0)] = 32
    #: The share of values before the last layer that training drops.
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.3


@attrs.frozen(kw_only=True, eq=False)
class State:
    """State of the trainer, kept from step to step."""

    #: A :class:`DigitsModel`; on several ranks inside a wrapper that averages the gradients over them.
    model: nn.Module
    optimizer: Optimizer
    #: None when the run's length is not known: then the learning rate is constant.
    scheduler: LRScheduler | None


@attrs.frozen(kw_only=True, eq=False)
class Batch:
    """Some images."""

    #: (images, 64), uint8: from 0 to 16, row by row from the top.
    images: Tensor
    #: (images,), int64: which digit each is.
    labels: Tensor


class DigitsTrainer:
    """Reads handwritten digits of 8 by 8 pixels."""

    Hyperparams = Hyperparams
    CAPABILITIES = Capabilities(accumulate=True, precisions=("fp32", "bf16", "fp16"), distributed=True, repeatable=True)

    def setup(self, ctx: StepContext) -> None:
        """Refuse data that the model cannot read, before anything is built."""
        if ctx.dataset is None:
            return
        for field in SCHEMA:
            found = ctx.dataset.schema
            if field.name not in found.names or found.field(field.name).type != field.type:
                raise InvalidData(
                    f"the data has no column {field.name!r} of type {field.type}",
                    pointer="/dataset",
                    hint="Prepare it with: python -m digits.prepare_data --out DIR",
                )

    def configure(self, ctx: StepContext) -> State:
        """Build the model, the optimizer and the learning rate's schedule."""
        hyperparams: Hyperparams = ctx.hyperparams
        model = DigitsModel(channels=hyperparams.channels, dropout=hyperparams.dropout).to(ctx.device)
        if "weights" in ctx.model_handles:  # the job's "weights", or --weights: to begin from
            model.load_state_dict(load_file(ctx.model_handles["weights"]))
        parallel = parallelize(model, ctx)  # the model itself on one rank; before the optimizer takes its parameters
        steps = ctx.run_state.total_steps
        bundle = build_default_adamw_bundle(
            parallel,
            hyperparams={
                "learning_rate": hyperparams.learning_rate,
                "weight_decay": hyperparams.weight_decay,
                "warmup_steps": int(hyperparams.warmup * steps),
            },
            max_steps=steps,
        )
        ctx.register_optimizer(bundle.optimizer, bundle.scheduler)
        return State(model=parallel, optimizer=bundle.optimizer, scheduler=bundle.scheduler)

    def prepare_batch(self, raw_batch: pa.RecordBatch, ctx: StepContext) -> Batch:
        """Turn rows of the prepared data into tensors on the run's device."""
        columns = to_tensors(raw_batch, [IMAGE, LABEL], ctx=ctx)
        return Batch(images=columns[IMAGE], labels=columns[LABEL].long())

    def train_step(self, prepared_batch: Batch | Sequence[Batch], state: State, ctx: StepContext) -> StepResult:
        """One update. With ``accumulate`` there are several batches for it, which count as one large batch."""
        batches = [prepared_batch] if isinstance(prepared_batch, Batch) else prepared_batch
        images = sum(len(batch.labels) for batch in batches)
        learning_rate = state.optimizer.param_groups[0]["lr"]
        losses, hits = [], []
        for batch in batches:
            loss, hit = _loss_and_hits(batch, state, ctx)
            loss = loss / images  # a mean over all batches, also should one have fewer images
            scaled = loss if ctx.scaler is None else ctx.scaler.scale(loss)
            scaled.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
            hits.append(hit)
        if ctx.scaler is None:
            state.optimizer.step()
        else:  # fp16: undoes the scaling, and leaves the step out if a gradient has overflowed
            ctx.scaler.step(state.optimizer)
            ctx.scaler.update()
        state.optimizer.zero_grad()
        if state.scheduler is not None:
            state.scheduler.step()
        # Tensors, not .item(), which would wait for the GPU at every step: the host reads them when it records them.
        metrics = {"loss": sum(losses), "accuracy": sum(hits) / images, "lr": learning_rate}
        return StepResult(metrics=metrics, weight=images)

    def validate_step(self, prepared_batch: Batch, state: State, ctx: StepContext) -> StepResult:
        """Score a batch of the job's ``validation`` data. The host averages over the batches by their images.

        It has put the model into evaluation mode, without gradients, and puts it back afterwards.
        """
        images = len(prepared_batch.labels)
        loss, hits = _loss_and_hits(prepared_batch, state, ctx)
        return StepResult(metrics={"loss": loss / images, "accuracy": hits / images}, weight=images)

    def test_step(self, prepared_batch: Batch, state: State, ctx: StepContext) -> StepResult:
        """Score a batch of the job's ``test`` data."""
        return self.validate_step(prepared_batch, state, ctx)

    def state_dict(self, state: State) -> dict[str, object]:
        """Everything that is needed to go on. The host adds the scaler, the random states and the place in the data."""
        return {
            **training_state(state.model, state.optimizer),  # the same on one rank and on several
            "scheduler": state.scheduler.state_dict() if state.scheduler is not None else None,
        }

    def load_state_dict(self, state: State, payload: dict[str, Any]) -> None:
        """Go on from what :meth:`state_dict` returned."""
        load_training_state(state.model, state.optimizer, payload)
        if state.scheduler is not None and payload["scheduler"] is not None:
            state.scheduler.load_state_dict(payload["scheduler"])


def _loss_and_hits(batch: Batch, state: State, ctx: StepContext) -> tuple[Tensor, Tensor]:
    """The sum of the losses, and how many images were read correctly. Both are zero-dimensional, float32."""
    with ctx.autocast():
        logits = state.model(batch.images).float()
    return cross_entropy(logits, batch.labels, reduction="sum"), (logits.argmax(1) == batch.labels).sum().float()
