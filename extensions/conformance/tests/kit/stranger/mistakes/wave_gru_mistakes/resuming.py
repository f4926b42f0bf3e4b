"""What a checkpoint lacks, or takes back wrongly."""

import json
from pathlib import Path
from typing import Any

import attrs
import torch
from wave_gru.trainer import State, WaveTrainer

from hostcore_hookspecs import StepContext


class NoScheduler(WaveTrainer):
    """Stores no scheduler: the warm-up begins again."""

    def state_dict(self, state: State) -> dict[str, object]:
        payload = super().state_dict(state)
        del payload["scheduler"]
        return payload

    def load_state_dict(self, state: State, payload: dict[str, Any]) -> None:
        state.model.load_state_dict(payload["model"])
        state.average.load_state_dict(payload["average"])
        state.optimizer.load_state_dict(payload["optimizer"])


class NotStrictPart(WaveTrainer):
    """Leaves one layer out of the state, which strict=False hides."""

    def state_dict(self, state: State) -> dict[str, object]:
        payload = super().state_dict(state)
        payload["model"] = {name: value for name, value in state.model.state_dict().items() if "head" not in name}
        return payload

    def load_state_dict(self, state: State, payload: dict[str, Any]) -> None:
        state.model.load_state_dict(payload["model"], strict=False)
        state.average.load_state_dict(payload["average"])
        state.optimizer.load_state_dict(payload["optimizer"])
        state.scheduler.load_state_dict(payload["scheduler"])


class AbsolutePath(WaveTrainer):
    """Stores where its weights were written, and looks for them there."""

    def save_checkpoint(self, state: State, step: int, output_dir: str, ctx: StepContext) -> dict[str, object]:
        weights = Path(output_dir, "weights.pt")
        torch.save(state.model.state_dict(), weights)
        Path(output_dir, "where.json").write_text(json.dumps({"weights": str(weights)}))
        return super().save_checkpoint(state, step, output_dir, ctx)

    def load_checkpoint(self, state: State, checkpoint_dir: str) -> None:
        """Load the weights from where they were when they were written."""
        where = json.loads(Path(checkpoint_dir, "where.json").read_text())
        state.model.load_state_dict(torch.load(where["weights"], weights_only=True))


class PathInRun(WaveTrainer):
    """Keeps its classes in the run directory, and in a checkpoint only where they are."""

    def configure(self, ctx: StepContext) -> State:
        self.classes = Path(ctx.run_dir, "classes.json")
        self.classes.write_text('["sine", "square", "saw-tooth"]')
        return super().configure(ctx)

    def state_dict(self, state: State) -> dict[str, object]:
        return {**super().state_dict(state), "classes": str(self.classes)}

    def load_state_dict(self, state: State, payload: dict[str, Any]) -> None:
        self.classes = Path(payload["classes"])
        json.loads(self.classes.read_text())
        super().load_state_dict(state, payload)


class OneCycle(WaveTrainer):
    """Plans its learning rate to the end of the run, and not a step beyond."""

    def configure(self, ctx: StepContext) -> State:
        state = super().configure(ctx)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(state.optimizer, 0.01, total_steps=ctx.run_state.total_steps)
        return attrs.evolve(state, scheduler=scheduler)


class LockFile(WaveTrainer):
    """Guards its run with a file that only teardown removes."""

    def setup(self, ctx: StepContext) -> None:
        Path(ctx.run_dir, "wave.lock").touch(exist_ok=False)

    def teardown(self, ctx: StepContext) -> None:
        """Give the lock back."""
        Path(ctx.run_dir, "wave.lock").unlink()
