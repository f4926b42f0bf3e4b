"""``--trace-hooks``: the lines of a trace, what values look like in it, and what a call does not notice."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest
import torch

from hostcore.plugins.hooks import Hooks
from hostcore.plugins.tracing import Trace, summary
from hostcore_hookspecs import StepResult


class Clock:
    """A thousandth of a second passes from one look to the next."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return Trace(clock=Clock())


@pytest.fixture
def lines(trace: Trace, tmp_path: Path) -> Callable[[], list[str]]:
    """The lines up to now, without the seconds and the head."""

    def read() -> list[str]:
        path = tmp_path / "hooks.log"
        if not path.exists():
            trace.open(path)
        _, *traced = path.read_text().splitlines()
        return [line[10:] for line in traced]

    return read


def test_a_call_that_raises_and_one_that_does_not_come_back_are_seen(
    lab: Any, trace: Trace, lines: Callable[[], list[str]], tmp_path: Path
) -> None:
    source = """
        def on_train_begin(self): raise KeyError("val/loss")
        def on_batch_end(self, result): result()
    """
    hooks = Hooks([trace.of(lab.load("callback", lab.component(source)))])
    trace.open(tmp_path / "hooks.log")
    with pytest.raises(KeyError):
        hooks.bind("on_train_begin")("run_state", "ctx")
    seen: list[str] = []
    hooks.bind("on_batch_end")(lambda: seen.extend(lines()), "run_state", "ctx")
    failed = "       0  on_train_begin  callback:mine-1 (dist-1 1.0)  2 ms raised KeyError: 'val/loss'"
    assert seen == [failed, "       0  on_batch_end  callback:mine-1 (dist-1 1.0)  (result=function)"]
    assert lines() == [failed, f"{seen[1]}  2 ms"]


def test_what_a_component_gets_and_gives_is_the_same(lab: Any, trace: Trace) -> None:
    methods = {"prepare_batch": "def prepare_batch(self, *, ctx=None, raw_batch): return (raw_batch, ctx)"}
    one = trace.of(lab.load("trainer", lab.trainer(**methods)))
    hooks, batch = Hooks([one]), object()
    assert hooks.bind("prepare_batch", of=one)(batch, "state", "ctx") == (batch, "ctx")
    assert hooks.bind("teardown", of=one) is None


class Untouchable(torch.Tensor):
    """A tensor that nobody may compute with."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        name = getattr(function, "__self__", function)
        assert getattr(name, "__name__", "") in ("shape", "dtype", "device"), f"{function} was called"
        return super().__torch_function__(function, types, arguments, named or {})


@attrs.frozen
class _State:
    model: Any
    step: int = 3


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "None"),
        (True, "True"),
        (0.1 + 0.2, "0.3"),
        ("short", "'short'"),
        ("x" * 100, f"'{'x' * 39}…'"),
        (torch.zeros(()), "Tensor[] float32 cpu"),
        (torch.empty(3, 4, dtype=torch.bfloat16, device="meta"), "Tensor[3, 4] bfloat16 meta"),
        (torch.zeros(2).as_subclass(Untouchable), "Untouchable[2] float32 cpu"),
        (torch.nn.Parameter(torch.zeros(2)), "Parameter[2] float32 cpu"),
        (torch.nn.Linear(2, 2), "Linear"),
        (np.zeros((3, 2), np.int16), "ndarray[3, 2] int16"),
        (pa.record_batch({"a": [1, 2, 3]}), "RecordBatch[3, 1]"),
        ((1, [2]), "(1, [2])"),
        (list(range(9)), "[0, 1, 2, 3, …]"),
        ({"a": torch.zeros(1), "b": {"c": {"d": {"e": 1}}}}, "{a: Tensor[1] float32 cpu, b: {c: {d: dict}}}"),
        (
            StepResult(metrics={"loss": torch.ones(1)}, weight=4),
            "StepResult(metrics={loss: Tensor[1] float32 cpu}, weight=4)",
        ),
        (_State(torch.nn.Linear(2, 2)), "_State(model=Linear, step=3)"),
        (ValueError("no"), "ValueError"),
        (object(), "object"),
    ],
)
def test_a_value_is_shown_in_a_few_words_and_no_tensor_is_read(value: object, shown: str) -> None:
    assert summary(value) == shown
