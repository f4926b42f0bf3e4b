"""Trainers without ``setup``, ``state_dict`` and ``load_state_dict``: the contract's defaults are used."""

import sys
from pathlib import Path
from typing import Any

import pytest

import hostcore
from hostcore.runs.result import RunResult
from hostcore_hookspecs import HostcoreError

TRAINER = """
import dataclasses, os, signal
import attrs, torch
from hostcore_hookspecs import StepResult, hookimpl

@attrs.frozen
class Frozen:
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    parts: dict
    shift: torch.Tensor
    count: int
    seen: list

@dataclasses.dataclass
class Data:
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    parts: dict
    shift: torch.Tensor
    count: int
    seen: list

class Trainer:
    made = dict
    def configure(self, ctx):
        model = torch.nn.Linear(1, 1)
        shift = torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.Adam([*model.parameters(), shift], lr=0.1)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        parts = {"scheduler": scheduler, "mean": {"weight": torch.zeros(1, 1)}}
        return self.made(model=model, optimizer=optimizer, parts=parts, shift=shift, count=0, seen=[])
    def prepare_batch(self, raw_batch): return raw_batch
    def train_step(self, state, ctx):
        if ctx.run_state.step == ctx.hyperparams.get("die_at") and not os.path.exists(ctx.run_dir + "/attempts/2.json"):
            while not os.path.exists(ctx.run_dir + "/checkpoints/step-000004.json"):
                pass  # it is written in the background
            os.kill(os.getpid(), signal.SIGKILL)
        get = state.__getitem__ if isinstance(state, dict) else state.__getattribute__
        model, mean = get("model"), get("parts")["mean"]["weight"]
        loss = (model(torch.rand(8, 1)) + get("shift") - len(get("seen")) - get("count")).pow(2).mean()
        get("optimizer").zero_grad()
        loss.backward()
        get("optimizer").step()
        get("parts")["scheduler"].step()
        mean += model.weight.detach() / 10
        get("seen").append(float(mean))
        if isinstance(state, dict):
            state["count"] += 1
        elif not isinstance(state, Frozen):
            state.count += 1
        return StepResult(metrics={"loss": loss.detach(), "mean": mean.clone()})

class OfAttrs(Trainer):
    made = Frozen

class OfData(Trainer):
    made = Data

class Seen:
    @hookimpl(wrapper=True)
    def setup(self, ctx):
        self.file = ctx.run_dir + "/seen"
        print("setup", file=open(self.file, "a"))
        return (yield)
    @hookimpl(wrapper=True)
    def state_dict(self, state):
        result = yield
        print("state_dict", *result, file=open(self.file, "a"))
        return result
    @hookimpl(wrapper=True)
    def load_state_dict(self, state, payload):
        print("load_state_dict", *payload, file=open(self.file, "a"))
        return (yield)
"""
KEYS = {"max_steps": 9, "metric_every": 1, "checkpoint_every": 4}
NAMES = "model optimizer parts shift count seen"


@pytest.fixture
def module(here: Path, request: pytest.FixtureRequest) -> str:
    """The test's own module of trainers, ``TRAINER``."""
    name = "".join(letter if letter.isalnum() else "_" for letter in request.node.name)
    Path(f"{name}.py").write_text(TRAINER)
    return name


def run(module: str, run_id: str, trainer: str, **keys: Any) -> RunResult:
    """Run or resume in this process, with the module as it is now."""
    sys.modules.pop(module, None)
    job = {"trainer": f"{module}:{trainer}", "run_id": f"{module}-{run_id}", "device": "cpu", "terminal": False}
    return hostcore.run({**job, **KEYS, **keys})


def checkpoint(run: Path, step: int = 9) -> dict[str, bytes]:
    """The files of a trainer's state."""
    folder = run / f"checkpoints/step-{step:06d}"
    return {name: (folder / name).read_bytes() for name in ("state.json", "state.safetensors")}


def seen_in(run: Path) -> list[str]:
    seen = (run / "seen").read_text().splitlines()
    assert set(seen) == {"setup", f"state_dict {NAMES}", f"load_state_dict {NAMES}"}
    return seen


def test_a_trainer_with_three_methods_is_killed_and_goes_on_bit_for_bit(project: Any) -> None:
    (project.path / "mine.py").write_text(TRAINER)
    killed = {"hyperparams": {"die_at": 6}, "max_restarts": 1}
    for run_id, more in {"whole": {}, "killed": killed}.items():
        keys = {"callbacks": ["mine:Seen"], **KEYS, **more}
        said = project.command("run", project.job(run_id=run_id, trainer="mine:Trainer", **keys))
        assert said.code == 0, said.err
    whole, run = project.run("whole"), project.run("killed")
    assert [event["step"] for event in run.events if event["event"] == "run_resumed"] == [4]
    for metric in ("train/loss", "mean"):
        assert run.metric(metric) == whole.metric(metric)
    assert checkpoint(run.path) == checkpoint(whole.path)
    assert project.command("verify", "killed").code == 0
    assert seen_in(run.path).count("setup") == 2


@pytest.mark.parametrize("name", ["OfAttrs", "OfData"])
def test_a_state_of_an_attrs_or_data_class_goes_on_bit_for_bit(module: str, here: Path, name: str) -> None:
    keys = {"callbacks": [f"{module}:Seen"]}
    for run_id, steps in (("whole", 9), ("longer", 4), ("longer", 9)):
        assert run(module, run_id, name, max_steps=steps, **keys).status == "succeeded"
    whole, longer = (here / f"{module}-{run_id}" for run_id in ("whole", "longer"))
    assert checkpoint(longer) == checkpoint(whole)
    assert seen_in(longer).count("setup") == 2


BY_HAND = """
class Trainer(Trainer):
    def setup(self): pass
    def configure(self, ctx):
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.AdamW(model.parameters())
        return {"model": model, "optimizer": optimizer}
    def train_step(self, state):
        loss = state["model"](torch.rand(8, 1)).pow(2).mean()
        state["optimizer"].zero_grad()
        loss.backward()
        state["optimizer"].step()
        return StepResult(metrics={"loss": loss.detach()})
"""
METHODS = """
    def state_dict(self, state):
        return {name: part.state_dict() for name, part in state.items()}
    def load_state_dict(self, state, payload):
        for name, part in state.items():
            part.load_state_dict(payload[name])
"""


def test_a_checkpoint_that_was_written_by_hand_is_the_same_and_goes_on(module: str, here: Path) -> None:
    Path(f"{module}.py").write_text(TRAINER + BY_HAND + METHODS)
    for run_id, steps in (("a", 4), ("b", 4), ("a", 9)):
        whole = run(module, run_id, "Trainer", max_steps=steps)
    Path(f"{module}.py").write_text(TRAINER + BY_HAND)
    goes_on = run(module, "b", "Trainer")
    assert (goes_on.status, goes_on.attempt, goes_on.metrics) == ("succeeded", 2, whole.metrics)
    assert checkpoint(here / f"{module}-b") == checkpoint(here / f"{module}-a")


def spoiled(module: str, state: str, *, first: str = "pass") -> RunResult:
    """The result of a run whose state is another."""
    more = f"""
class Spoiled(Trainer):
    def configure(self, ctx): return {state}
    def train_step(self, state, ctx):
        {first}
        return StepResult(metrics={{"loss": 0.0}})
"""
    Path(f"{module}.py").write_text(TRAINER + more)
    result = run(module, "a", "Spoiled", max_steps=300, checkpoint_every=100)
    assert (result.status, result.error.plugin, result.error.traceback) == ("failed", f"{module}:Spoiled", "")
    return result


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ('{"model": 1, "loss": torch.nn.functional.l1_loss}', "the state at /loss is of class builtins.function"),
        ('{"all": [torch.nn.Linear(1, 1)]}', "the state at /all/0 is of class torch.nn.modules.linear.Linear"),
        ('{"random": torch.Generator()}', "the state at /random is of class torch._C.Generator"),
        ("Frozen({1, 2}, 2, 3, 4, 5, 6)", "the state at /model is of class builtins.set"),
        ("torch.zeros(1)", "configure returned Tensor, not a dictionary"),
        ("None", "configure returned NoneType, not a dictionary"),
    ],
    ids=lambda value: value.split()[-1].rpartition(".")[2],
)
def test_a_state_that_the_default_cannot_store_ends_the_run_before_its_first_step(
    module: str, state: str, says: str
) -> None:
    result = spoiled(module, state)
    assert (result.step, result.exit_code) == (0, 1)
    assert result.error.message.startswith(says)
    assert f"{Path(f'{module}.py').resolve()}:" in result.error.message
    assert "state_dict and load_state_dict" in result.error.hint


def test_a_name_that_the_first_step_adds_to_the_state_ends_the_run(module: str) -> None:
    result = spoiled(module, '{"model": torch.nn.Linear(1, 1)}', first='state["best"] = 0.5')
    assert result.step == 1
    assert result.error.message.startswith("a step added 'best' to the state, or removed it")
    assert result.error.hint == "make all of it in configure; None will do"


def test_a_checkpoint_with_other_names_is_one_error(module: str) -> None:
    Path(f"{module}.py").write_text(f"{TRAINER}\nclass Spoiled(Trainer): ...\n")
    assert run(module, "a", "Spoiled", max_steps=4).status == "succeeded"
    assert spoiled(module, '{"model": torch.nn.Linear(1, 1), "ema": 1.0}').error.message == (
        "the state of the checkpoint lacks 'ema', and has 'count', 'optimizer', 'parts', 'seen', 'shift', which"
        " configure does not make"
    )


def test_one_of_the_two_methods_needs_the_other(module: str) -> None:
    half = "class Half(Trainer):\n    def state_dict(self): return {}\n"
    Path(f"{module}.py").write_text(f"{TRAINER}    pass\n{half}")
    with pytest.raises(HostcoreError, match="Half lacks the required method load_state_dict"):
        run(module, "a", "Half")
