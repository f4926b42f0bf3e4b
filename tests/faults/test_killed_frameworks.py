"""Trainings of other people's code, unchanged, killed at random instants: what comes out is as if they had not been.

What is trained is what the packages themselves ship: modules of ``lightning.pytorch.demos``, named by their import
paths, and a Llama that transformers makes of a configuration, with a tokenizer that is trained here.
"""

import itertools
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from fork_server import hostcore
from ledger import Ledger
from started import Start, Started, cold, is_gone
from thoroughness import instants, points
from transformers_workshop import LLAMA, make_workshop
from waiting import wait_until

KILLS = points(5, long=50)
STEPS = 12 * KILLS
KEEP = 3
#: Seconds. Beside the builds of others, an import of lightning has taken ten minutes.
PATIENCE = 1800


def _words(folder: Path) -> None:
    """The file that ``WikiText2`` of Lightning's demos does not download if it is there."""
    words, rng = [f"word{number}" for number in range(50)], random.Random(1)
    lines = (" ".join(rng.choices(words, k=rng.randint(3, 12))) for _ in range(900))
    (folder / "data").mkdir()
    (folder / "data/wikitext-2.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


_TRAININGS: Mapping[str, tuple[Callable[[Path], object], dict[str, Any]]] = {
    # Dropout; the module's own loader.
    "LightningTransformer": (
        _words,
        {
            "trainer": "lightning",
            "hyperparams": {
                "module": "lightning.pytorch.demos.transformer:LightningTransformer",
                "init": {"vocab_size": 64},
            },
        },
    ),
    # A data module with a validation, a scheduler that steps at the end of an epoch of 64 steps.
    "BoringModel": (
        lambda _: None,
        {
            "trainer": "lightning",
            "hyperparams": {
                "module": "lightning.pytorch.demos.boring_classes:BoringModel",
                "datamodule": "lightning.pytorch.demos.boring_classes:BoringDataModule",
            },
            "validate_every": 4,
        },
    ),
    # Dropout, a shuffled order with epochs of 24 steps, a validation with numbers.
    "LlamaForCausalLM": (
        make_workshop,
        {
            "trainer": "transformers",
            "hyperparams": {
                "config": {**LLAMA, "attention_dropout": 0.1},
                "tokenizer": "tokenizer",
                "max_length": 32,
                "learning_rate": 1e-3,
            },
            "dataset": {"parquet_paths": ["train.parquet"], "batch_size": 4, "shuffle": True},
            "validation": {"parquet_paths": ["train.parquet"], "batch_size": 32},
            "validate_every": 4,
        },
    ),
}


@attrs.frozen(kw_only=True)
class Training:
    """What is trained, in the folder where its data lies; and how the run ended that was not killed."""

    folder: Path
    keys: Mapping[str, Any]

    @property
    def runs_dir(self) -> Path:
        return self.folder / "runs"

    def start(self, run_id: str, start: Start = hostcore) -> Started:
        job = {
            "run_id": run_id,
            "max_steps": STEPS,
            "metric_every": 1,
            "checkpoint_every": 3,
            "keep_checkpoints": KEEP,
            "device": "cpu",
            "terminal": False,
            **self.keys,
        }
        return Started.start(self.runs_dir, job, start=start)

    def ledger(self, run_id: str) -> Ledger:
        return Ledger(self.runs_dir / run_id)


@attrs.frozen(kw_only=True)
class Unharmed:
    """The run that was not killed."""

    metrics: Mapping[tuple[str, int], Mapping[str, float]]
    #: The files of its last checkpoint that hold what was trained, with their digests.
    trained: Mapping[str, str]
    seconds_to_start: float
    seconds_to_train: float


@pytest.fixture(params=_TRAININGS)
def training(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Training:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    prepare, keys = _TRAININGS[request.param]
    prepare(tmp_path)
    (tmp_path / "runs").mkdir()
    return Training(folder=tmp_path, keys=keys)


def metrics(ledger: Ledger) -> Mapping[tuple[str, int], Mapping[str, float]]:
    """What was recorded for each step; where a step was made several times, it was the same each time."""
    found: dict[tuple[str, int], Mapping[str, float]] = {}
    for event in ledger.told:
        if event["event"] in ("metrics", "validation"):
            key = event["event"], event["step"]
            assert found.setdefault(key, event["metrics"]) == event["metrics"], key
    return found


def check_metrics(ledger: Ledger, whole: Unharmed) -> None:
    """See that nothing else was recorded than by the whole run, and nothing less.

    A worker whose command is killed writes a checkpoint and ends. A validation that it breaks off for that is not made
    again: see "The order of calls" in the documentation.
    """
    found = metrics(ledger)
    stopped = {("validation", event["step"]) for event in ledger.told if event["event"] == "stop_requested"}
    assert found | {key: whole.metrics[key] for key in stopped & whole.metrics.keys()} == whole.metrics


def trained(ledger: Ledger) -> Mapping[str, str]:
    """The digests of the weights, and of all else that the trainer keeps, behind the last step."""
    record = json.loads((ledger.checkpoints / f"step-{STEPS:06d}.json").read_text())
    return {file["path"]: file["sha256"] for file in record["files"] if is_trained(file["path"])}


def is_trained(path: str) -> bool:
    return path.startswith(("state.", "trainer/"))


def begun(ledger: Ledger) -> int:
    """The newest attempt that has begun to train."""
    return max((event["attempt"] for event in ledger.told if event["event"] == "run_started"), default=0)


def wait(process: "subprocess.Popen[Any]") -> int:
    """For its end, however slow the machine is."""
    return process.wait(timeout=PATIENCE)


def unharmed(training: Training) -> Unharmed:
    began, ledger = time.monotonic(), training.ledger("unharmed")
    started = training.start("unharmed", cold)
    wait_until(lambda: begun(ledger) or started.process.poll() is not None, "the training to begin", seconds=PATIENCE)
    trains = time.monotonic()
    assert wait(started.process) == 0, started.printed
    return Unharmed(
        metrics=metrics(ledger),
        trained=trained(ledger),
        seconds_to_start=trains - began,
        seconds_to_train=time.monotonic() - trains,
    )


def kill(started: Started, victim: str) -> str:
    """Kill the command, its worker, or both with all that they have started; what it was that was killed."""
    workers = started.workers
    victim = victim if workers else "command"
    if victim != "worker":
        with suppress(ProcessLookupError):
            os.kill(started.process.pid, signal.SIGKILL)
    if victim != "command":
        for worker in workers:
            with suppress(ProcessLookupError):
                os.killpg(worker, signal.SIGKILL)
    wait(started.process)
    wait_until(lambda: all(map(is_gone, workers)), "the worker to end")
    return victim


def kill_until_it_ends(
    training: Training, run_id: str, rng: random.Random, when: Iterator[float], whole: Unharmed, *, at_most: int
) -> Counter[str]:
    """Start a run again and again, and kill it each time, some times or until it comes to its end.

    Of three kills, one comes at any instant of the start of a new interpreter, which is seconds until it has imported
    everything; there all processes are killed, since a command replaces a worker that dies before it has its job. Two
    come while it trains, validates and writes checkpoints.
    """
    counts, ledger = Counter[str](runs=1), training.ledger(run_id)
    victims = itertools.cycle(["worker", "command", "all"])
    parts = itertools.cycle(["start", "training", "training"])
    while counts["kills"] < at_most:
        before, part = begun(ledger), next(parts)
        started = training.start(run_id, cold if part == "start" else hostcore)
        if part == "start":
            time.sleep(next(when) * whole.seconds_to_start)
        else:
            trains = lambda: begun(ledger) > before or started.process.poll() is not None  # noqa: B023, E731
            wait_until(trains, "the training to go on", seconds=PATIENCE)
            time.sleep(1.5 * next(when) * whole.seconds_to_train / KILLS)  # so that kills reach into the second half
        if started.process.poll() is not None:
            assert started.process.returncode == 0, started.printed
            break
        victim = kill(started, "all" if part == "start" else next(victims))
        counts.update({"kills": 1, f"of {victim}": 1, "in training" if begun(ledger) > before else "in the start": 1})
        counts["inside a commit"] += any("attempt-" in name for name in ledger.hidden)
        ledger.check_checkpoints(keep=KEEP)
    assert wait(training.start(run_id).process) == 0, (training.runs_dir / f"{run_id}.out").read_text()
    return counts


def test_a_training_that_is_killed_again_and_again_comes_out_as_if_it_were_not(training: Training, seed: int) -> None:
    rng, counts = random.Random(seed), Counter[str]()
    when, whole = instants(rng), unharmed(training)
    while (left := KILLS - counts["kills"]) > 0:
        run_id = f"killed-{counts['runs']}"
        counts += kill_until_it_ends(training, run_id, rng, when, whole, at_most=left)
        ledger = training.ledger(run_id)
        assert ledger.result is not None
        assert (ledger.result["status"], ledger.result["step"]) == ("succeeded", STEPS)
        check_metrics(ledger, whole)
        assert trained(ledger) == whole.trained
        verified = hostcore(["verify", f"runs/{run_id}"], cwd=training.folder, stdout=-1, stderr=-2, text=True)
        said, _ = verified.communicate()
        assert verified.returncode == 0, said
    print(dict(counts))
