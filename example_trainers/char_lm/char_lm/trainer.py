"""The trainer: what hostcore calls, in the order it calls it."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import attrs
import pyarrow as pa
from annotated_types import Ge, Gt, Le, Lt
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from char_lm.generate import generate
from char_lm.model import VOCABULARY, CharLm
from char_lm.prepare_data import ROW_BYTES, SCHEMA, TOKENS
from hostcore_hookspecs import Capabilities, InvalidData, InvalidSettings, SampleRequest, StepContext, StepResult
from hostcore_toolkit import (
    average_gradients,
    load_training_state,
    parallelize,
    schedule,
    to_tensors,
    training_state,
)

SAMPLE_FILE: Final = "sample.txt"


@attrs.frozen(kw_only=True)
class Hyperparams:
    """The job's ``hyperparams``. hostcore checks types and bounds before the run starts."""

    #: How many bytes the model looks at; a divisor of 256. A row of data becomes 256 / context texts.
    context: Annotated[int, Gt(0), Le(ROW_BYTES)] = 64
    layers: Annotated[int, Gt(0)] = 4
    #: Of the attention; a divisor of ``width``.
    heads: Annotated[int, Gt(0)] = 4
    #: The size of the vector that stands for a position.
    width: Annotated[int, Gt(0)] = 128
    #: The share of values that training drops.
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0

    learning_rate: Annotated[float, Gt(0)] = 5e-3
    weight_decay: Annotated[float, Ge(0)] = 0.1
    #: The share of the run in which the learning rate rises, from a tenth.
    warmup: Annotated[float, Ge(0), Lt(1)] = 0.1
    #: What it does then: ``cosine`` and ``linear`` fall to zero, ``wsd`` does so in the last tenth of the run.
    schedule: Literal["cosine", "linear", "wsd", "constant"] = "cosine"

    #: On several ranks: ``ddp`` has the whole model on each, ``fsdp2`` a part of every parameter.
    #: ``replicate`` is a slower ``ddp`` under which a step for which memory runs out is made again in parts.
    strategy: Literal["ddp", "fsdp2", "replicate"] = "ddp"

    #: Bytes that a generated sample adds to its prompt.
    sample_length: Annotated[int, Gt(0)] = 256
    #: Below 1, the likely bytes become likelier still.
    temperature: Annotated[float, Gt(0)] = 0.8
    #: So many of the likeliest bytes are drawn from; 0: all.
    top_k: Annotated[int, Ge(0), Le(VOCABULARY)] = 40


@attrs.frozen(kw_only=True, eq=False)
class State:
    """State of the trainer, kept from step to step."""

    #: A :class:`CharLm`; on several ranks inside a wrapper, or with its parameters spread over them.
    model: nn.Module
    optimizer: Optimizer
    #: None when the run's length is not known: then the learning rate is constant.
    scheduler: LRScheduler | None


@attrs.frozen(kw_only=True, eq=False)
class Batch:
    """Some texts."""

    #: (texts, context), int64.
    inputs: Tensor
    #: (texts, context), int64: the byte after each of ``inputs``.
    targets: Tensor


class CharLmTrainer:
    """A small GPT that learns to write text, byte by byte."""

    Hyperparams = Hyperparams
    CAPABILITIES = Capabilities(
        accumulate=True, precisions=("fp32", "bf16"), distributed=True, split_on_oom=True, repeatable=True
    )

    def setup(self, ctx: StepContext) -> None:
        """Refuse settings and data that do not fit together, before anything is built."""
        hyperparams: Hyperparams = ctx.hyperparams
        if ROW_BYTES % hyperparams.context:
            raise InvalidSettings("/context", f"{hyperparams.context} does not divide the {ROW_BYTES} bytes of a row")
        if hyperparams.width % hyperparams.heads:
            raise InvalidSettings("/heads", f"{hyperparams.heads} does not divide the width, {hyperparams.width}")
        if hyperparams.schedule == "wsd" and hyperparams.warmup > 0.9:
            raise InvalidSettings("/warmup", f"{hyperparams.warmup:g} of the run leave no tenth for wsd to decay in")
        if ctx.dataset is None:
            return
        schema, wanted = ctx.dataset.schema, SCHEMA.field(TOKENS)
        if TOKENS not in schema.names or schema.field(TOKENS).type != wanted.type:
            raise InvalidData(
                f"the data has no column {TOKENS!r} of type {wanted.type}",
                pointer="/dataset",
                hint="Prepare it with: python -m char_lm.prepare_data --out DIR",
            )

    def configure(self, ctx: StepContext) -> State:
        """Build the model, the optimizer and the learning rate's schedule."""
        hyperparams: Hyperparams = ctx.hyperparams
        model = CharLm(
            context=hyperparams.context,
            layers=hyperparams.layers,
            heads=hyperparams.heads,
            width=hyperparams.width,
            dropout=hyperparams.dropout,
        ).to(ctx.device)
        if "weights" in ctx.model_handles:  # the job's "weights", or --weights: to begin from
            model.load_state_dict(load_file(ctx.model_handles["weights"]))
        # The model itself on one rank. Before the optimizer is made, which takes the parameters as they are then.
        parallel = parallelize(model, ctx, strategy=hyperparams.strategy)
        steps = ctx.run_state.total_steps
        optimizer = AdamW(
            parallel.parameters(),
            lr=hyperparams.learning_rate,
            betas=(0.9, 0.95),
            weight_decay=hyperparams.weight_decay,
        )
        scheduler = None
        if steps:
            kind, warmup = hyperparams.schedule, hyperparams.warmup
            scheduler = schedule(optimizer, steps, kind=kind, warmup_fraction=warmup, warmup_start=0.1)
        ctx.register_optimizer(optimizer, scheduler)
        return State(model=parallel, optimizer=optimizer, scheduler=scheduler)

    def prepare_batch(self, raw_batch: pa.RecordBatch, ctx: StepContext) -> Batch:
        """Turn rows of the prepared data into tensors on the run's device."""
        # To the device as bytes, an eighth of what the model takes.
        tokens = to_tensors(raw_batch, [TOKENS], ctx=ctx)[TOKENS].long()
        context = ctx.hyperparams.context
        return Batch(inputs=tokens[:, :-1].reshape(-1, context), targets=tokens[:, 1:].reshape(-1, context))

    def train_step(self, prepared_batch: Batch | Sequence[Batch], state: State, ctx: StepContext) -> StepResult:
        """One update. There may be several batches for it, or parts of one, which count as one large batch."""
        batches = [prepared_batch] if isinstance(prepared_batch, Batch) else prepared_batch
        count = sum(batch.targets.numel() for batch in batches)
        learning_rate = state.optimizer.param_groups[0]["lr"]
        losses = []
        for batch in batches:
            loss = _loss(batch, state, ctx) * (batch.targets.numel() / count)
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        ctx.begin_update()  # when memory ran out before, the host makes the step again with its batch in parts
        average_gradients(state.model, ctx)
        state.optimizer.step()
        state.optimizer.zero_grad()
        if state.scheduler is not None:
            state.scheduler.step()
        # A tensor, not .item(), which would wait for the GPU at every step: the host reads it when it records it.
        return StepResult(metrics={"loss": sum(losses), "lr": learning_rate}, weight=count)

    def validate_step(self, prepared_batch: Batch, state: State, ctx: StepContext) -> StepResult:
        """Score a batch of the job's ``validation`` data. The host averages over the batches by their bytes.

        It has put the model into evaluation mode, without gradients, and puts it back afterwards.
        """
        loss = _loss(prepared_batch, state, ctx)
        metrics = {"loss": loss, "bits_per_byte": loss / math.log(2)}
        return StepResult(metrics=metrics, weight=prepared_batch.targets.numel())

    def test_step(self, prepared_batch: Batch, state: State, ctx: StepContext) -> StepResult:
        """Score a batch of the job's ``test`` data."""
        return self.validate_step(prepared_batch, state, ctx)

    def generate_sample(
        self, state: State, request: SampleRequest, output_dir: str, ctx: StepContext
    ) -> Mapping[str, object]:
        """Continue the request's prompt, into ``sample.txt``. All ranks compute: each may have a part of the model."""
        hyperparams: Hyperparams = ctx.hyperparams

        def predict(tokens: Tensor) -> Tensor:
            with ctx.autocast():
                logits: Tensor = state.model(tokens)
            return logits

        text = generate(
            predict,
            (request.prompt or "\n").encode(),
            length=hyperparams.sample_length,
            context=hyperparams.context,
            temperature=hyperparams.temperature,
            top_k=hyperparams.top_k,
            seed=ctx.job.seed if request.seed is None else request.seed,
            device=ctx.device,
        ).decode(errors="replace")  # it may have been cut inside a character, and a young model writes any bytes
        if ctx.rank == 0:
            (Path(output_dir) / SAMPLE_FILE).write_text(text)
        return {"file": SAMPLE_FILE, "characters": len(text)}

    def state_dict(self, state: State) -> dict[str, object]:
        """Everything that is needed to go on. The host adds the random states and the place in the data."""
        return {
            **training_state(state.model, state.optimizer),  # the same for any number of ranks and either strategy
            "scheduler": state.scheduler.state_dict() if state.scheduler is not None else None,
        }

    def load_state_dict(self, state: State, payload: dict[str, Any]) -> None:
        """Go on from what :meth:`state_dict` returned."""
        load_training_state(state.model, state.optimizer, payload)
        if state.scheduler is not None and payload["scheduler"] is not None:
            state.scheduler.load_state_dict(payload["scheduler"])


def _loss(batch: Batch, state: State, ctx: StepContext) -> Tensor:
    """The mean cross-entropy, in nats per byte: zero-dimensional, float32."""
    with ctx.autocast():
        logits = state.model(batch.inputs)
    return cross_entropy(logits.float().view(-1, VOCABULARY), batch.targets.view(-1))
