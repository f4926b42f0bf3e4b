"""A trainer with dropout and momentum, which may draw unseeded noise or fail at a step."""

from pathlib import Path

import attrs
import torch
from torch import nn

from hostcore_hookspecs import Capabilities, StepResult
from hostcore_toolkit import parallelize, to_device, to_tensors


@attrs.frozen(kw_only=True)
class Hyperparams:
    #: Draw noise that no seed decides about.
    unseeded: bool = False
    #: Raise at this step.
    fails_at: int = 0
    #: Change the loss of this step a little.
    bent_at: int = 0
    #: Flip a bit in an activation of step 6, so many times, on the last rank.
    flips: int = 0
    learning_rate: float = 0.01


class Flipping(nn.Tanh):
    """An activation on a machine that computes something else for as often as it is asked to."""

    flips = 0

    def forward(self, x):
        found = super().forward(x)
        if self.flips > 0:
            found = found.clone()
            found.detach().view(torch.int32)[0, 0] ^= 1 << self.flips
            self.flips -= 1
        return found


class Trainer:
    Hyperparams = Hyperparams
    CAPABILITIES = Capabilities(accumulate=True, distributed=True, repeatable=True)

    has_flipped = False

    def configure(self, ctx):
        model = nn.Sequential(nn.Linear(2, 8), Flipping(), nn.Dropout(0.2), nn.Linear(8, 1))
        if ctx.world_size > 1:
            model = parallelize(model, ctx)
        optimizer = torch.optim.SGD(model.parameters(), lr=ctx.hyperparams.learning_rate, momentum=0.5)
        return {"model": model, "optimizer": optimizer}

    def prepare_batch(self, raw_batch, state, ctx):
        return to_device(to_tensors(raw_batch), ctx)

    def train_step(self, prepared_batch, state, ctx):
        if ctx.hyperparams.fails_at == ctx.run_state.step + 1:
            raise ValueError("the step fails")
        if ctx.run_state.step + 1 == 6 and ctx.rank == ctx.world_size - 1 and not self.has_flipped:
            self.has_flipped = True
            flipping = next(one for one in state["model"].modules() if isinstance(one, Flipping))
            flipping.flips = ctx.hyperparams.flips
        batches = [prepared_batch] if isinstance(prepared_batch, dict) else prepared_batch
        total = 0.0
        for batch in batches:
            found = state["model"](torch.stack([batch["a"], batch["b"]], dim=1))[:, 0]
            loss = (found - batch["y"]).square().mean() / len(batches)
            if ctx.hyperparams.bent_at == ctx.run_state.step + 1:
                loss = loss * (1 + 1e-4)
            if ctx.hyperparams.unseeded:
                loss = loss * (1 + torch.rand((), generator=_from_the_clock()) * 1e-3)
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(state["model"].parameters(), 1.0)
        state["optimizer"].step()
        state["optimizer"].zero_grad()
        return StepResult(metrics={"loss": total})


class Noting:
    """A callback that goes on only with what it has noted when the run began."""

    def on_train_begin(self, run_state, ctx):
        note = Path(ctx.run_dir, "noting", "note")
        if run_state.step:
            note.read_text()
        else:
            note.parent.mkdir()
            note.write_text("begun")


class WithoutRows:
    def configure(self, ctx):
        return {"weight": torch.zeros(3)}

    def prepare_batch(self, raw_batch, state, ctx):
        return raw_batch

    def train_step(self, prepared_batch, state, ctx):
        state["weight"] += torch.rand(3)
        return StepResult(metrics={"loss": state["weight"].sum()})


class WithoutOptimizer(WithoutRows):
    CAPABILITIES = Capabilities(repeatable=True)


def _from_the_clock():
    generator = torch.Generator()
    generator.seed()
    return generator
