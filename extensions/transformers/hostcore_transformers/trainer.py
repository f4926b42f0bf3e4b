"""The trainer ``transformers``."""

import importlib
import inspect
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import attrs
import numpy as np
import pyarrow as pa
import torch
import torch.distributed as dist
from torch import Tensor, nn

from hostcore.toolkit import load_training_state, parallelize, training_state
from hostcore_hookspecs import (
    Capabilities,
    InvalidData,
    SampleRequest,
    StepContext,
    StepResult,
    TensorFile,
)
from hostcore_transformers.hyperparams import Hyperparams as Settings
from hostcore_transformers.loading import build_model, load_tokenizer
from hostcore_transformers.text import IGNORED, Encoder, Packer

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

SAMPLE_FILE: Final = "sample.txt"

Batch = Mapping[str, Tensor]


@attrs.define(kw_only=True, eq=False)
class State:
    """What the trainer carries from step to step."""

    #: In a wrapper on several ranks, or with its parameters spread over them.
    model: Any
    optimizer: "Optimizer"
    scheduler: "LRScheduler"
    #: Whether each token is to predict the next one, so that the first of a row is never predicted.
    predicts_next: bool
    #: None without ``packing``.
    packer: Packer | None
    #: Of the running evaluation: the sum of the losses, what they are of, and how many were predicted right.
    evaluated: Tensor

    @property
    def plain(self) -> Any:
        """The model as transformers or peft has made it."""
        return getattr(self.model, "module", self.model)


class TransformersTrainer:
    """Fine-tunes or pre-trains a model of Hugging Face transformers: causal, masked, or for classification."""

    Hyperparams: ClassVar[type[Any]] = Settings
    CAPABILITIES = Capabilities(accumulate=True, precisions=("fp32", "bf16"), distributed=True)

    def __init__(self) -> None:
        self._tokenizer: Any = None

    def settings(self, ctx: StepContext) -> Settings:
        """What the job asks for. A trainer whose settings have other names translates them here."""
        settings: Settings = ctx.hyperparams
        return settings

    def setup(self, ctx: StepContext) -> None:
        """Load the tokenizer, and see that the data has the columns that the task needs."""
        self._own_tokenizer(ctx)
        if ctx.dataset is not None:
            _check_columns(ctx.dataset.schema, self.settings(ctx))

    def configure(self, ctx: StepContext) -> State:
        """Build the model, the optimizer and the learning rate's schedule."""
        from transformers import get_scheduler

        hyperparams = self.settings(ctx)
        model = build_model(hyperparams, self._own_tokenizer(ctx), ctx).to(ctx.device)
        model.train()
        model = parallelize(model, ctx, strategy=hyperparams.strategy)
        optimizer = torch.optim.AdamW(
            _groups(model, hyperparams.weight_decay), lr=hyperparams.learning_rate, betas=hyperparams.adam_betas
        )
        scheduler = get_scheduler(
            hyperparams.schedule,
            optimizer,
            num_warmup_steps=hyperparams.warmup_steps,
            num_training_steps=ctx.run_state.total_steps,
        )
        ctx.register_optimizer(optimizer, scheduler)
        return State(
            model=model,
            optimizer=optimizer,
            scheduler=scheduler,
            predicts_next=hyperparams.task == "causal-lm",
            packer=Packer(hyperparams.max_length) if hyperparams.packing else None,
            evaluated=torch.zeros(3, dtype=torch.float64),
        )

    def transform_batch(self, raw_batch: Any, rng: np.random.Generator, ctx: StepContext) -> Any:
        """Tokenize rows: ahead of the loop, in ``dataset.workers`` processes."""
        if not isinstance(raw_batch, pa.RecordBatch):
            return raw_batch  # of mock_batches: what the model takes, as lists
        return Encoder(self._own_tokenizer(ctx), self.settings(ctx)).encode(raw_batch, rng)

    def prepare_batch(self, raw_batch: Any, state: State, ctx: StepContext) -> Batch:
        """Put a batch onto the device; with packing, make blocks of its texts."""
        if raw_batch is None:
            raise InvalidData("there are no rows to train on", pointer="/dataset", hint='name the data in "dataset"')
        if state.packer is not None:
            raw_batch = state.packer.take(raw_batch) if ctx.split == "train" else state.packer.take_all(raw_batch)
        return {name: torch.as_tensor(values).to(ctx.device) for name, values in raw_batch.items()}

    def train_step(self, prepared_batch: "Batch | Sequence[Batch]", state: State, ctx: StepContext) -> StepResult:
        """One update. The loss is the mean over all that is predicted in the global batch."""
        batches = [prepared_batch] if isinstance(prepared_batch, Mapping) else prepared_batch
        own = torch.stack([_predicted(batch, state) for batch in batches]).sum()
        if ctx.world_size > 1:
            dist.all_reduce(own)
        learns = state.packer is None or int(own) > 0  # else no block is whole yet, on any rank
        everywhere = own.clamp(min=1)
        learning_rate = state.optimizer.param_groups[0]["lr"]
        losses = []
        for batch in batches:
            # Gradients are averaged over the ranks, and this is a part of a sum.
            loss = self._loss(batch, state, ctx, everywhere) * ctx.world_size
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        metrics: dict[str, Any] = {"lr": learning_rate}
        norm = self.settings(ctx).max_grad_norm
        found = nn.utils.clip_grad_norm_(state.model.parameters(), norm or math.inf)
        metrics["grad_norm"] = found.full_tensor() if hasattr(found, "full_tensor") else found  # with fsdp2
        if learns:
            state.optimizer.step()
        state.scheduler.step()
        state.optimizer.zero_grad()
        # On each rank its part of the sum: their weighted mean is the loss of the global batch.
        metrics["loss"] = sum(losses)
        return StepResult(metrics=metrics, weight=1.0)

    def validate_step(self, prepared_batch: Batch, state: State, ctx: StepContext) -> StepResult:
        """Score a batch; the host averages over the batches by what each predicts."""
        count = _predicted(prepared_batch, state)
        outputs = self._outputs(prepared_batch, state, ctx, count)
        if ctx.batch_counts:
            right = torch.zeros_like(count)
            if self.settings(ctx).task == "sequence-classification":
                right = (outputs.logits.argmax(-1) == prepared_batch["labels"]).sum()
            state.evaluated += torch.stack([outputs.loss.double() * count, count, right]).to("cpu", torch.float64)
        return StepResult(metrics={"loss": outputs.loss.detach()}, weight=float(count))

    def test_step(self, prepared_batch: Batch, state: State, ctx: StepContext) -> StepResult:
        """Score a batch of the job's ``test`` data."""
        return self.validate_step(prepared_batch, state, ctx)

    def evaluation_metrics(self, state: State, ctx: StepContext) -> Mapping[str, float]:
        """``perplexity``, or ``accuracy`` for a classification: of the whole split."""
        evaluated, state.evaluated = state.evaluated, torch.zeros(3, dtype=torch.float64)
        if ctx.world_size > 1:
            evaluated = evaluated.to(ctx.device)
            dist.all_reduce(evaluated)
        loss, count, right = evaluated.tolist()
        if self.settings(ctx).task == "sequence-classification":
            return {"accuracy": right / count}
        return {"perplexity": math.exp(min(loss / count, 700.0))}  # the largest that a float holds

    def generate_sample(
        self, state: State, request: SampleRequest, output_dir: str, ctx: StepContext
    ) -> Mapping[str, object]:
        """Continue the request's prompt, into ``sample.txt``. All ranks compute: each may have a part of the model."""
        hyperparams = self.settings(ctx)
        if hyperparams.task != "causal-lm":
            raise InvalidData(f'"samples" need a model that writes text, and the task is "{hyperparams.task}"')
        tokenizer = self._own_tokenizer(ctx)
        prompt = request.prompt or tokenizer.bos_token or tokenizer.eos_token
        inputs = tokenizer(prompt, return_tensors="pt").to(ctx.device)
        drawn = hyperparams.temperature > 0
        options = {"temperature": hyperparams.temperature} if drawn else {}
        on_cuda = [ctx.device] if torch.device(ctx.device).type == "cuda" else []
        with torch.random.fork_rng(devices=on_cuda), ctx.autocast():
            torch.manual_seed(ctx.job.seed if request.seed is None else request.seed)
            tokens = state.plain.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                max_new_tokens=hyperparams.max_new_tokens,
                do_sample=drawn,
                pad_token_id=tokenizer.pad_token_id,
                synced_gpus=hyperparams.strategy == "fsdp2" and ctx.world_size > 1,
                **options,
            )
        text = tokenizer.decode(tokens[0], skip_special_tokens=True)
        if ctx.rank == 0:
            (Path(output_dir) / SAMPLE_FILE).write_text(text)
        return {"file": SAMPLE_FILE, "tokens": tokens.shape[1] - inputs["input_ids"].shape[1]}

    def state_dict(self, state: State) -> dict[str, object]:
        """Everything that is needed to go on; the weights in the file that ``from_pretrained`` reads."""
        return {
            "weights": TensorFile(*_weights(state.plain)),
            "optimizer": training_state(state.model, state.optimizer)["optimizer"],
            "scheduler": state.scheduler.state_dict(),
            "remainder": state.packer.remainder if state.packer is not None else None,
        }

    def load_state_dict(self, state: State, payload: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` returned."""
        _load_weights(state.plain, payload["weights"])
        present = training_state(state.model)["model"]
        load_training_state(state.model, state.optimizer, {"model": present, "optimizer": payload["optimizer"]})
        state.scheduler.load_state_dict(payload["scheduler"])
        if state.packer is not None:
            state.packer.remainder = payload["remainder"]

    def save_checkpoint(self, state: State, output_dir: str, ctx: StepContext) -> None:
        """Write what belongs to the weights: configuration and tokenizer."""
        if ctx.rank != 0:
            return
        if self.settings(ctx).lora is not None:
            state.plain.peft_config["default"].save_pretrained(output_dir)
        else:
            state.plain.config.save_pretrained(output_dir)
            if state.plain.can_generate():
                state.plain.generation_config.save_pretrained(output_dir)
        self._own_tokenizer(ctx).save_pretrained(output_dir)

    def _own_tokenizer(self, ctx: StepContext) -> Any:
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self.settings(ctx), ctx.model_handles)
        return self._tokenizer

    def _outputs(self, batch: Batch, state: State, ctx: StepContext, count: Tensor) -> Any:
        counted = {"num_items_in_batch": count} if _takes_count(state.plain) else {}
        with ctx.autocast():
            return state.model(**batch, **counted)

    def _loss(self, batch: Batch, state: State, ctx: StepContext, count: Tensor) -> Tensor:
        """The part of a batch in the mean loss over ``count`` predictions: zero-dimensional, float32."""
        if len(batch["input_ids"]) == 0:  # with packing: no block is whole yet, and all ranks must take part
            nothing = torch.zeros((1, 2), dtype=torch.int64, device=ctx.device)
            with ctx.autocast():
                logits = state.model(input_ids=nothing, attention_mask=torch.ones_like(nothing)).logits
            nothing_learned: Tensor = logits.float().sum() * 0.0
            return nothing_learned
        loss: Tensor = self._outputs(batch, state, ctx, count).loss
        return loss if _takes_count(state.plain) else loss * _predicted(batch, state) / count


def _check_columns(schema: pa.Schema, hyperparams: Settings) -> None:
    needed = {"messages_column" if hyperparams.messages_column else "text_column"}
    if hyperparams.task == "sequence-classification":
        needed.add("label_column")
    for setting in sorted(needed):
        column = getattr(hyperparams, setting)
        if column not in schema.names:
            raise InvalidData(
                f'the data has no column "{column}"; it has: {", ".join(schema.names)}',
                pointer="/dataset",
                hint=f'set "{setting}" to the column that is meant',
            )
    kind = schema.field(hyperparams.label_column).type if "label_column" in needed else pa.int64()
    if not pa.types.is_integer(kind):
        raise InvalidData(
            f'the column "{hyperparams.label_column}" is of type {kind}, and classes are integers', pointer="/dataset"
        )


def _groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """The parameters to train: those that decay, and biases and those of normalizations, which do not."""
    names: Any = importlib.import_module("transformers.trainer_pt_utils").get_parameter_names

    patterns = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]
    decaying = set(names(model, [nn.LayerNorm], patterns))
    trained = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    return [
        {"params": [one for name, one in trained if name in decaying], "weight_decay": weight_decay},
        {"params": [one for name, one in trained if name not in decaying], "weight_decay": 0.0},
    ]


def _takes_count(model: Any) -> bool:
    """Whether the model divides the sum of its losses by ``num_items_in_batch``, as transformers' newer ones do."""
    plain = model.get_base_model() if hasattr(model, "get_base_model") else model
    parameters = inspect.signature(plain.forward).parameters.values()
    return any(one.kind is one.VAR_KEYWORD for one in parameters)


def _predicted(batch: Batch, state: State) -> Tensor:
    """How many predictions the loss of a batch is of: zero-dimensional, int64."""
    labels = batch["labels"]
    return (labels[..., 1:] if state.predicts_next else labels).ne(IGNORED).sum()


def _weights(model: Any) -> tuple[str, Mapping[str, Tensor]]:
    """The file and the tensors that ``from_pretrained`` wants: of adapters, these alone."""
    if hasattr(model, "peft_config"):
        return "adapter_model.safetensors", importlib.import_module("peft").get_peft_model_state_dict(model)
    return "model.safetensors", _whole(model)


def _whole(model: nn.Module) -> Mapping[str, Tensor]:
    """All tensors of a model. A collective where they are spread over the ranks: the first one gets them."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    if not _is_spread(model):
        return model.state_dict()
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    whole: Any = get_model_state_dict(model, options=options)
    tied = _tied(model)  # gathered one by one, they do not share memory any more
    return {name: tensor for name, tensor in whole.items() if name not in tied}


def _load_weights(model: Any, weights: Mapping[str, Tensor]) -> None:
    if hasattr(model, "peft_config"):
        importlib.import_module("peft").set_peft_model_state_dict(model, dict(weights))
        return
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    whole: Any = {**weights, **{name: weights[first] for name, first in _tied(model).items()}}
    if _is_spread(model):
        set_model_state_dict(model, whole, options=StateDictOptions(full_state_dict=True))
    else:
        model.load_state_dict(whole)


def _is_spread(model: nn.Module) -> bool:
    """Whether FSDP2 has spread the parameters over the ranks."""
    return any(hasattr(one, "full_tensor") for one in model.parameters())


def _tied(model: nn.Module) -> Mapping[str, str]:
    """The further names of parameters that have several, and the first name of each."""
    first: dict[int, str] = {}
    named = model.named_parameters(remove_duplicate=False)
    return {name: known for name, one in named if (known := first.setdefault(id(one), name)) != name}
