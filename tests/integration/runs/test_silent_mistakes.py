"""Mistakes of a trainer that fail nothing: a warning each, in the log and at the end."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

import orjson
import pytest

import hostcore

LINE = """
import torch
from hostcore_hookspecs import StepResult


class Line:
    OPTIMIZER = staticmethod(lambda parameters: torch.optim.Adam(parameters, lr=0.01))
    {settings}

    def setup(self, ctx): ...

    def configure(self, ctx):
        model = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
        optimizer = self.OPTIMIZER(model.parameters())
        ctx.register_optimizer(optimizer)
        return {{"model": model, "optimizer": optimizer}}

    def prepare_batch(self, raw_batch):
        return torch.linspace(-1, 1, 8)[:, None]

    def train_step(self, prepared_batch, state, ctx):
        state["optimizer"].zero_grad()
        loss = (state["model"](prepared_batch) - 3 * prepared_batch).pow(2).mean()
        loss.backward()
        self.update(state, ctx)
        return StepResult(metrics={{"loss": loss.detach()}})

    def update(self, state, ctx):
        state["optimizer"].step()

    def state_dict(self, state):
        return {{name: one.state_dict() for name, one in state.items()}}

    def load_state_dict(self, state, payload):
        for name, one in payload.items():
            state[name].load_state_dict(one)
"""
PLAIN = LINE.format(settings="")
HYPERPARAMS = {"learning_rate": 0.1}


@pytest.fixture
def warned(here: Path, request: pytest.FixtureRequest) -> Callable[..., dict[str, str]]:
    """``warned(method, …, max_steps=12, …)``: run or resume a trainer with other methods; its warnings by code."""
    run_id = re.sub(r"\W+", "_", request.node.name).rstrip("_")

    def run(*methods: str, base: str = PLAIN, **keys: Any) -> dict[str, str]:
        body = "\n".join(methods) or "..."
        Path(f"{run_id}.py").write_text(f"{base}\n\nclass Trainer(Line):\n{indent(body, ' ' * 4)}\n")
        sys.modules.pop(run_id, None)  # of an attempt before
        job = {"trainer": f"{run_id}:Trainer", "run_id": run_id, "device": "cpu", "terminal": False, "max_steps": 12}
        found: list[Any] = []
        result = hostcore.run({**job, **keys}, on_event=found.append)
        assert result.status == "succeeded", result.error
        found = [one for one in found if one.name == "warning"]
        warnings = {one.payload.code: one.payload.message for one in found}
        assert len(warnings) == len(found)
        assert {*warnings.values()} <= {one.message for one in result.warnings}
        return warnings

    return run


def test_a_trainer_that_does_all_has_no_warning(warned) -> None:
    assert not warned(max_steps=110, checkpoint_every=50)


class TestHyperparamsThatAreNotRead:
    def test_are_a_warning(self, warned) -> None:
        message = warned(hyperparams=HYPERPARAMS)["hyperparams.unread"]
        assert "does not read ctx.hyperparams" in message
        assert "a class Hyperparams" in message

    @pytest.mark.parametrize(
        "reads",
        [
            "def configure(self, ctx):\n    print(ctx.hyperparams['learning_rate'])\n    return super().configure(ctx)",
            "def configure(self, ctx):\n    print(ctx.job.hyperparams)\n    return super().configure(ctx)",
            "def validate_step(self, prepared_batch, ctx):\n    print(ctx.hyperparams)",
            "def update(self, state, ctx):\n    from reader import rate\n    rate(ctx)\n    super().update(state, ctx)",
        ],
        ids=["in configure", "of the job", "in a method for later", "by another module"],
    )
    def test_are_none_when_they_are(self, warned, reads: str) -> None:
        Path("reader.py").write_text("def rate(ctx):\n    return ctx.hyperparams['learning_rate']\n")
        assert not warned(reads, hyperparams=HYPERPARAMS)

    def test_stay_a_plain_dictionary_that_a_checkpoint_can_hold(self, warned) -> None:
        keeps = "def configure(self, ctx):\n    self.given = ctx.hyperparams\n    return super().configure(ctx)"
        stores = "def state_dict(self, state):\n    return {**super().state_dict(state), 'given': self.given}"
        loads = "def load_state_dict(self, state, payload): assert payload.pop('given') == {'learning_rate': 0.1}"
        assert not warned(keeps, stores, loads, hyperparams=HYPERPARAMS)

    def test_are_no_warning_where_a_class_checks_them_or_there_are_none(self, warned) -> None:
        declares = LINE.format(settings="class Hyperparams:\n        learning_rate: float = 0.2").replace(
            "    class Hyper", "    @__import__('attrs').frozen(kw_only=True)\n    class Hyper"
        )
        assert not warned(base=declares, hyperparams=HYPERPARAMS)


NO_STEP = "def update(self, state, ctx): ..."
EVERY_FOURTH = "def update(self, state, ctx):\n    if ctx.run_state.step % 4 == 3: super().update(state, ctx)"
SLOW_ACCUMULATION = EVERY_FOURTH.replace("% 4 == 3", "== 40")
FROZEN = """def configure(self, ctx):
    state = super().configure(ctx)
    state["model"].requires_grad_(False)
    state["seen"] = torch.nn.Linear(1, 1)
    del state["optimizer"]
    ctx.optimizer = None
    return state

def train_step(self, state):
    with torch.no_grad():
        return StepResult(metrics={"loss": state["model"](torch.ones(2, 1)).sum()})"""
WARMUP = """def update(self, state, ctx):
    state["optimizer"].param_groups[0]["lr"] = 0.01 * (ctx.run_state.step > 0)
    super().update(state, ctx)"""
NOT_FINITE = """def update(self, state, ctx):
    for one in state["model"].parameters(): one.data.fill_(float("nan"))"""
RESTORES = """class BackToTheFirst:
    def on_batch_end(self, run_state, ctx):
        from hostcore_hookspecs import Best
        if run_state.step == 1:
            ctx.request_best(Best(metric="loss", value=0.0, step=1))
        if run_state.step == 20:
            ctx.request_restore(1, "it was better")"""
ROUNDED = """def configure(self, ctx):
    state = super().configure(ctx)
    state["model"].bfloat16()
    return state

def prepare_batch(self, raw_batch): return super().prepare_batch(raw_batch).bfloat16()

OPTIMIZER = staticmethod(lambda parameters: torch.optim.SGD(parameters, lr=1e-4))"""
LARGE = """def configure(self, ctx):
    state = super().configure(ctx)
    state["table"] = torch.nn.Embedding(100_000, 8)
    state["model"].requires_grad_(False)
    state["optimizer"] = torch.optim.SGD(state["table"].parameters(), lr=1.0)
    ctx.register_optimizer(state["optimizer"])
    return state

def train_step(self, state, ctx):
    state["optimizer"].zero_grad()
    loss = state["table"](torch.tensor([77_777])).sum()
    loss.backward()
    state["optimizer"].step()
    return StepResult(metrics={"loss": loss.detach()})"""


class TestParametersThatDoNotChange:
    @pytest.mark.parametrize(
        "methods",
        [
            [NO_STEP],
            [NO_STEP, "def configure(self, ctx):\n    self.held = super().configure(ctx)\n    return self.held"],
            [NO_STEP.replace("...", "state['optimizer'].zero_grad()")],
            ["OPTIMIZER = staticmethod(lambda parameters: torch.optim.Adam([*torch.nn.Linear(1, 1).parameters()]))"],
            ["OPTIMIZER = staticmethod(lambda parameters: torch.optim.SGD(parameters, lr=0.0))"],
        ],
        ids=["no step", "held by the trainer", "gradients cleared", "optimizer of another model", "no rate"],
    )
    def test_are_a_warning_at_the_end_of_a_short_run(self, warned, methods: Sequence[str]) -> None:
        message = warned(*methods)["parameters.unchanged"]
        assert "no parameter of its model changes" in message
        assert "call optimizer.step() in train_step" in message

    def test_are_a_warning_at_a_checkpoint_of_a_long_run(self, warned, here: Path) -> None:
        warned(NO_STEP, max_steps=130, checkpoint_every=60)
        log = here / "test_are_a_warning_at_a_checkpoint_of_a_long_run/logs/events.jsonl"
        (warning,) = [one for one in map(orjson.loads, log.read_bytes().splitlines()) if one["event"] == "warning"]
        assert (warning["code"], warning["step"]) == ("parameters.unchanged", 120)

    @pytest.mark.parametrize(
        ("methods", "keys"),
        [
            ([NO_STEP], {"max_steps": 3}),
            ([EVERY_FOURTH], {}),
            ([SLOW_ACCUMULATION], {"max_steps": 50, "checkpoint_every": 10}),
            ([FROZEN], {}),
            ([WARMUP], {}),
            ([NOT_FINITE], {}),
            ([ROUNDED], {"max_steps": 40}),
            ([LARGE], {"max_steps": 20}),
        ],
        ids=["three steps", "every fourth", "accumulates", "frozen", "warmup", "not finite", "rounded", "one row"],
    )
    def test_are_none_where_there_is_a_reason(self, warned, methods: Sequence[str], keys: Mapping[str, int]) -> None:
        assert not warned(*methods, **keys)

    def test_are_none_when_a_callback_goes_back_to_the_first_step(self, warned) -> None:
        Path("going_back.py").write_text(RESTORES)
        assert not warned(max_steps=20, keep_checkpoints=3, callbacks=[{"use": "going_back:BackToTheFirst"}])

    def test_are_looked_for_in_a_resumed_run(self, warned) -> None:
        assert not warned()
        assert not warned(max_steps=14)
        assert "parameters.unchanged" in warned(NO_STEP, max_steps=30)

    def test_of_a_trainer_without_torch_are_none(self, here: Path) -> None:
        job = {"trainer": "small_trainer:Trainer", "device": "cpu", "terminal": False, "max_steps": 20}
        assert hostcore.run(job).warnings == ()


MODEL_ALONE = "def state_dict(self, state):\n    return {'model': state['model'].state_dict()}"
LOADS_MODEL = "def load_state_dict(self, state, payload): state['model'].load_state_dict(payload['model'])"
LATE_OPTIMIZER = [MODEL_ALONE, LOADS_MODEL, EVERY_FOURTH]
UNREGISTERED = (
    "def configure(self, ctx):\n    state = super().configure(ctx)\n    ctx.optimizer = None\n    return state"
)
STATELESS = "OPTIMIZER = staticmethod(lambda parameters: torch.optim.SGD(parameters, lr=0.1))"
BY_HAND = "def state_dict(self, state):\n    return {'model': state['model'].state_dict(), 'rest': %s}"
OWN = "[value for one in state['optimizer'].state.values() for name, value in one.items()]"
COPIES = "[{name: value.clone() for name, value in one.items()} for one in state['optimizer'].state.values()]"
PICKLED = "(lambda io: (torch.save(state['optimizer'].state_dict(), io), io.getvalue())[1])(__import__('io').BytesIO())"
OWN_FILES = """def save_checkpoint(self, state, output_dir):
    torch.save(state["optimizer"].state_dict(), output_dir + "/optimizer.pt")

def load_checkpoint(self, state, checkpoint_dir):
    state["optimizer"].load_state_dict(torch.load(checkpoint_dir + "/optimizer.pt"))"""


class TestAnOptimizerThatStateDictLacks:
    @pytest.mark.parametrize(
        "methods",
        [[MODEL_ALONE, LOADS_MODEL], LATE_OPTIMIZER, [MODEL_ALONE, LOADS_MODEL, UNREGISTERED]],
        ids=["registered", "stepped later", "in the state"],
    )
    def test_is_a_warning(self, warned, methods: Sequence[str]) -> None:
        message = warned(*methods)["optimizer.not_saved"]
        assert "trains by Adam, whose state is not in what state_dict returns" in message
        assert "return optimizer.state_dict()" in message

    @pytest.mark.parametrize(
        "methods",
        [
            [MODEL_ALONE, LOADS_MODEL, STATELESS],
            [BY_HAND % OWN, LOADS_MODEL],
            [BY_HAND % COPIES, LOADS_MODEL],
            [BY_HAND % PICKLED, LOADS_MODEL],
            [MODEL_ALONE, LOADS_MODEL, OWN_FILES],
        ],
        ids=["without a state", "tensors by hand", "copies by name", "as bytes", "in own files"],
    )
    def test_is_none_where_nothing_is_lost(self, warned, methods: Sequence[str]) -> None:
        assert not warned(*methods)


def test_are_at_the_end_of_the_run_and_in_its_status(project: Any) -> None:
    (project.path / "both.py").write_text(f"{PLAIN}\n\nclass Trainer(Line):\n    {NO_STEP}\n")
    job = project.job("both.json", run_id="both", trainer="both:Trainer", max_steps=12, hyperparams=HYPERPARAMS)
    ran, status = project.command("run", job), project.command("status", "both")
    warnings = orjson.loads(project.command("status", "both", "--json").out)["warnings"]
    assert [one["code"] for one in warnings] == ["hyperparams.unread", "parameters.unchanged"]
    for text in (ran.out, status.out):
        assert text.count("does not read ctx.hyperparams") == 1
        assert text.count("no parameter of its model changes") == 1


@pytest.mark.parametrize("reads", ["...", "print(open(ctx.model_handles['weights']).name)"])
def test_weights_that_are_not_read_are_a_warning(warned, reads: str) -> None:
    Path("weights.bin").write_bytes(b"")
    assert ("weights.unread" in warned(f"def setup(self, ctx): {reads}", weights="weights.bin")) == (reads == "...")
