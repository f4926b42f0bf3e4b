"""A trainer of several ranks that draws random numbers, and writes a file of each rank's own into every checkpoint."""

import os
import time
from pathlib import Path
from typing import Any

import attrs
import torch

from hostcore_hookspecs import Capabilities, StepResult
from hostcore_toolkit import load_training_state, parallelize, training_state


class Trainer:
    """Fits noise that each rank draws for itself: only with its own random state does it go on as it was."""

    CAPABILITIES = Capabilities(distributed=True)

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        strategy: str = "ddp"
        #: Whether rank 1 leaves in a checkpoint what none can hold.
        links: bool = False

    def setup(self, ctx: Any) -> None:
        torch.set_num_threads(1)
        for name, path in ctx.model_handles.items():
            file = Path(path) if Path(path).is_file() else next(Path(path).iterdir())
            print(f"{name} is {file.read_text()!r}, in {path}")

    def configure(self, ctx: Any) -> dict[str, Any]:
        model = parallelize(torch.nn.Linear(4, 2), ctx, strategy=ctx.hyperparams.strategy)
        return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> Any:
        return raw_batch

    def train_step(self, prepared_batch: Any, state: dict[str, Any], ctx: Any) -> StepResult:
        step = ctx.run_state.step + 1
        if str(step) == os.environ.get("HOLD_AT"):
            Path(f"held.{ctx.rank}").write_text(str(os.getpid()))
            time.sleep(600)
        if step == 3 and ctx.rank == 1:
            print("rank 1 is at step 3")
            ctx.warn("rank 1 has something to say")
        state["optimizer"].zero_grad()
        loss = (state["model"](torch.randn(8, 4)) - torch.randn(8, 2)).square().mean()
        loss.backward()
        state["optimizer"].step()
        return StepResult(metrics={"loss": loss.detach()})

    def state_dict(self, state: dict[str, Any]) -> dict[str, Any]:
        return training_state(state["model"], state["optimizer"])

    def load_state_dict(self, state: dict[str, Any], payload: Any, ctx: Any) -> None:
        load_training_state(state["model"], state["optimizer"], payload)

    def save_checkpoint(self, state: Any, step: int, output_dir: str, final: bool, ctx: Any) -> None:
        folder = Path(output_dir) / "ranks"
        folder.mkdir(exist_ok=True)
        (folder / f"{ctx.rank}.txt").write_text(f"rank {ctx.rank} at step {step}")
        if ctx.hyperparams.links and ctx.rank == 1:
            (folder / "link").symlink_to("elsewhere")
        (Path(output_dir) / "same.txt").write_text(f"written by rank {ctx.rank}")

    def load_checkpoint(self, state: Any, checkpoint_dir: str, payload: Any, ctx: Any) -> None:
        found = [(Path(checkpoint_dir) / "ranks" / f"{rank}.txt").read_text() for rank in range(ctx.world_size)]
        print(f"rank {ctx.rank} has found {found} in {checkpoint_dir}")
