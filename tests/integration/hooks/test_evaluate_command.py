"""``hostcore evaluate``: a checkpoint is validated or tested, and nothing is left behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fork_server import hostcore
from played import play as play_job
from waiting import wait_until

from hostcore.cli import cli
from hostcore.in_process import _WorkerHere
from hostcore.supervisor import evaluate
from hostcore.supervisor.interrupts import Interrupts

Play = Callable[..., Any]


HERE = Path(__file__).parent


def numbers(batch_size: int) -> dict[str, Any]:
    return {"parquet_paths": "numbers.parquet", "batch_size": batch_size}


JOB: dict[str, Any] = {
    "trainer": "exact:Noisy",
    "run_id": "a",
    "device": "cpu",
    "terminal": False,
    "callbacks": [],
    "dataset": numbers(4),
    "validation": numbers(5),
    "validate_every": 4,
    "checkpoint_every": 4,
    "max_steps": 8,
}


@pytest.fixture
def trained(play: Play, exact: ModuleType, tmp_path: Path) -> Callable[..., Any]:
    """``trained(trainer=…)``: a run ``a`` of eight steps, and the file ``job.json`` that it was made with."""
    shutil.copy(str(exact.__file__), tmp_path)  # where processes of their own find it

    def train(**keys: Any) -> Any:
        job = {**JOB, **keys}
        (tmp_path / "job.json").write_text(json.dumps(job))
        return play(**job)

    return train


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, write_numbers_into: Callable) -> Iterator[Path]:
    """A folder with the run ``a`` of eight steps, which the tests leave as it is."""
    folder = tmp_path_factory.mktemp("shared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOSTCORE_RUNS_DIR", str(folder / "runs"))
        patch.chdir(folder)
        patch.syspath_prepend(str(HERE))
        write_numbers_into(folder)
        (folder / "job.json").write_text(json.dumps(JOB))
        play_job(JOB, folder / "runs")
        sys.modules.pop("exact")
    yield folder


@pytest.fixture
def in_shared(shared: Path, modules: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of ``shared`` as the working directory."""
    monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(shared / "runs"))
    monkeypatch.chdir(shared)
    before = tree(shared)
    yield shared
    assert tree(shared) == before


def start(tmp_path: Path, *arguments: str) -> "subprocess.Popen[str]":
    return hostcore(
        ["evaluate", "job.json", *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Result]]:
    """``evaluated("--checkpoint", "a")``: the command, with its worker in a thread: torch is imported already."""
    threads: list[threading.Thread] = []

    def spawn(rank: int, contract: Path, output: Path) -> _WorkerHere:
        worker = _WorkerHere(contract, Interrupts())
        output.touch()
        threads.append(threading.Thread(target=worker.work))
        threads[-1].start()
        return worker

    monkeypatch.setattr(evaluate, "LocalRanks", lambda ranks, devices: spawn)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["evaluate", "job.json", *arguments])

    yield run
    for thread in threads:
        thread.join()


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def test_finds_what_the_run_found_and_leaves_no_trace(trained: Callable[..., Any], tmp_path: Path) -> None:
    played = trained(test=numbers(5), callbacks=["exact:Announce"], epochs=1)
    before = tree(tmp_path / "runs")
    process = start(tmp_path, "--checkpoint", "a", "--json")
    out, err = process.communicate(timeout=600)
    assert (process.returncode, tree(tmp_path / "runs")) == (0, before)
    (tested,) = played.of("test")
    assert json.loads(out) == {
        "split": "test",
        "metrics": dict(tested.payload.metrics),
        "nonfinite": [],
        "weight": 32.0,
        "step": 8,
        "checkpoint": str(tmp_path / "runs/a/checkpoints/step-000008"),
        "run_id": "a",
    }
    # What callbacks print is shown; and only the hooks of a test are called.
    assert err.splitlines() == ["on_test_begin at step 8 of epoch 0", "on_test_end ['test/loss', 'test/noise']"]
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} - {"__pycache__"} == {"runs"}  # that is Python's


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_signal_ends_it_at_once_with_everything_it_has_started(
    trained: Callable[..., Any], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    trained(trainer="exact:Hanging", validate_every=0)
    process = start(tmp_path, "--checkpoint", "a")
    assert process.stderr is not None
    worker = int(process.stderr.readline().split()[1])
    process.send_signal(number)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out) == (code, "")
    assert "nothing was evaluated" in err
    wait_until(lambda: not lives(worker), "the worker to end")


def lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the second, when it goes between opening and reading
        return False


def test_a_trainer_that_fails_is_shown_with_its_traceback_and_exits_1(
    trained: Callable[..., Any], evaluated: Callable[..., Result]
) -> None:
    trained(trainer="exact:Sized")
    result = evaluated("--checkpoint", "a", "--set", "hyperparams.width=3", "--json")
    assert result.exit_code == 1
    (error,) = json.loads(result.stdout)["errors"]
    assert error["code"] == "evaluation.failed"
    assert error["message"].startswith("RuntimeError: Error(s) in loading state_dict for Linear")
    assert error["hint"] == "the run of the checkpoint had other ones: /hyperparams/width: not given -> 3"
    assert "Traceback" in result.stderr
    assert 'exact.py", line' in result.stderr


def test_metrics_are_a_table_for_people(trained: Callable[..., Any], evaluated: Callable[..., Result]) -> None:
    played = trained()
    (first, _) = played.of("validation")
    result = evaluated("--checkpoint", "runs/a/checkpoints/step-000004.json")
    assert result.exit_code == 0, result.output
    head, *rows = result.stdout.splitlines()
    assert head == "validation  step 4 of a (runs/a/checkpoints/step-000004)"
    assert [row.split() for row in rows] == [
        ["METRIC", "VALUE"],
        *([name, f"{value:.6g}"] for name, value in first.payload.metrics.items()),
        ["weight", "32"],
    ]


@pytest.mark.parametrize("checkpoint", ["runs/a/checkpoints/step-000008", "runs/a", "a"])
@pytest.mark.usefixtures("in_shared")
def test_a_checkpoint_is_named_by_its_folder_or_by_its_run(evaluated: Callable[..., Result], checkpoint: str) -> None:
    assert "step 8 of a" in evaluated("--checkpoint", checkpoint).stdout


def test_several_devices_evaluate_on_the_first_with_the_same_batches(
    trained: Callable[..., Any], evaluated: Callable[..., Result], tmp_path: Path
) -> None:
    played = trained()
    several = {"device": "auto", "devices": ["cpu", "cpu"], "accumulate": 1, "global_batch_size": 8}
    job = json.loads((tmp_path / "job.json").read_text())
    (tmp_path / "job.json").write_text(json.dumps(job | several))
    result = evaluated("--checkpoint", "a", "--json")
    assert json.loads(result.stdout)["metrics"] == dict(played.of("validation")[1].payload.metrics)


def test_a_device_that_is_not_there_names_the_option_before_any_worker_starts(
    in_shared: Path, evaluated: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho 0, GPU-aaaa\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    result = evaluated("--checkpoint", "a", "--devices", "cuda:7")
    assert result.exit_code == 2
    assert "there is no device 'cuda:7' here\n      at: /device\n    from: --devices" in result.stderr


def test_a_damaged_checkpoint_is_passed_over_with_a_run_and_refused_by_name(
    trained: Callable[..., Any], evaluated: Callable[..., Result], tmp_path: Path
) -> None:
    trained()
    file = tmp_path / "runs/a/checkpoints/step-000008/state.json"
    file.write_bytes(file.read_bytes()[:-1])
    result = evaluated("--checkpoint", "a")
    assert result.exit_code == 0
    assert "step 4 of a" in result.stdout
    assert f"warning: the checkpoint {file.parent} was passed over: state.json has" in result.stderr
    refused = evaluated("--checkpoint", "runs/a/checkpoints/step-000008.json")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "error: state.json has" in refused.stderr
    other = tmp_path / "runs/a/checkpoints/step-000004/state.json"
    other.unlink()
    neither = evaluated("--checkpoint", "a")
    assert (neither.exit_code, "none of the 2 checkpoints verifies" in neither.stderr) == (2, True)


@pytest.mark.usefixtures("in_shared")
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--checkpoint", "b"], "there is no run 'b'"),
        (["--checkpoint", "runs/a/checkpoints/step-000009.json"], "step-000009.json does not exist"),
        (["--checkpoint", "runs/a/checkpoints/step-000009"], "step-000009 does not exist"),
        (["--checkpoint", "numbers.parquet"], "there is no run 'numbers.parquet'"),
        (["--checkpoint", "a", "--split", "test"], 'the job has no "test" data'),
        (["--checkpoint", "a", "--set", "validation=null", "--set", "validate_every=0"], 'neither "test" nor'),
        (["--checkpoint", "a", "--set", "trainer=exact:Sized"], "the checkpoint is one of the trainer 'exact:Noisy'"),
        (["--checkpoint", "a", "--set", "validation.parquet_paths=b.parquet"], "b.parquet does not exist"),
        (["--checkpoint", "a", "--set", "test.parquet_paths=b.parquet"], "b.parquet does not exist"),
        (["--checkpoint", "a", "--set", "device=cuda:77"], "cuda:77"),
    ],
)
def test_what_cannot_be_evaluated_is_one_error_and_exits_2(
    evaluated: Callable[..., Result], arguments: list[str], error: str
) -> None:
    result = evaluated(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("error:") == 1
    assert error in result.stderr
    assert "Traceback" not in result.stderr


def test_a_trainer_without_the_method_is_refused(trained: Callable[..., Any], evaluated: Callable[..., Result]) -> None:
    trained(trainer="exact:Required", validation=None, validate_every=0)
    result = evaluated("--checkpoint", "a", "--set", "test.parquet_paths=numbers.parquet")
    assert result.exit_code == 2
    assert 'it has no test_step, which "test" needs' in result.stderr


def test_a_checkpoint_apart_from_its_run_is_evaluated_on_whatever_data(
    shared: Path, write_numbers_into: Callable, modules: None, evaluated: Callable, tmp_path: Path, monkeypatch: Any
) -> None:
    shutil.copytree(shared / "runs/a/checkpoints", tmp_path / "elsewhere")
    write_numbers_into(tmp_path)
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOSTCORE_RUNS_DIR", "runs")
    other = ["--set", "dataset.batch_size=8", "--set", "dataset.shuffle=true", "--set", "max_steps=2"]
    result = evaluated("--checkpoint", "elsewhere/step-000008", *other)
    assert result.exit_code == 0, result.output
    assert "step 8 of a" in result.stdout
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("in_shared")
def test_callbacks_that_ask_for_something_or_write_files_change_nothing(evaluated: Callable[..., Result]) -> None:
    callbacks = [
        {"use": "early-stopping", "monitor": "val/loss"},
        {"use": "best-checkpoint", "monitor": "val/loss"},
        *("csv-metrics", "throughput", "lr-monitor", "nonfinite-guard", "oom-hint", "profiler"),
    ]
    result = evaluated("--checkpoint", "a", "--set", f"callbacks={json.dumps(callbacks)}")
    assert result.exit_code == 0, result.output


@pytest.mark.usefixtures("in_shared")
def test_the_process_is_as_before(evaluated: Callable[..., Result]) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    evaluated("--checkpoint", "a")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)] == before
    assert "HOSTCORE_SUPERVISOR" not in os.environ


@pytest.mark.usefixtures("in_shared")
def test_one_of_several_ranks_does_not_evaluate_everything_again(
    evaluated: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    refused = evaluated("--checkpoint", "a")
    assert refused.exit_code == 2
    assert "this process is rank 1 of 2" in refused.stderr
    assert "without torchrun" in refused.stderr


def test_metrics_of_the_whole_evaluation_are_those_of_the_run(trained: Callable[..., Any], evaluated: Any) -> None:
    played = trained(trainer="exact:Ranging", hyperparams={"plain": True})
    said = evaluated("--checkpoint", "a", "--split", "validation", "--json")
    assert said.exit_code == 0, said.output
    metrics = json.loads(said.stdout)["metrics"]
    assert metrics == dict(played.of("validation")[-1].payload.metrics)
    assert (metrics["val/range"], metrics["deep/rows"]) == (2.0, 32.0)


@pytest.mark.parametrize(
    "mode", ["min", "max"]
)  # at the last step, the metric is best by one of them and not by the other
def test_a_callback_that_steers_a_run_has_none_to_steer(trained: Callable, evaluated: Callable, mode: str) -> None:
    trained(callbacks=[{"use": "early-stopping", "monitor": "val/loss", "mode": mode, "patience": 1}])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # "the run ends with its last weights"
        done = evaluated("--checkpoint", "a")
    assert (done.exit_code, done.stderr) == (0, "")
