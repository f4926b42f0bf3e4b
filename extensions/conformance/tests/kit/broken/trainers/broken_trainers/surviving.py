"""Trainers that lose something: in their state, in their checkpoints, in a resume, or when their process is killed."""

import functools
import os
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from reference_plugins.breaking import after, before, broken, instead
from reference_plugins.trainer import AVERAGE_FILE, Batch, ReferenceTrainer, State

from hostcore_hookspecs import StepContext, StepResult


def _load(state: State, payload: Any, *parts: str) -> None:
    for part in parts:
        getattr(state, part).load_state_dict(payload[part])


def _load_average(state: State, file: Path, *, weights_only: bool = True) -> None:
    for name, value in torch.load(file, weights_only=weights_only).items():
        state.average[name].copy_(value)


broken(
    globals(),
    ReferenceTrainer,
    # --- what state_dict gives, and what load_state_dict takes
    # Puts an object into the state that only pickle could bring back.
    StoresAnObject=after("state_dict", lambda result: {**result, "counts": defaultdict(int, steps=3)}),
    # Returns the model itself in place of a dictionary.
    StoresTheModel=instead("state_dict", lambda state: state.model),
    # Draws from torch's generator at every checkpoint.
    SamplesInStateDict=before("state_dict", lambda: torch.rand(3)),
    # Stores the optimizer, and does not load it.
    ForgetsToLoadTheOptimizer=instead(
        "load_state_dict", lambda state, payload: _load(state, payload, "model", "scheduler")
    ),
    # Builds layers anew before it loads them.
    InitialisesWhenLoading=before("load_state_dict", lambda state: torch.nn.init.normal_(state.model[0].weight)),
    # --- what it writes into checkpoints
    # Keeps a tensor with the checkpoint; returns a path in place of a mapping.
    ReturnsATensor=after("save_checkpoint", lambda result, state: {**result, "norm": state.model[0].weight.norm()}),
    ReturnsAPath=after("save_checkpoint", lambda output_dir: Path(output_dir, AVERAGE_FILE)),
    # Writes a file of its own, always the same, into the run directory; into the working directory.
    SavesTheLatestBeside=before(
        "save_checkpoint", lambda state, ctx: torch.save(state.average, Path(ctx.run_dir, "latest.pt"))
    ),
    SavesWhereItWorks=before("save_checkpoint", lambda: Path("checkpoint.txt").write_text("the latest")),
    # Loads whatever a pickle says.
    Pickles=instead(
        "load_checkpoint",
        lambda state, checkpoint_dir: _load_average(state, Path(checkpoint_dir, AVERAGE_FILE), weights_only=False),
    ),
    # Writes the averaged weights for others, and does not read them itself.
    ForgetsTheAverage=instead("load_checkpoint", lambda: None),
)


class StoresNothing(ReferenceTrainer):
    """Forgets that there is a state."""

    def state_dict(self, state: State) -> dict[str, object]:
        return {}

    def load_state_dict(self, state: State, payload: dict[str, Any]) -> None:
        pass


class LoadsLoosely(ReferenceTrainer):
    """Stores the weights under other names, as a wrapper gives them, and loads them with strict=False."""

    def state_dict(self, state: State) -> dict[str, object]:
        wrapped = {f"module.{name}": value for name, value in state.model.state_dict().items()}
        return {**super().state_dict(state), "model": wrapped}

    def load_state_dict(self, state: State, payload: dict[str, Any]) -> None:
        state.model.load_state_dict(payload["model"], strict=False)
        _load(state, payload, "optimizer", "scheduler")


class LoadsIntoACopy(ReferenceTrainer):
    """Loads into tensors that are not those of the model."""

    def load_state_dict(self, state: State, payload: dict[str, Any]) -> None:
        weights = {name: value.clone() for name, value in state.model.state_dict().items()}
        weights.update(payload["model"])
        _load(state, payload, "optimizer", "scheduler")


class PopsFromThePayload(ReferenceTrainer):
    """Takes its part out of what others are to read."""

    def load_state_dict(self, state: State, payload: dict[str, Any]) -> None:
        state.scheduler.load_state_dict(payload.pop("scheduler"))
        _load(state, payload, "model", "optimizer")


class CountsCheckpoints(ReferenceTrainer):
    """Changes with every state_dict."""

    _checkpoints = 0

    def state_dict(self, state: State) -> dict[str, object]:
        self._checkpoints += 1
        return {**super().state_dict(state), "checkpoints": self._checkpoints}


class StoresHalf(ReferenceTrainer):
    """Saves space: the weights come back rounded."""

    def state_dict(self, state: State) -> dict[str, object]:
        return {**super().state_dict(state), "model": {k: v.half() for k, v in state.model.state_dict().items()}}

    def load_state_dict(self, state: State, payload: dict[str, Any]) -> None:
        super().load_state_dict(state, payload)
        with torch.no_grad():
            for value in state.model.parameters():
                value.mul_(1.01)


class LoadsOnce(ReferenceTrainer):
    """Thinks that there is nothing to load a second time."""

    _loaded = False

    def load_state_dict(self, state: State, payload: dict[str, Any]) -> None:
        if not self._loaded:
            super().load_state_dict(state, payload)
            self._loaded = True


# --- what it writes into checkpoints --------------------------------------------------------------------------------


class WritesOn(ReferenceTrainer):
    """Keeps a file of the checkpoint open, and goes on writing into it."""

    _log: Any = None

    def train_step(self, prepared_batch: Any, state: State, ctx: StepContext) -> StepResult:
        if self._log is not None:
            self._log.write("one more step\n")
            self._log.flush()
        return super().train_step(prepared_batch, state, ctx)

    def save_checkpoint(self, state: State, output_dir: str, ctx: StepContext) -> Mapping[str, object]:
        if self._log is None:
            self._log = Path(output_dir, "log.txt").open("w")  # noqa: SIM115 - that is the mistake
        return super().save_checkpoint(state, output_dir, ctx)


class RemembersItsFolder(ReferenceTrainer):
    """Keeps the averaged weights in the run directory, and in the state where they are."""

    def save_checkpoint(self, state: State, step: int, output_dir: str, ctx: StepContext) -> Mapping[str, object]:
        torch.save(state.average, Path(ctx.run_dir, f"average-{step}.pt"))
        Path(output_dir, "where.txt").write_text(str(Path(ctx.run_dir, f"average-{step}.pt")))
        return {}

    def load_checkpoint(self, state: State, checkpoint_dir: str, ctx: StepContext) -> None:
        _load_average(state, Path(Path(checkpoint_dir, "where.txt").read_text()))


class ShipsTheWeightsAlone(ReferenceTrainer):
    """Leaves out of the final checkpoint what a resume needs."""

    def save_checkpoint(self, state: State, output_dir: str, final: bool, ctx: StepContext) -> Mapping[str, object]:
        if final:
            torch.save(state.model.state_dict(), Path(output_dir, "model.pt"))
            return {}
        return super().save_checkpoint(state, output_dir, ctx)


# --- what a resume lacks --------------------------------------------------------------------------------------------


class ForgetsTheOptimizer(ReferenceTrainer):
    """Neither stores the optimizer nor loads it."""

    def state_dict(self, state: State) -> dict[str, object]:
        return {"model": state.model.state_dict(), "scheduler": state.scheduler.state_dict()}

    def load_state_dict(self, state: State, payload: dict[str, Any]) -> None:
        _load(state, payload, "model", "scheduler")


class ForgetsTheScheduler(ReferenceTrainer):
    """Neither stores the scheduler nor loads it: it starts to decay the learning rate anew."""

    def state_dict(self, state: State) -> dict[str, object]:
        return {"model": state.model.state_dict(), "moments": state.optimizer.state_dict()["state"]}

    def load_state_dict(self, state: State, payload: dict[str, Any]) -> None:
        groups = state.optimizer.state_dict()["param_groups"]
        state.optimizer.load_state_dict({"state": payload["moments"], "param_groups": groups})
        _load(state, payload, "model")


class CountsOnSelf(ReferenceTrainer):
    """Weights its losses with a counter that it keeps to itself."""

    def __init__(self) -> None:
        self._steps = 0

    def train_step(self, prepared_batch: Any, state: State, ctx: StepContext) -> StepResult:
        self._steps += 1
        state.optimizer.param_groups[0]["lr"] = 0.01 / self._steps
        return super().train_step(prepared_batch, state, ctx)


class OwnGenerator(ReferenceTrainer):
    """Draws noise from a generator of its own, made with the job's seed in setup."""

    def setup(self, ctx: StepContext) -> None:
        super().setup(ctx)
        self._rng = np.random.default_rng(ctx.job.seed)

    def prepare_batch(self, raw_batch: Any, ctx: StepContext) -> Batch:
        batch = super().prepare_batch(raw_batch, ctx)
        batch.numbers.add_(float(self._rng.normal(scale=0.01)))
        return batch


class Iterates(ReferenceTrainer):
    """Takes hard examples from an iterator over a shuffled cache."""

    def setup(self, ctx: StepContext) -> None:
        super().setup(ctx)
        order = random.Random(ctx.job.seed).sample(range(64), 64)
        self._order: Iterator[int] = iter(order)

    def prepare_batch(self, raw_batch: Any, ctx: StepContext) -> Batch:
        batch = super().prepare_batch(raw_batch, ctx)
        batch.product.mul_(1 + next(self._order) / 640)
        return batch


_momentum: dict[str, torch.Tensor] = {}


class KeepsInAModule(ReferenceTrainer):
    """Keeps moments of its own in a variable of the module, from the first step of the process on."""

    def configure(self, ctx: StepContext) -> State:
        if ctx.run_state.step == 0 and not list(Path(ctx.run_dir, "checkpoints").glob("step-*.json")):
            _momentum.clear()
        return super().configure(ctx)

    def train_step(self, prepared_batch: Any, state: State, ctx: StepContext) -> StepResult:
        result = super().train_step(prepared_batch, state, ctx)
        with torch.no_grad():
            for name, value in state.model.named_parameters():
                moment = _momentum.setdefault(name, torch.zeros_like(value))
                moment.mul_(0.9).add_(value.grad)
                value.sub_(moment, alpha=0.01)
        return result


@functools.cache
def _numbered(words: tuple[str, ...]) -> Mapping[str, int]:
    return {word: number for number, word in enumerate(set(words))}


class NumbersASet(ReferenceTrainer):
    """Numbers its columns in the order of a set, which is another in every process."""

    def prepare_batch(self, raw_batch: Any, ctx: StepContext) -> Batch:
        batch = super().prepare_batch(raw_batch, ctx)
        numbers = _numbered(tuple(f"word-{number}" for number in range(50)))
        batch.numbers.add_(torch.tensor([numbers["word-1"], numbers["word-2"]]) / 100)
        return batch


# --- what stays behind when the process is killed -------------------------------------------------------------------


class TrustsItsCache(ReferenceTrainer):
    """Computes statistics once, and takes the file for whole because it is there."""

    def setup(self, ctx: StepContext) -> None:
        super().setup(ctx)
        cache = Path(ctx.run_dir, "statistics.txt")
        if not cache.exists():
            cache.write_text("0.5")
        self._mean = float(cache.read_text())


class LocksTheRun(ReferenceTrainer):
    """Makes a lock file that only teardown removes."""

    def configure(self, ctx: StepContext) -> State:
        self._lock = Path(ctx.run_dir, "trainer.lock")
        os.close(os.open(self._lock, os.O_CREAT | os.O_EXCL))
        return super().configure(ctx)

    def teardown(self, state: State) -> None:
        self._lock.unlink()
        super().teardown(state)


class CountsInAFile(ReferenceTrainer):
    """Keeps a counter in a file of the run directory, which runs ahead of the checkpoints."""

    def configure(self, ctx: StepContext) -> State:
        self._file = Path(ctx.run_dir, "steps.txt")
        return super().configure(ctx)

    def train_step(self, prepared_batch: Any, state: State, ctx: StepContext) -> StepResult:
        done = int(self._file.read_text()) if self._file.exists() else 0
        state.optimizer.param_groups[0]["lr"] = 0.01 / (1 + done)
        result = super().train_step(prepared_batch, state, ctx)
        self._file.write_text(str(done + 1))
        return result
