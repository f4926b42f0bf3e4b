"""Runs whose batches other processes transform ahead of the loop."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checkout import HOST, ROOT

import hostcore
from hostcore.errors import Errors

HERE = Path(__file__).parent
GUIDE = ROOT / "docs/how-to/transform-batches.md"
DATA = {"source": "mock", "num_rows": 50, "num_shards": 9, "batch_size": 8, "shuffle": True, "shuffle_window": 20}

#: Has no ``if __name__ == "__main__"``: whoever imported it again would start another run.
SCRIPT = """
print("imported", flush=True)
import hostcore
result = hostcore.run({job!r})
print(result.status, result.step, flush=True)
"""


def job(run_id: str, *, workers: int = 0, trainer: str = "Augments", **keys: Any) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "trainer": f"transform_trainer:{trainer}",
        "dataset": {**DATA, "workers": workers},
        "epochs": 2,
        "metric_every": 1,
        "terminal": False,
        "device": "cpu",
        **keys,
    }


def transforming() -> dict[int, int]:
    """The living processes that transform, with their parents."""
    table = subprocess.run(
        ["ps", "-axwwo", "pid=,ppid=,stat=,args="], capture_output=True, text=True, check=True
    ).stdout
    lines = [line.split(None, 3) for line in table.splitlines()]
    name = "hostcore.worker.feed.transform_process"
    return {int(pid): int(parent) for pid, parent, state, args in lines if name in args and "Z" not in state}


@pytest.fixture(scope="module")
def trainer(here: Path) -> Iterator[ModuleType]:
    """The module ``transform_trainer``, as jobs of this process import it."""
    import transform_trainer

    yield transform_trainer
    del sys.modules["transform_trainer"]


@pytest.fixture(scope="module")
def train(trainer: ModuleType) -> Callable[..., tuple[Mapping[int, float], bytes]]:
    """``train({0: 2, 3: 1})``: a run with two processes that is preempted at step 3 and goes on with one."""
    numbers = itertools.count()

    def start(plan: Mapping[int, int]) -> tuple[Mapping[int, float], bytes]:
        run_id = f"exact-{next(numbers)}"
        errors: dict[int, float] = {}

        def note(event: Any) -> None:
            if event.name == "metrics":
                errors[event.step] = event.payload.metrics["error"]

        stops = list(plan)[1:]
        faults = [f"sigterm@step={step}" for step in stops]
        callbacks = [{"use": "chaos", "faults": faults}] if stops else []
        for workers, preempt_at in zip(plan.values(), [*stops, 0], strict=True):
            result = hostcore.run(job(run_id, workers=workers, callbacks=callbacks), on_event=note)
            assert result.status == ("preempted" if preempt_at else "succeeded"), result
        assert set(transforming().values()).isdisjoint({os.getpid()})
        return errors, trainer.WEIGHTS[run_id]

    return start


def test_losses_and_weights_do_not_depend_on_the_processes_nor_on_a_resume(train: Callable) -> None:
    errors, weights = train({0: 0})
    assert list(errors) == list(range(1, 13))
    assert train({0: 1, 3: 0, 8: 2}) == (errors, weights)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_exception_fails_the_run_at_its_batch_with_the_plugins_own_traceback(
    trainer: ModuleType, workers: int
) -> None:
    failing = {"fail_at": 3, "error": "ValueError"}
    result = hostcore.run(job(f"fails-{workers}", workers=workers, hyperparams=failing))
    assert (result.status, result.exit_code, result.step) == ("failed", 1, 2)
    assert (result.error.type, result.error.message) == ("ValueError", "a bad pixel")
    assert result.error.plugin == "transform_trainer:Augments"
    assert "in transform_batch" in result.error.traceback
    assert HOST not in result.error.traceback


@pytest.mark.parametrize("workers", [0, 1])
def test_data_that_is_wrong_from_the_start_is_an_invalid_job(trainer: ModuleType, here: Path, workers: int) -> None:
    failing = {"fail_at": 1, "error": "InvalidData"}
    with pytest.raises(Errors, match="a bad pixel") as caught:
        hostcore.run(job(f"invalid-{workers}", workers=workers, hyperparams=failing))
    (error,) = caught.value.errors
    assert (error.pointer, error.plugin) == ("/dataset", "transform_trainer:Augments")
    assert "transform_trainer.py:" in str(error.file)
    assert not (here / f"invalid-{workers}").exists()


def test_processes_for_a_trainer_that_transforms_nothing_are_an_invalid_job(trainer: ModuleType, here: Path) -> None:
    with pytest.raises(Errors, match=r"dataset\.workers needs a trainer with transform_batch") as caught:
        hostcore.run(job("nothing", workers=2, trainer="Plain"))
    assert [error.pointer for error in caught.value.errors] == ["/dataset/workers"]


def test_a_script_without_a_main_guard_runs_once(tmp_path: Path) -> None:
    (tmp_path / "transform_trainer.py").write_text((HERE / "transform_trainer.py").read_text())
    (tmp_path / "script.py").write_text(SCRIPT.format(job=job("script", workers=1)))
    answer = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "HOSTCORE_RUNS_DIR": str(tmp_path / "runs")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stdout.splitlines() == ["imported", "succeeded 12"], answer.stderr


def test_a_signal_to_all_processes_of_the_worker_is_a_preempted_run(project, until: Callable) -> None:
    (project.path / "transform_trainer.py").write_text((HERE / "transform_trainer.py").read_text())
    slow = job("signalled", workers=2, epochs=10**6, hyperparams={"seconds": 0.02})
    path = project.job("signalled.json", **slow)
    command = project.start("run", path)
    run = project.run("signalled")
    until(lambda: '"metrics"' in run.rank_log(), "the first steps")
    started = {pid for pid, parent in transforming().items() if parent == run.worker_pid}
    assert len(started) == 2
    os.killpg(run.worker_pid, signal.SIGTERM)
    assert command.end().code == 75
    assert run.result["status"] == "preempted"
    until(lambda: started.isdisjoint(transforming()), "the processes to end")


def test_the_trainer_of_the_guide_learns(here: Path, tmp_path: Path) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    name, source = re.findall(r"```\{code-block\} python\n:caption: (\S+)\n\n(.*?)```", text, re.DOTALL)[0]
    described = json.loads(re.findall(r"```json\n(.*?)```", text, re.DOTALL)[0])
    (tmp_path / name).write_text(source)
    sentences = pa.table({"text": [f"{number} bottles of beer on the wall" * (number % 5) for number in range(400)]})
    pq.write_table(sentences, tmp_path / "texts.parquet", row_group_size=50)
    described["dataset"]["workers"] = 1
    path = tmp_path / "job.json"
    path.write_text(json.dumps({**described, "run_id": "guide", "terminal": False, "metric_every": 1}))
    losses: list[float] = []
    result = hostcore.run(
        path, on_event=lambda event: event.name == "metrics" and losses.append(event.payload.metrics["train/loss"])
    )
    assert (result.status, len(losses)) == ("succeeded", 12)
    assert losses[-1] < losses[0]
