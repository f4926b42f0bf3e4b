"""What a step costs that is made in another process: the trainer `process`, beside what Python has for that.

The program reads the batch and computes nothing. ``process`` sends it as the host does (a line, an Arrow IPC message, a
line; two answers); ``multiprocessing`` sends the pickled batch through its own pipe and waits for an answer;
``in this process`` calls an empty method. All in turns, in one run. ``step`` is one batch and one step after the other,
from ``prepare_batch`` to the result.

    python benchmarks/process_trainer.py [--rounds 7] [--steps 500] [--columns 33] [--json FILE]
"""

import argparse
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np
import pyarrow as pa
import results

from hostcore_builtin_plugins.process.trainer import Hyperparams, ProcessTrainer
from hostcore_hookspecs import Job, RunState, StepContext

ROWS = (32, 4096)

#: Reads each batch, and answers.
PROGRAM = """
import json, os, sys
import pyarrow as pa
batches, reader = os.fdopen(int(os.environ["HOSTCORE_BATCHES_FD"]), "rb"), None
results = {"initialize": {"protocol": "hostcore.trainer/1"}, "train_step": {"metrics": {"loss": 0.5}}}
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "prepare_batch":
        if asked["params"]["begins_stream"]:
            reader = pa.ipc.open_stream(batches)
        reader.read_next_batch()
    print(json.dumps({"id": asked["id"], "result": results.get(asked["method"])}), flush=True)
"""


def answer(end: Connection) -> None:
    """The other process of ``multiprocessing``."""
    while end.recv() is not None:
        end.send(0.5)


def seconds_of(step: Callable[[], object], steps: int) -> float:
    """Mean seconds of a step."""
    began = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - began) / steps


def main() -> None:
    """Measure, print, and write."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--rounds", type=int, default=7)
    ask.add_argument("--steps", type=int, default=500)
    ask.add_argument("--columns", type=int, default=33)
    results.add_option(ask)
    options = ask.parse_args()
    command = (sys.executable, "-c", PROGRAM)
    ctx = StepContext(job=Job(max_steps=1), hyperparams=Hyperparams(command=command), run_state=RunState())
    trainer = ProcessTrainer()
    trainer.setup(ctx)
    state = trainer.configure()
    mine, its = multiprocessing.Pipe()
    other = multiprocessing.get_context("spawn").Process(target=answer, args=(its,), daemon=True)
    other.start()
    took: dict[str, list[float]] = {}
    for number in range(options.rounds + 1):
        for rows in ROWS:
            columns = {f"c{index}": np.random.default_rng(index).random(rows) for index in range(options.columns)}
            batch = pa.record_batch(columns)

            def process(batch: pa.RecordBatch = batch) -> object:
                return trainer.train_step(trainer.prepare_batch(batch, state), state, ctx)

            def pickled(batch: pa.RecordBatch = batch) -> object:
                mine.send(batch)
                return mine.recv()

            ways = {"process": process, "multiprocessing": pickled, "in this process": lambda: None}
            for name, step in ways.items():
                mean = seconds_of(step, options.steps)
                if number:
                    took.setdefault(f"{name}, {rows} rows", []).append(mean * 1e6)
    trainer.teardown(state)
    mine.send(None)
    other.join()
    rows_taken = results.rows("µs", took)
    results.write(options.json, "process_trainer", rows_taken, steps=options.steps, columns=options.columns)
    print(f"{options.rounds} rounds of {options.steps} steps, {options.columns} columns of float64\n")
    print("| step | µs | min..max |\n|---|---|---|")
    for name, values in sorted(took.items(), key=lambda one: one[0].rpartition(", ")[2]):
        print(f"| {name} | {statistics.median(values):.1f} | {min(values):.1f}..{max(values):.1f} |")


if __name__ == "__main__":
    main()
