"""Runs whose trainer places its weights into a file of its own, read by a program that knows nothing of hostcore."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

TRAINER = """
import json
import os
import torch
from hostcore_hookspecs import Capabilities, StepResult, TensorFile

class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 4)
        self.head = torch.nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight

class Trainer:
    CAPABILITIES = Capabilities(distributed=True)
    def setup(self): pass
    def configure(self, ctx):
        model = Tied()
        return {"model": model, "optimizer": torch.optim.AdamW(model.parameters())}
    def prepare_batch(self, raw_batch): return raw_batch
    def train_step(self, state, ctx):
        model, optimizer = state["model"], state["optimizer"]
        again = os.path.exists(ctx.run_dir + "/attempts/2.json")
        if ctx.run_state.step == ctx.hyperparams.get("die_at") and not again:
            while not os.path.exists(ctx.run_dir + "/checkpoints/step-000004.json"):
                pass  # it is written in the background
            os._exit(1)
        loss = model.head(model.embedding(torch.randint(0, 5, (8,)))).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return StepResult(metrics={"loss": loss})
    def state_dict(self, state):
        weights = TensorFile("model.safetensors", state["model"].state_dict(), {"writer": "hostcore"})
        return {"optimizer": state["optimizer"].state_dict(), "model": weights}
    def load_state_dict(self, state, payload):
        for name, part in state.items():
            part.load_state_dict(payload[name])

class Pretrained(Trainer):
    def save_checkpoint(self, state, output_dir):
        with open(os.path.join(output_dir, "config.json"), "w") as file:
            json.dump({"vocabulary": 5}, file)

class Averaged:
    def __init__(self): self.weights = {"mean": torch.zeros(3)}
    def on_batch_end(self): self.weights["mean"] += 1
    def callback_state(self): return {"weights": TensorFile("averaged.safetensors", self.weights)}
    def load_callback_state(self, payload): self.weights = payload["weights"]

class Twice(Trainer):
    def save_checkpoint(self, state, output_dir):
        open(os.path.join(output_dir, "model.safetensors"), "w").close()
"""

KEYS = {"max_steps": 9, "checkpoint_every": 4, "metric_every": 1, "keep_checkpoints": 9}


@pytest.fixture(scope="module")
def placed(project: Any) -> Any:
    """The project with the trainers above."""
    (project.path / "placed.py").write_text(TRAINER)
    return project


def done(said: Any) -> None:
    assert said.code == 0, said.err


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    """What the safetensors library reads of a checkpoint's folder, without hostcore."""
    return load_file(folder / "trainer/model.safetensors")


def losses(run: Any) -> dict[int, float]:
    return {event["step"]: event["metrics"]["train/loss"] for event in run.events if event["event"] == "metrics"}


def test_the_weights_are_in_their_file_and_a_run_that_was_killed_goes_on_from_it(placed: Any) -> None:
    for run_id, keys in (("whole", {}), ("killed", {"max_restarts": 1, "hyperparams": {"die_at": 6}})):
        keys["callbacks"] = ["placed:Averaged"]
        job = placed.job(f"{run_id}.json", trainer="placed:Pretrained", run_id=run_id, **KEYS, **keys)
        done(placed.command("run", job))
    whole, killed = placed.run("whole"), placed.run("killed")
    assert killed.result["attempt"] == 2
    assert losses(killed) == losses(whole)
    for step in (4, 8, 9):
        folders = [run.path / f"checkpoints/step-{step:06d}" for run in (whole, killed)]
        first, second = map(weights_of, folders)
        assert list(first) == ["embedding.weight"]  # tied, and stored once
        assert torch.equal(first["embedding.weight"], second["embedding.weight"])
        assert (folders[0] / "trainer/config.json").is_file()
        assert load_file(folders[1] / "trainer/averaged.safetensors")["mean"].tolist() == [step] * 3
        size = sum(path.stat().st_size for path in folders[0].glob("*.safetensors") if path.name == "state.safetensors")
        assert size < 3 * 5 * 4 * 4 + 2_000  # the optimizer's two moments, and no weights
    done(placed.command("verify", "killed"))


def test_two_ranks_store_it_once(placed: Any) -> None:
    job = placed.job(trainer="placed:Pretrained", run_id="ranks", devices=["cpu", "cpu"], **{**KEYS, "device": "auto"})
    done(placed.command("run", job))
    folder = placed.run("ranks").path / "checkpoints/step-000009"
    record = json.loads(folder.with_suffix(".json").read_text())
    assert [file["path"] for file in record["files"] if "trainer" in file["path"]] == [
        "trainer/config.json",
        "trainer/model.safetensors",
    ]


def test_a_file_that_save_checkpoint_writes_too_fails_the_run_with_one_error(
    run_here: Callable, look: Callable
) -> None:
    Path("placed_twice.py").write_text(TRAINER)
    said = run_here("twice", trainer="placed_twice:Twice", **KEYS)
    assert (said.code, "Traceback" in said.err) == (1, False)
    assert "model.safetensors is there already, where a TensorFile of that name is to be written" in said.err
    assert "save_checkpoint has written it" in said.err
    assert look("status", "twice", "--json").json["checkpoints"] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('state["model"].state_dict(), {', '{"a": 3}, {'), "the state at /model/a is of class builtins.int"),
        (('"model.safetensors"', '"../model.safetensors"'), "'../model.safetensors' is no name of a tensor file"),
    ],
    ids=["tensors", "name"],
)
def test_what_cannot_be_placed_fails_the_run_after_its_first_step(
    run_here: Callable, look: Callable, change: tuple[str, str], message: str
) -> None:
    module = f"misplaced_{len(change[1])}"
    Path(f"{module}.py").write_text(TRAINER.replace(*change))
    said = run_here(module, trainer=f"{module}:Trainer", **KEYS)
    assert said.code == 1
    assert message in said.err
    assert "state_dict" in said.err
    assert look("status", module, "--json").json["step"] == 1
