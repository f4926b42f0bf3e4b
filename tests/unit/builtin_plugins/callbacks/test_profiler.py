import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hostcore_builtin_plugins.callbacks.profiler import Profiler
from hostcore_hookspecs import InvalidSettings

Course = Callable[..., Any]


@pytest.fixture
def begun(course: Course, tmp_path: Path) -> Callable[..., tuple[Profiler, Any]]:
    """``begun(at=100, start_step=2)``: a profiler in an attempt that begins with so many finished steps."""

    def make(at: int = 0, rank: int = 0, **settings: Any) -> tuple[Profiler, Any]:
        run = course(run_dir=str(tmp_path), rank=rank)
        run.ctx.device = torch.device("cpu")
        callback = Profiler(settings=Profiler.Settings(**settings))
        callback.on_train_begin(run_state=run.to_step(at), ctx=run.ctx)
        return callback, run

    return make


def take_steps(callback: Profiler, run: Any, count: int) -> None:
    """Every step computes as many cosines as its number says."""
    for step in range(run.run_state.step + 1, run.run_state.step + count + 1):
        x = torch.ones(2, 3)
        for _ in range(step):
            x = x.cos()
        callback.on_batch_end(run_state=run.to_step(step))


def written(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.glob("profiler/*"))


def cosines(path: Path) -> int:
    with gzip.open(path, "rt") as file:
        return sum(event.get("name") == "aten::cos" for event in json.load(file)["traceEvents"])


@pytest.mark.parametrize(
    ("at", "rank", "settings", "name"),
    [
        (0, 0, {"start_step": 3, "steps": 2, "warmup": 2}, "rank-0.step-4-5"),
        (0, 0, {"start_step": 0, "steps": 1, "warmup": 0}, "rank-0.step-1-1"),
        (100, 3, {"start_step": 2, "steps": 1, "warmup": 1}, "rank-3.step-103-103"),
    ],
    ids=["after warming up", "the first step of all", "of a resumed run"],
)
def test_the_trace_has_exactly_the_steps_that_were_asked_for_and_names_those_of_the_run(
    begun: Any, tmp_path: Path, at: int, rank: int, settings: dict[str, int], name: str
) -> None:
    callback, run = begun(at=at, rank=rank, **settings)
    take_steps(callback, run, 10)
    assert written(tmp_path) == [f"{name}.json.gz", f"{name}.txt"]
    first, last = (int(step) for step in name.split("-")[-2:])
    assert cosines(tmp_path / f"profiler/{name}.json.gz") == sum(range(first, last + 1))
    assert "aten::cos" in (tmp_path / f"profiler/{name}.txt").read_text()


@pytest.mark.parametrize(("steps", "name"), [(3, None), (4, None), (5, "step-5-5"), (6, "step-5-6")])
def test_a_run_that_ends_before_the_last_traced_step_has_a_trace_of_those_it_made(
    begun: Any, tmp_path: Path, steps: int, name: str | None
) -> None:
    callback, run = begun(start_step=4, steps=5, warmup=2)
    take_steps(callback, run, steps)
    callback.on_train_end(run_state=run.run_state)
    assert written(tmp_path) == ([f"rank-0.{name}.json.gz", f"rank-0.{name}.txt"] if name else [])
    before = written(tmp_path)
    take_steps(callback, run, 3)  # nothing is traced any more
    assert written(tmp_path) == before


def test_a_profiler_that_cannot_start_is_a_warning(
    begun: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(**_: Any) -> None:
        raise RuntimeError("CUPTI is not there")

    monkeypatch.setattr(torch.profiler, "profile", broken)
    callback, run = begun(start_step=0, steps=1, warmup=0)
    take_steps(callback, run, 3)
    callback.on_train_end(run_state=run.run_state)
    assert len(caplog.messages) == 1
    assert "the run goes on: CUPTI is not there" in caplog.text
    assert written(tmp_path) == []


def test_a_trace_that_cannot_be_written_is_a_warning(
    begun: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "profiler").write_text("in the way")
    callback, run = begun(start_step=0, steps=1, warmup=0)
    take_steps(callback, run, 2)
    assert "profiler: writing the trace failed" in caplog.text


def test_more_warming_up_than_there_are_steps_before_is_refused() -> None:
    with pytest.raises(InvalidSettings) as caught:
        Profiler(settings=Profiler.Settings(start_step=1, warmup=2))
    assert caught.value.pointer == "/warmup"
