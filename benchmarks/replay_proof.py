"""Random steps of past runs, made again by ``hostcore debug``: how many are the recorded ones bit by bit, and how long.

Runs of 300 steps with a checkpoint every 10, on CPU cores. Of each, windows of 5 steps at random places are replayed
(``--step N --until N+4``), 50 steps in all; a row is seconds for a window.

    pip install ./extensions/debug ./extensions/lightning ./extensions/transformers
    python benchmarks/replay_proof.py [--windows 10] [--seed 0] [--only ranks,poisoned] [--json FILE]

==============  =====================================================================================
``ranks``       two ranks with shuffled rows, dropout, momentum, and two batches accumulated to a step
``lightning``   an unchanged LightningModule with dropout, metrics that it logs, and its own loader
``llama``       a small Llama with dropout by the trainer ``transformers``, shuffled texts
``unseeded``    a trainer with a generator that no seed decides about: found with its step and the cause
``poisoned``    seconds for ``--spikes`` and ``--bisect-rows``, until one row of 200,000 is named
==============  =====================================================================================

Each run's folder is hashed before and after with the times of its files: it is only read.
"""

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import results
import torch
from torch import nn

from hostcore_hookspecs import Capabilities, StepResult
from hostcore_toolkit import parallelize, to_tensors

STEPS, WINDOW, ROWS, POISONED = 300, 5, 200_000, 123_456
HERE = Path(__file__).parent


@attrs.frozen
class Hyperparams:
    """Settings of the trainer."""

    unseeded: bool = False


class Trainer:
    """A regression with dropout and momentum."""

    Hyperparams = Hyperparams
    CAPABILITIES = Capabilities(accumulate=True, distributed=True)

    def configure(self, ctx: Any) -> Any:
        model: nn.Module = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 1))
        model = parallelize(model, ctx) if ctx.world_size > 1 else model
        return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)}

    def prepare_batch(self, raw_batch: Any) -> Any:
        return to_tensors(raw_batch)

    def train_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        batches = prepared_batch if isinstance(prepared_batch, tuple) else (prepared_batch,)
        total = torch.zeros(())
        for batch in batches:
            found = state["model"](torch.stack([batch["a"], batch["b"]], dim=1))[:, 0]
            loss = (found - batch["y"]).square().mean() / len(batches)
            if ctx.hyperparams.unseeded:
                generator = torch.Generator()
                generator.seed()
                loss = loss * (1 + 1e-3 * torch.rand((), generator=generator))
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(state["model"].parameters(), 1.0)
        state["optimizer"].step()
        state["optimizer"].zero_grad()
        return StepResult(metrics={"loss": total})


def write_rows(file: Path, rows: int, poisoned: int | None = None) -> None:
    """Write rows; the target of a poisoned one is far from all others."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, rows)).astype("float32")
    y = (a - b / 2).astype("float32")
    if poisoned is not None:
        y[poisoned] = 1e4
    parquet.write_table(pa.table({"a": a, "b": b, "y": y}), file, row_group_size=max(64, rows // 40))


def of_rows(file: str, batch_size: int) -> dict[str, Any]:
    dataset = {"parquet_paths": [file], "batch_size": batch_size, "shuffle": True}
    return {"trainer": "replay_proof:Trainer", "dataset": dataset, "device": "cpu"}


def job_of(subject: str, place: Path) -> dict[str, Any]:
    """Return the keys of a job, and write its data."""
    if subject == "llama":
        import resume_transformers

        resume_transformers.prepare(place)
        job = json.loads((place / "job.json").read_text())
        return {key: job[key] for key in ("trainer", "hyperparams", "dataset", "device")}
    if subject == "lightning":
        hyperparams = {"module": "replay_module:Classifier", "datamodule": "replay_module:Points"}
        return {"trainer": "lightning", "hyperparams": hyperparams, "device": "cpu"}
    write_rows(place / "rows.parquet", 4_000)
    if subject == "ranks":
        return of_rows("rows.parquet", 4) | {"device": None, "devices": ["cpu", "cpu"], "accumulate": 2}
    return of_rows("rows.parquet", 16) | {"hyperparams": {"unseeded": True}}


def command(place: Path, *arguments: str, code: int = 0) -> Any:
    """Run hostcore; return the document that it prints."""
    around = {**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "hostcore", *arguments, "--json"]
    ended = subprocess.run(words, cwd=place, env=around, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return json.loads(ended.stdout)


def train(place: Path, keys: Mapping[str, Any], **more: Any) -> None:
    job = {"max_steps": STEPS, "checkpoint_every": 10, "keep_checkpoints": 40, "metric_every": 1, "terminal": False}
    job = {key: value for key, value in {**job, **keys, **more, "run_id": "past"}.items() if value is not None}
    (place / "past.json").write_text(json.dumps(job))
    command(place, "run", "past.json")


@contextmanager
def only_read(run: Path) -> Iterator[None]:
    """Check that a folder is the same before and after, byte by byte, with the times of its files."""
    before = fingerprint(run)
    yield
    assert fingerprint(run) == before, f"{run} has changed"


def fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for one in sorted(folder.rglob("*")):
        digest.update(f"{one} {one.stat().st_mtime_ns}".encode() + (one.read_bytes() if one.is_file() else b""))
    return digest.hexdigest()


def replayed(subject: str, place: Path, options: argparse.Namespace) -> list[float]:
    """Train, replay windows of steps; seconds of each."""
    train(place, job_of(subject, place))
    taken, steps = [], 0
    with only_read(place / "runs/past"):
        for step in random.Random(options.seed).sample(range(1, STEPS - WINDOW + 2), options.windows):
            began = time.perf_counter()
            found = command(place, "debug", "past", "--step", str(step), "--until", str(step + WINDOW - 1))["replayed"]
            taken.append(time.perf_counter() - began)
            assert found["equal"] and found["compared"] == step + WINDOW - 1 - found["from"], found
            steps += WINDOW
    print(f"{subject:10} {steps} steps in {options.windows} windows are the recorded ones, bit for bit")
    return taken


def unseeded(place: Path) -> list[float]:
    train(place, job_of("unseeded", place), max_steps=40)
    began = time.perf_counter()
    with only_read(place / "runs/past"):
        found = command(place, "debug", "past", "--step", "35", code=1)["replayed"]
    print(f"unseeded   first different at {found['first_different']}; known causes: {found['causes'] or 'none'}")
    return [time.perf_counter() - began]


def poisoned(place: Path) -> list[float]:
    write_rows(place / "poisoned.parquet", ROWS, POISONED)
    train(place, of_rows("poisoned.parquet", 256), max_steps=ROWS // 256, checkpoint_every=100)
    began = time.perf_counter()
    with only_read(place / "runs/past"):
        spike, *_ = command(place, "debug", "past", "--spikes")["spikes"]  # the worst
        found = command(place, "debug", "past", "--step", str(spike["step"]), "--bisect-rows")
    taken = time.perf_counter() - began
    assert [one["row"] for one in found["rows"]] == [POISONED], found
    print(f"poisoned   row {POISONED:,} of {ROWS:,} named in {found['trials']} trials, {taken:.0f} s")
    return [taken]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="ranks,lightning,llama,unseeded,poisoned")
    results.add_option(parser)
    options = parser.parse_args()
    of_a_run: Mapping[str, Callable[[Path], list[float]]] = {"unseeded": unseeded, "poisoned": poisoned}
    values = {}
    for subject in options.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            own = of_a_run.get(subject)
            values[subject] = replayed(subject, place, options) if own is None else own(place)
        print(f"{'':10} {min(values[subject]):.1f} to {max(values[subject]):.1f} s each", flush=True)
    results.write(options.json, "replay_proof", results.rows("s", values), windows=options.windows, seed=options.seed)


if __name__ == "__main__":
    main()
