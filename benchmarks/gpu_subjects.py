"""The rows of ``gpu.py``: how much is measured of each, with which job, in which time."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import feed
import feed_ways

CALLBACKS = [
    {"use": "grad-clip", "max_norm": 1.0},
    "nonfinite-guard",
    "lr-monitor",
    "throughput",
]


@attrs.frozen
class Figure:
    """A row of the result."""

    unit: str
    goal: str = ""
    on_gpu: bool = False
    less_is_better: bool = True


@attrs.frozen(kw_only=True)
class Sizes:
    """Sizes of the measurements."""

    small: Mapping[str, int]
    large: Mapping[str, int]
    table_rows: int
    batch_rows: int
    #: Batches of the feed that are timed together: far more than are read ahead.
    batches: int
    rounds: int
    #: What a row may take for its rounds, as a share of what is planned.
    share: float
    #: The backend of ``torch.compile``.
    compile: str


FULL = Sizes(
    small={"layers": 4, "heads": 4, "width": 128, "context": 256, "texts": 64, "stretch": 100},
    large={"layers": 28, "heads": 16, "width": 1024, "context": 512, "texts": 16, "stretch": 10},
    table_rows=2_000_000,
    batch_rows=8192,
    batches=1000,
    rounds=15,
    share=1.0,
    compile="inductor",
)
QUICK = Sizes(
    small={"layers": 1, "heads": 2, "width": 16, "context": 16, "texts": 2, "stretch": 10},
    large={"layers": 2, "heads": 2, "width": 32, "context": 16, "texts": 2, "stretch": 10},
    table_rows=65_536,
    batch_rows=512,
    batches=400,
    rounds=2,
    share=0.1,
    compile="eager",  # traced, not compiled: that needs a compiler for C++ on the CPU
)


@attrs.frozen(kw_only=True)
class Bench:
    """Device and sizes of a benchmark."""

    device: str
    sizes: Sizes
    folder: Path
    #: What the limits of rows are multiplied with.
    patience: float


@attrs.frozen(kw_only=True)
class Found:
    """Findings of a subject."""

    #: By figure.
    values: dict[str, list[float]] = attrs.field(factory=dict)
    notes: list[str]
    failed: bool = False


@attrs.frozen(kw_only=True)
class Subject:
    """Measurement of one run."""

    #: The seconds planned for its rounds, and those after which it is cut off: with its start, and compiling.
    rounds: float
    limit: float
    figures: Mapping[str, Figure]
    #: Makes the job, without the hyperparameters that all have.
    job: Callable[[Bench], dict[str, Any]]
    #: Measures within seconds.
    measure: "Callable[[Subject, Bench, float], Found]" = attrs.field(kw_only=True)


class Failed(Exception):
    """A row could not be measured; the message says why."""


def measured_by_trainer(subject: Subject, bench: Bench, seconds: float) -> Found:
    """Run the job. What its trainer had written when it was cut off, or failed, counts."""
    file = bench.folder / "found.json"
    file.unlink(missing_ok=True)
    notes, failed = [], False
    try:
        run(subject, bench, seconds, file)
    except subprocess.TimeoutExpired:
        notes.append(f"cut off after {seconds:.0f} s")
    except Failed as error:
        notes, failed = [f"failed: {error}"], True
    found = json.loads(file.read_text()) if file.exists() else {"figures": {}, "notes": []}
    return Found(values=found["figures"], notes=notes + found["notes"], failed=failed)


def run(subject: Subject, bench: Bench, seconds: float, file: Path) -> None:
    """``hostcore run`` in a process of its own.

    :raises Failed: When it fails.
    :raises subprocess.TimeoutExpired: When it had to be ended.
    """
    job = {"device": bench.device, "max_steps": 1_000_000, "checkpoint_every": 0, **subject.job(bench)}
    common = {"result": str(file), "rounds": bench.sizes.rounds, "seconds": subject.rounds * bench.sizes.share}
    job["hyperparams"] = common | job.get("hyperparams", {})
    # Import paths are searched in the job file's folder.
    for name in ("gpu_ways.py", "gpu_turns.py", "checkpoint.py", "results.py"):
        place = bench.folder / name
        if not place.exists():
            place.symlink_to(Path(__file__).with_name(name).resolve())
    (bench.folder / "job.json").write_text(json.dumps(job))
    command = [sys.executable, "-m", "hostcore", "run", "job.json"]
    environment = os.environ | {"HOSTCORE_RUNS_DIR": str(bench.folder / "runs")}
    with (bench.folder / "run.log").open("w+") as log:
        process = subprocess.Popen(
            command, cwd=bench.folder, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            end(process)
            raise
        if code:
            log.seek(0)
            lines = log.read().splitlines()
            errors = [line for line in lines if "error" in line.lower()] or lines or ["nothing was said"]
            raise Failed(f"hostcore run ended with {code}: {errors[-1].strip()}")


def end(process: "subprocess.Popen[str]") -> None:
    """Stop a run and all its processes, so that the device is free for the next row."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def starts(subject: Subject, bench: Bench, seconds: float) -> Found:
    """Starts of both in turns, from a first one that is not counted."""
    file, found = bench.folder / "found.json", {name: list[float]() for name in subject.figures}
    until = time.monotonic() + seconds
    code = f"import torch; torch.ones(1, device={bench.device!r}).item()"
    for number in range(min(5, bench.sizes.rounds) + 1):
        left = until - time.monotonic()
        try:
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=max(1.0, left))
            bare = time.perf_counter() - began
            began = time.time()
            run(subject, bench, max(1.0, until - time.monotonic()), file)
        except subprocess.TimeoutExpired:
            return Found(values=found, notes=[f"cut off after {seconds:.0f} s"])
        except subprocess.CalledProcessError as error:
            return Found(notes=[f"failed: {error.stderr.decode().strip().splitlines()[-1]}"], failed=True)
        except Failed as error:
            return Found(notes=[f"failed: {error}"], failed=True)
        ours = json.loads(file.read_text())["figures"]["at"][0] - began
        if number:
            for name, value in {"hostcore": ours, "plain": bare, "more": ours - bare}.items():
                found[name].append(value)
    return Found(values=found, notes=[])


def step(size: str, precision: str, *, compiled: bool = False, rounds: float, limit: float) -> Subject:
    def job(bench: Bench) -> dict[str, Any]:
        sizes = getattr(bench.sizes, size)
        compile_with = {"compile": bench.sizes.compile} if compiled else {}
        hyperparams = {**sizes, **compile_with}
        return {
            "trainer": "gpu_ways:Steps",
            "precision": precision,
            "hyperparams": hyperparams,
            "callbacks": CALLBACKS,
        }

    figures = {
        "ratio": Figure("of the plain loop", "1.01"),
        "hostcore": Figure("ms"),
        "plain": Figure("ms"),
        "reads": Figure("between cadences", "0"),
        "waits": Figure("between cadences", "0", on_gpu=True),
        "warned": Figure("between cadences", "0", on_gpu=True),
    }
    return Subject(rounds=rounds, limit=limit, figures=figures, job=job, measure=measured_by_trainer)


def checkpoint() -> Subject:
    def job(bench: Bench) -> dict[str, Any]:
        hyperparams = {**bench.sizes.large, "rounds": min(3, bench.sizes.rounds)}
        cadence = {"checkpoint_every": 5, "keep_checkpoints": 1, "metric_every": 0}
        return {"trainer": "gpu_ways:Checkpoints", "hyperparams": hyperparams, **cadence}

    kinds = {"stall": Figure("s"), "done": Figure("s"), "memory": Figure("MB", on_gpu=True)}
    ways = ("hostcore_", "torch_save_", "dcp_")
    figures = {f"{way}{kind}": figure for way in ways for kind, figure in kinds.items()}
    figures["first_stall"] = Figure("s")
    return Subject(rounds=75, limit=120, figures=figures, job=job, measure=measured_by_trainer)


def feed_of(columns: list[str]) -> Subject:
    def job(bench: Bench) -> dict[str, Any]:
        file = feed.make_file(bench.folder / "table.parquet", bench.sizes.table_rows)
        rows = bench.sizes.batch_rows
        hyperparams = {"file": file, "columns": columns, "batch_rows": rows, "stretch": bench.sizes.batches}
        dataset = {"source": "parquet", "parquet_paths": file, "columns": columns, "batch_size": rows}
        return {"trainer": "gpu_ways:Feed", "hyperparams": hyperparams, "dataset": dataset, "metric_every": 0}

    figures = {
        "hostcore": Figure("rows/s", less_is_better=False),
        "plain": Figure("rows/s", less_is_better=False),
        "ratio": Figure("of the plain loop's time"),
        "reads": Figure("in 9 steps", "0"),
        "waits": Figure("in 9 steps", "0", on_gpu=True),
        "warned": Figure("in 9 steps", "0", on_gpu=True),
        "pageable": Figure("copies in 9 steps", "0", on_gpu=True),
        "overlap": Figure("of the copies' time", on_gpu=True, less_is_better=False),
    }
    return Subject(rounds=8, limit=60, figures=figures, job=job, measure=measured_by_trainer)


def start() -> Subject:
    figures = {"hostcore": Figure("s"), "plain": Figure("s"), "more": Figure("s")}
    job = {"trainer": "gpu_ways:FirstStep", "max_steps": 1}
    return Subject(rounds=0, limit=60, figures=figures, job=lambda bench: dict(job), measure=starts)


#: The most important first.
SUBJECTS: dict[str, Subject] = {
    "step small bf16": step("small", "bf16", rounds=12, limit=60),
    "step 350M bf16": step("large", "bf16", rounds=20, limit=90),
    "checkpoint": checkpoint(),
    "feed, 2 columns": feed_of(feed_ways.COLUMNS["two"]),
    "feed, 33 columns": feed_of(feed_ways.COLUMNS["all"]),
    "start": start(),
    "step small fp32": step("small", "fp32", rounds=12, limit=60),
    "step 350M fp32": step("large", "fp32", rounds=25, limit=90),
    "step small bf16 compiled": step("small", "bf16", compiled=True, rounds=10, limit=90),
    "step 350M bf16 compiled": step("large", "bf16", compiled=True, rounds=15, limit=150),
}
