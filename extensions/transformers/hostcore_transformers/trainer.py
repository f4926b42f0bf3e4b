"""The trainer ``transformers``."""

import math
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import attrs
import numpy as np
import pyarrow as pa
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hostcore_hookspecs import (
    Capabilities,
    InvalidData,
    InvalidSettings,
    SampleRequest,
    StepContext,
    StepResult,
    TensorFile,
)
from hostcore_toolkit import load_training_state, parallelize, to_device, training_state
from hostcore_transformers.adapters import OF_MODEL
from hostcore_transformers.hyperparams import Hyperparams as Settings
from hostcore_transformers.loading import build_model
from hostcore_transformers.loss import nothing_predicted, router_loss
from hostcore_transformers.optimizers import make_optimizer, make_schedule
from hostcore_transformers.packing import Packer
from hostcore_transformers.tasks import POINTERS, Batch, Task, check_columns, load_task
from hostcore_transformers.weights import load_weights, stored_weights

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

SAMPLE_FILE: Final = "sample.txt"


@attrs.define(kw_only=True, eq=False)
class State:
    """State of the trainer, kept from step to step."""

    #: In a wrapper on several ranks, or with its parameters spread over them.
    model: Any
    optimizer: "Optimizer"
    scheduler: "LRScheduler"
    #: None unless blocks are cut.
    packer: Packer | None
    #: Of each batch of the running evaluation: its loss, unread; what that is a sum of; the task's scores.
    evaluated: list[tuple[Tensor, int, Tensor]] = attrs.field(factory=list)

    @property
    def plain(self) -> Any:
        """The model as transformers or peft has made it."""
        return self.model.module if isinstance(self.model, DistributedDataParallel) else self.model


class TransformersTrainer:
    """Fine-tunes or pre-trains a model of Hugging Face transformers, by one of its tasks."""

    Hyperparams: ClassVar[type[Any]] = Settings
    CAPABILITIES = Capabilities(accumulate=True, precisions=("fp32", "bf16", "fp16"), distributed=True, repeatable=True)

    def __init__(self) -> None:
        self._task: Task | None = None

    def settings(self, ctx: StepContext) -> Settings:
        """Return the job's settings. A trainer whose settings have other names translates them here."""
        settings: Settings = ctx.hyperparams
        return settings

    def setup(self, ctx: StepContext) -> None:
        """Load tokenizer and processors, and see that the data has the columns that the task needs."""
        if ctx.job.precision == "fp16" and ctx.world_size > 1 and self.settings(ctx).strategy == "fsdp2":
            message = "gradients that fsdp2 has spread over the ranks overflow on some of them alone"
            raise InvalidSettings("/strategy", message, hint='set "precision" to "bf16", or "strategy" to "ddp"')
        task = self._own_task(ctx)
        if ctx.job.samples and not task.generates:
            message = f'samples need a model that writes text from a prompt, and the task is "{task.name}"'
            raise InvalidData(message, pointer="/samples", hint="remove them")
        if ctx.dataset is not None:
            check_columns(ctx.dataset.schema, task, "train")

    def configure(self, ctx: StepContext) -> State:
        """Build the model, the optimizer and the learning rate's schedule."""
        hyperparams = self.settings(ctx)
        model = build_model(hyperparams, self._own_task(ctx), ctx)
        model.train()
        if hyperparams.torch_compile:
            _require_compiler(ctx.device)
            # For any shape from the first batch on: kernels of a shape that recurs would be made at other steps behind
            # a resume, and may add in another order.
            model.compile(dynamic=True)
        if ctx.world_size == 1:
            model.to(ctx.device)
        else:  # from the CPU, block by block: with fsdp2 no device ever has the whole model
            # A decoder without its encoder does not use the layers that attend to it; nor is anything masked in each
            # batch of audio, or each layer used.
            rare = (".encoder_attn.", "masked_spec_embed")
            unused = any(one in name for name, _ in model.named_parameters() for one in rare)
            options: dict[str, Any] = {}
            if unused and hyperparams.strategy == "ddp":
                options["find_unused_parameters"] = True
            model = parallelize(model, ctx, strategy=hyperparams.strategy, **options)
        optimizer = make_optimizer(model, hyperparams, ctx)
        scheduler = make_schedule(hyperparams, optimizer, ctx.run_state.total_steps)
        ctx.register_optimizer(optimizer, scheduler)
        return State(
            model=model,
            optimizer=optimizer,
            scheduler=scheduler,
            packer=Packer(hyperparams.max_length) if hyperparams.packing is True else None,
        )

    def transform_batch(self, raw_batch: Any, rng: np.random.Generator, ctx: StepContext) -> Any:
        """Encode rows: ahead of the loop, in ``dataset.workers`` processes."""
        if not isinstance(raw_batch, pa.RecordBatch):
            return raw_batch  # of mock_batches: what the model takes, as lists
        task = self._own_task(ctx)
        check_columns(raw_batch.schema, task, ctx.split)
        return task.encode(raw_batch, rng)

    def prepare_batch(self, raw_batch: Any, state: State, ctx: StepContext) -> Batch:
        """Put a batch onto the device; with packing, make blocks of its texts."""
        if raw_batch is None:
            raise InvalidData("there are no rows to train on", pointer="/dataset", hint='name the data in "dataset"')
        if state.packer is not None:
            raw_batch = state.packer.take(raw_batch) if ctx.split == "train" else state.packer.take_all(raw_batch)
            if len(raw_batch["labels"]) == 0:
                raw_batch = nothing_predicted()
        tensors = {name: torch.as_tensor(values) for name, values in raw_batch.items()}
        task = self._own_task(ctx)
        predicted = task.predicted(tensors["labels"])
        inputs = to_device(dict(task.inputs(state.plain, tensors)), ctx)
        return Batch(labels=inputs.pop("labels"), inputs=inputs, predicted=predicted)

    def train_step(self, prepared_batch: "Batch | Sequence[Batch]", state: State, ctx: StepContext) -> StepResult:
        """One update. The loss is the mean over all that is predicted in the global batch; without any, 0.

        A step in which nothing is predicted on any rank changes nothing.
        """
        batches = [prepared_batch] if isinstance(prepared_batch, Batch) else prepared_batch
        own = sum(batch.predicted for batch in batches)
        everywhere = _over_ranks(own, ctx)
        learns = own > 0 or bool(everywhere > 0)
        learning_rate = state.optimizer.param_groups[0]["lr"]
        losses, of_router = [], []
        for left, batch in zip(reversed(range(len(batches))), batches, strict=True):
            with _gradients_shared(state.model, now=left == 0):
                smoothing = self.settings(ctx).label_smoothing
                total, output = self._loss(batch, state, ctx, smoothing=smoothing)
                # Gradients are averaged over the ranks, and this is a part of a sum.
                loss = total / everywhere.clamp(min=1) * ctx.world_size
                if (router := router_loss(state.plain, output)) is not None:
                    added, factor = router
                    share = factor * (batch.predicted > 0) / len(batches)
                    loss = loss + share * added
                    of_router.append(added.detach())
                scaled = loss if ctx.scaler is None else ctx.scaler.scale(loss)
                scaled.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        metrics: dict[str, Any] = {"lr": learning_rate}
        if ctx.scaler is not None:  # fp16
            ctx.scaler.unscale_(state.optimizer)
        norm = self.settings(ctx).max_grad_norm
        found = nn.utils.clip_grad_norm_(state.model.parameters(), norm or math.inf)
        metrics["grad_norm"] = found.full_tensor() if hasattr(found, "full_tensor") else found  # with fsdp2
        if learns and ctx.scaler is not None:
            ctx.scaler.step(state.optimizer)  # not if a gradient has overflowed
        elif learns:
            state.optimizer.step()
        if ctx.scaler is not None:
            ctx.scaler.update()
        state.scheduler.step()
        state.optimizer.zero_grad()
        # On each rank its part of the sum: their weighted mean is the loss of the global batch.
        metrics["loss"] = sum(losses)
        if of_router:
            metrics["router_loss"] = torch.stack(of_router).mean()
        return StepResult(metrics=metrics, weight=1.0)

    def validate_step(self, prepared_batch: Batch, state: State, ctx: StepContext) -> StepResult:
        """Score a batch; the host averages over the batches by what each predicts, and leaves out those without."""
        count = prepared_batch.predicted
        loss, outputs = self._loss(prepared_batch, state, ctx)
        loss = loss.detach()
        if ctx.batch_counts:
            state.evaluated.append((loss, count, self._own_task(ctx).scores(outputs, prepared_batch).detach()))
        return StepResult(metrics={"loss": loss / max(count, 1)}, weight=float(count))

    def test_step(self, prepared_batch: Batch, state: State, ctx: StepContext) -> StepResult:
        """Score a batch of the job's ``test`` data."""
        return self.validate_step(prepared_batch, state, ctx)

    def evaluation_metrics(self, state: State, ctx: StepContext) -> Mapping[str, float]:
        """Metrics of the task, of the whole split."""
        task = self._own_task(ctx)
        losses, counts, scores = zip(*state.evaluated, strict=True) if state.evaluated else ((), (), ())
        state.evaluated = []
        summed = torch.stack(scores).double().sum(0).tolist() if scores else [0.0] * len(task.summed)
        sums = [sum(torch.stack(losses).tolist()) if losses else 0.0, sum(counts), *summed]
        evaluated = torch.tensor(sums, dtype=torch.float64)
        if ctx.world_size > 1:
            evaluated = evaluated.to(ctx.device)
            dist.all_reduce(evaluated)
        loss, count, *summed = evaluated.tolist()
        if count == 0:
            raise InvalidData(
                f"nothing is predicted in the {ctx.split} data: no row has anything to predict",
                pointer=POINTERS[ctx.split],
                hint=task.hint,
            )
        return task.metrics(loss / count, int(count), dict(zip(task.summed, summed, strict=True)))

    def generate_sample(
        self, state: State, request: SampleRequest, output_dir: str, ctx: StepContext
    ) -> Mapping[str, object]:
        """Continue the request's prompt, or write what follows from it, into ``sample.txt``.

        All ranks compute: each may have a part of the model.
        """
        hyperparams = self.settings(ctx)
        if not self._own_task(ctx).generates:
            message = f'samples need a model that writes text from a prompt, and the task is "{hyperparams.task}"'
            raise InvalidData(message, pointer="/sample_every", hint="remove it")
        tokenizer = self._own_task(ctx).processors.tokenizer
        prompt = request.prompt or tokenizer.bos_token or tokenizer.eos_token
        if not prompt:
            message = "a sample without a prompt begins with the token that begins or ends a text; there is none"
            raise InvalidData(message, pointer="/samples", hint='give each sample a "prompt"')
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
                trust_remote_code=False,
                synced_gpus=hyperparams.strategy == "fsdp2" and ctx.world_size > 1,
                **options,
            )
        known = 1 if state.plain.config.is_encoder_decoder else inputs["input_ids"].shape[1]
        text = tokenizer.decode(tokens[0], skip_special_tokens=True)
        if ctx.rank == 0:
            (Path(output_dir) / SAMPLE_FILE).write_text(text)
        return {"file": SAMPLE_FILE, "tokens": tokens.shape[1] - known}

    def state_dict(self, state: State) -> dict[str, object]:
        """Everything that is needed to go on; the weights in the file that ``from_pretrained`` reads."""
        return {
            "weights": TensorFile(*stored_weights(state.plain)),
            "optimizer": training_state(state.model, state.optimizer)["optimizer"],
            "scheduler": state.scheduler.state_dict(),
            "remainders": by_rank(state.packer.remainder, state.model) if state.packer is not None else None,
        }

    def load_state_dict(self, state: State, payload: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` returned."""
        load_weights(state.plain, payload["weights"])
        present = training_state(state.model)["model"]
        load_training_state(state.model, state.optimizer, {"model": present, "optimizer": payload["optimizer"]})
        state.scheduler.load_state_dict(payload["scheduler"])
        if state.packer is not None:
            state.packer.remainder = dealt(payload["remainders"])

    def save_checkpoint(self, state: State, output_dir: str, ctx: StepContext) -> None:
        """Write what belongs to the weights: configuration, tokenizer and processors."""
        if ctx.rank != 0:
            return
        if hasattr(state.plain, "peft_config"):
            state.plain.peft_config["default"].save_pretrained(output_dir)
            state.plain.get_base_model().config.to_json_file(Path(output_dir) / OF_MODEL, use_diff=False)
        else:
            config = state.plain.config
            config.save_pretrained(output_dir)
            if type(config).from_pretrained(output_dir, local_files_only=True).num_labels != config.num_labels:
                # It leaves out two labels as if they were any configuration's default, and BART's is three.
                config.to_json_file(Path(output_dir) / "config.json", use_diff=False)
            if state.plain.can_generate():
                state.plain.generation_config.save_pretrained(output_dir)
        self._own_task(ctx).processors.save(output_dir)

    def _own_task(self, ctx: StepContext) -> Task:
        if self._task is None:
            self._task = load_task(self.settings(ctx), ctx.model_handles)
        return self._task

    def _loss(self, batch: Batch, state: State, ctx: StepContext, *, smoothing: float = 0.0) -> tuple[Tensor, Any]:
        """The sum of the losses of a batch, zero-dimensional, float32; and what the model returned."""
        with ctx.autocast():
            output = self._own_task(ctx).outputs(state.model, batch)
            return self._own_task(ctx).loss(output, batch, state.plain, smoothing=smoothing), output


def _over_ranks(count: int, ctx: StepContext) -> Tensor:
    """The sum over all ranks: zero-dimensional, int64. On a device it is not waited for."""
    if ctx.world_size == 1:
        return torch.tensor(count)
    everywhere = torch.tensor(count, device=ctx.device)
    dist.all_reduce(everywhere)
    return everywhere


def _gradients_shared(model: nn.Module, *, now: bool) -> AbstractContextManager[None]:
    """With DDP: whether gradients are averaged over the ranks in this backward pass, or added up until a later one."""
    if now or not isinstance(model, DistributedDataParallel):
        return nullcontext()
    return model.no_sync()


def by_rank(tokens: Tensor, model: nn.Module) -> list[Tensor]:
    """The tokens of each rank, on all ranks. A collective where there are several.

    :param model: On the device that the ranks talk over.
    """
    if not dist.is_initialized():
        return [tokens]
    device = next(model.parameters()).device
    lengths = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, torch.tensor([len(tokens)], device=device))
    longest = max(int(one) for one in lengths)
    padded = nn.functional.pad(tokens, (0, longest - len(tokens))).to(device)
    gathered = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(gathered, padded)
    return [one[: int(length)].cpu() for one, length in zip(gathered, lengths, strict=True)]


def dealt(remainders: Sequence[Tensor]) -> Tensor:
    """Return this rank's remaining tokens: its own and, with fewer ranks than before, those of lost ranks."""
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    return torch.cat([torch.empty(0, dtype=torch.int64), *remainders[rank::ranks]])


def _require_compiler(device: torch.device | str) -> None:
    """:raises InvalidSettings: The kernels of a CPU cannot be compiled."""
    compiler = os.environ.get("CXX", "g++")
    if torch.device(device).type == "cpu" and shutil.which(compiler) is None:
        message = f"on a CPU it needs a C++ compiler, and there is no {compiler}"
        raise InvalidSettings("/torch_compile", message, hint="install g++, or name another compiler in CXX")
