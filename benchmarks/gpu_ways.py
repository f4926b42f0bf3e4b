"""The trainers that ``gpu.py`` runs: each measures within its own run, and writes its figures after every round."""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import torch
from checkpoint import Clock, Save, dcp_async_save, torch_save
from gpu_turns import CADENCE, Measured, Measuring, Turns, kernels_of, overlap
from torch.nn.functional import cross_entropy

from hostcore_hookspecs import Capabilities, StepContext, StepResult
from hostcore_toolkit import to_tensors


@attrs.frozen(eq=False)
class Parts:
    """Model, optimizer and batches of a training loop."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: Any

    @classmethod
    def make(cls, wanted: Any, device: torch.device) -> "Parts":
        from char_lm.model import CharLm

        sizes = {name: getattr(wanted, name) for name in ("context", "layers", "heads", "width")}
        model = CharLm(**sizes).to(device)
        if wanted.compile:
            model.compile(backend=wanted.compile)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        return cls(model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100_000))

    def backward(self, batch: tuple[torch.Tensor, torch.Tensor], autocast: Callable[[], Any]) -> torch.Tensor:
        inputs, targets = batch
        with autocast():
            logits = self.model(inputs)
        loss = cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1))
        loss.backward()
        return loss.detach()

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()


@attrs.frozen(kw_only=True)
class Model(Measured):
    """The sizes of a char_lm, and of its batches."""

    layers: int
    heads: int
    width: int
    context: int
    #: Of a batch.
    texts: int
    #: The backend of ``torch.compile``; empty: not compiled.
    compile: str = ""


def random_batch(wanted: Model, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes and those behind them: (texts, context) each."""
    tokens = torch.randint(256, (wanted.texts, wanted.context + 1), device=device)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


class Steps(Turns):
    """Steps of char_lm on a batch that lies on the device."""

    Hyperparams = Model
    CAPABILITIES = Capabilities(precisions=("fp32", "bf16"))

    def configure(self, ctx: StepContext) -> Parts:
        self.batch = random_batch(ctx.hyperparams, self.device)
        self.autocast = ctx.autocast
        self.bare = Parts.make(ctx.hyperparams, self.device)
        parts = Parts.make(ctx.hyperparams, self.device)
        ctx.register_optimizer(parts.optimizer, parts.scheduler)
        return parts

    def plain_step(self, number: int) -> None:
        loss = self.bare.backward(self.batch, self.autocast)
        torch.nn.utils.clip_grad_norm_(self.bare.model.parameters(), 1.0)
        self.bare.update()
        if number % CADENCE == CADENCE - 1:
            loss.item()

    def prepare_batch(self, raw_batch: Any, ctx: StepContext) -> Any:
        self.tick(ctx)
        return self.batch

    def train_step(self, prepared_batch: Any, state: Parts) -> StepResult:
        loss = state.backward(prepared_batch, self.autocast)
        state.update()
        return StepResult(metrics={"loss": loss}, weight=prepared_batch[0].numel())

    def measured(self, ctx: StepContext, ours: float, plain: float) -> None:
        self.note(ctx, hostcore=ours * 1e3, plain=plain * 1e3, ratio=ours / plain)


class Checkpoints(Measuring):
    """Saves a char_lm and its AdamW: by the host, then by each peer into an empty folder."""

    Hyperparams = Model

    def configure(self, ctx: StepContext) -> Parts:
        self.batch = random_batch(ctx.hyperparams, self.device)
        self.autocast = ctx.autocast
        self.parts = Parts.make(ctx.hyperparams, self.device)
        self.saved, self.is_measured = 0, False
        return self.parts

    def prepare_batch(self, raw_batch: Any, ctx: StepContext) -> Any:
        if self.saved:  # the host has gone on behind the checkpoint of the step before
            self._end(ctx)
        self.saved = 0
        return self.batch

    def train_step(self, prepared_batch: Any, state: Parts) -> StepResult:
        loss = state.backward(prepared_batch, self.autocast)
        state.update()
        self.at_rest()  # so that the stall has nothing of the step in it
        self.step += 1
        return StepResult(metrics={"loss": loss})

    def state_dict(self, state: Parts) -> dict[str, object]:
        if self.is_measured:
            return {}
        if self.step > 1:  # the first one is only encoded, to see that it can be
            self.clock, self.saved, self.before = Clock(), self.step, self._begin_memory()
        return {"model": state.model.state_dict(), "optimizer": state.optimizer.state_dict()}

    def _end(self, ctx: StepContext) -> None:
        self.clock.returns()
        memory = self._memory()
        record = Path(ctx.run_dir) / "checkpoints" / f"step-{self.saved:06d}.json"
        while not record.exists():
            time.sleep(0.005)
        if "first_stall" not in self.figures:
            self.note(ctx, first_stall=self.clock.took().blocked)
            return
        self._note("hostcore", memory, ctx)
        state = self.state_dict(self.parts)
        for name, save in (("torch_save", torch_save(state)), ("dcp", dcp_async_save(state))):
            folder = Path(ctx.run_dir).parent / f"{name}-{self.saved}"
            folder.mkdir()
            try:
                self._save(name, save, folder, ctx)
            except Exception as error:  # noqa: BLE001 - whatever a peer fails with, the others are measured
                self.notes.append(f"{name} failed: {error}")
            shutil.rmtree(folder)
        if self.is_over(ctx, len(self.figures["hostcore_stall"])):
            self.is_measured = True
            ctx.request_stop("measured")

    def _save(self, name: str, save: Save, folder: Path, ctx: StepContext) -> None:
        self.before, self.clock = self._begin_memory(), Clock()
        save(folder, self.clock)
        self._note(name, self._memory(), ctx)

    def _note(self, name: str, memory: dict[str, float], ctx: StepContext) -> None:
        took = self.clock.took()
        figures = {"stall": took.blocked, "done": took.done, **memory}
        self.note(ctx, **{f"{name}_{key}": value for key, value in figures.items()})

    def _begin_memory(self) -> int:
        if self.device.type != "cuda":
            return 0
        torch.cuda.reset_peak_memory_stats(self.device)
        return torch.cuda.memory_allocated(self.device)

    def _memory(self) -> dict[str, float]:
        if self.device.type != "cuda":
            return {}
        return {"memory": (torch.cuda.max_memory_allocated(self.device) - self.before) / 1e6}


@attrs.frozen(kw_only=True)
class Table(Measured):
    """A Parquet file, and what of it goes to the device."""

    file: str
    columns: list[str]
    batch_rows: int


class Feed(Turns):
    """Batches from Parquet to the device; in the windows beside products of matrices."""

    Hyperparams = Table

    def configure(self, ctx: StepContext) -> None:
        self.plain_batches = _batches(ctx.hyperparams)
        side = 4096 if self.device.type == "cuda" else 64
        self.matrix = torch.randn(side, side, device=self.device, dtype=torch.bfloat16)

    def plain_step(self, number: int) -> None:
        for tensor in next(self.plain_batches):
            pinned = tensor.pin_memory() if self.device.type == "cuda" else tensor
            pinned.to(self.device, non_blocking=True)
        self._work()

    def prepare_batch(self, raw_batch: Any, ctx: StepContext) -> Any:
        self.tick(ctx)
        return to_tensors(raw_batch, ctx.hyperparams.columns, device=self.device)

    def train_step(self, prepared_batch: Any) -> StepResult:
        self._work()
        return StepResult()

    def _work(self) -> None:
        if self.window is not None:
            for _ in range(5):
                self.matrix @ self.matrix

    def measured(self, ctx: StepContext, ours: float, plain: float) -> None:
        rows = ctx.hyperparams.batch_rows
        self.note(ctx, hostcore=rows / ours, plain=rows / plain, ratio=ours / plain)

    def traced(self, ctx: StepContext, ours: Any, plain: Any) -> None:
        super().traced(ctx, ours, plain)
        copies, kernels = [event for event in ours.events() if event.name.startswith("Memcpy HtoD")], kernels_of(ours)
        if not kernels:
            return
        spans = [[(one.time_range.start, one.time_range.end) for one in some] for some in (copies, kernels)]
        self.notes += [f"{count} x {name}" for name, count in Counter(event.name for event in copies).items()]
        self.note(ctx, pageable=sum("Pageable" in event.name for event in copies), overlap=overlap(*spans))


def _batches(wanted: Table) -> Iterator[list[torch.Tensor]]:
    """The plain loop's batches, epoch after epoch."""
    import pyarrow.parquet as pq

    while True:
        with pq.ParquetFile(wanted.file) as file:
            for batch in file.iter_batches(wanted.batch_rows, columns=wanted.columns):
                if batch.num_rows == wanted.batch_rows:
                    yield [torch.from_dlpack(column) for column in batch.columns]


class FirstStep(Measuring):
    """Notes when its first step was done on the device."""

    Hyperparams = Measured

    def configure(self) -> None:
        return None

    def prepare_batch(self) -> None:
        return None

    def train_step(self, ctx: StepContext) -> StepResult:
        torch.ones(1, device=self.device).item()
        self.note(ctx, at=time.time())
        return StepResult()
