"""Several ranks: hostcore's loop beside a plain DistributedDataParallel loop, in the same processes, on the same model.

A perceptron of two hidden layers, SGD, batch 64 in memory on each rank, gloo, one thread a rank. In every process,
stretches of hostcore's loop and of the plain one take turns, at the same steps on all ranks, so that a drift of the
machine's speed hits both alike. Runs of one rank and of several are interleaved over rounds; the median stretch of each
run is taken, and the median of these printed. One rank trains without DistributedDataParallel in both loops.

    python benchmarks/ranks.py [--ranks 2] [--steps 2000] [--rounds 3] [--width 512] [--json FILE]

It needs as many free cores as ranks. ``added`` is the median over all stretches of the difference to the plain stretch
beside it, and ``in the loop`` what the first rank's loop spends outside ``train_step``: the host's own work, and its
waiting for other ranks, but not what a step is slower because of the host's threads and processes. ``CPU`` is what all
threads of the first rank's process work longer than in the plain stretches. ``scaling`` is the rows a second of all
ranks together, over those of one rank times the number of ranks.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import results
import torch

from hostcore_hookspecs import Capabilities, StepContext, StepResult
from hostcore_toolkit import parallelize

RESULT, WIDTH = "RANKS_RESULT", "RANKS_WIDTH"
BATCH_ROWS = 64
STRETCH = 100
#: What a run measures, in seconds a step.
MEASURED = ("hostcore", "plain", "added", "in the loop", "CPU added")


class Perceptron:
    """The trainer: measures a stretch of steps as the host calls them, then trains as many in a loop of its own."""

    CAPABILITIES = Capabilities(distributed=True)

    def setup(self, ctx: StepContext) -> None:
        torch.set_num_threads(1)
        self.hosted: list[float] = []
        self.plain: list[float] = []
        self.host: list[float] = []
        self.cpu: list[float] = []
        self.began = self.began_cpu = self.left = self.outside = 0.0

    def configure(self, ctx: StepContext) -> Any:
        width = int(os.environ[WIDTH])
        layers = [torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU()]
        self.model = parallelize(torch.nn.Sequential(*layers, torch.nn.Linear(width, 10)), ctx)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.batch = (torch.randn(BATCH_ROWS, 64), torch.randint(0, 10, (BATCH_ROWS,)))
        return self

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: StepContext) -> Any:
        return self.batch

    def step(self, batch: Any) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def train_step(self, prepared_batch: Any, state: Any, ctx: StepContext) -> StepResult:
        at = ctx.run_state.step % STRETCH
        now = time.perf_counter()
        self.outside += now - self.left
        if at == 0:
            if ctx.run_state.step:
                self.hosted.append((now - self.began) / STRETCH)
                self.host.append(self.outside / STRETCH)
                self.train_plainly((time.process_time() - self.began_cpu) / STRETCH)
            self.outside = 0.0
            self.began, self.began_cpu = time.perf_counter(), time.process_time()
        result = StepResult(metrics={"loss": self.step(prepared_batch)})
        self.left = time.perf_counter()
        return result

    def train_plainly(self, cpu_hosted: float) -> None:
        began, began_cpu = time.perf_counter(), time.process_time()
        for _ in range(STRETCH):
            self.step(self.batch)
        self.plain.append((time.perf_counter() - began) / STRETCH)
        self.cpu.append(cpu_hosted - (time.process_time() - began_cpu) / STRETCH)

    def state_dict(self, state: Any) -> dict[str, object]:
        return {}

    def load_state_dict(self, state: Any, payload: dict[str, object], ctx: StepContext) -> None:
        pass

    def teardown(self, state: Any, ctx: StepContext) -> None:
        if ctx.rank == 0:
            added = [hosted - plain for hosted, plain in zip(self.hosted, self.plain, strict=True)]
            measured = (self.hosted, self.plain, added, self.host, self.cpu)
            medians = [statistics.median(stretches[1:]) for stretches in measured]
            Path(os.environ[RESULT]).write_text(json.dumps(medians))


def measure(ranks: int, *, steps: int, width: int) -> list[float]:
    """Seconds a step, for each of ``MEASURED``.

    :raises SystemExit: With what the run wrote, when it failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        job = {"trainer": "ranks:Perceptron", "devices": ["cpu"] * ranks, "max_steps": steps}
        Path(folder, "job.json").write_text(json.dumps(job))
        for module in (__file__, results.__file__):
            shutil.copy(module, folder)
        environment = {**os.environ, RESULT: str(result), WIDTH: str(width), "OMP_NUM_THREADS": "1"}
        command = [str(Path(sys.executable).with_name("hostcore")), "run", "job.json"]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"the run with {ranks} ranks failed:\n{done.stderr}{done.stdout}")
        measured: list[float] = json.loads(result.read_text())
        return measured


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=int, default=512, help="units of each hidden layer")
    results.add_option(parser)
    options = parser.parse_args()
    counts = (1, options.ranks)
    found: dict[int, list[list[float]]] = {count: [] for count in counts}
    for number in range(options.rounds):
        for count in counts[:: 1 if number % 2 else -1]:
            found[count].append(measure(count, steps=options.steps, width=options.width))
            print(f"round {number + 1} of {options.rounds}, {count} ranks", file=sys.stderr)
    by_count = {count: [[one * 1e6 for one in each] for each in zip(*found[count], strict=True)] for count in counts}
    by_row = {
        f"ranks {count}, {name}": values
        for count, columns in by_count.items()
        for name, values in zip(MEASURED, columns, strict=True)
    }
    results.write(options.json, "ranks", results.rows("µs", by_row), steps=options.steps, width=options.width)
    print("| ranks | plain, µs a step | hostcore | added | min..max | in the loop | CPU | scaling, plain | hostcore |")
    print("|---|---|---|---|---|---|---|---|---|")
    alone = [statistics.median(each) for each in by_count[1]]
    for count, columns in by_count.items():
        hosted, plain, added, loop, cpu = (statistics.median(each) for each in columns)
        spread = f"{min(columns[2]):+.0f}..{max(columns[2]):+.0f}"
        scaling = f"{alone[1] / plain:.2f} | {alone[0] / hosted:.2f}"
        print(
            f"| {count} | {plain:.0f} | {hosted:.0f} | {added:+.0f} ({added / plain:+.1%}) | {spread} "
            f"| {loop:.0f} | {cpu:+.0f} | {scaling} |"
        )


if __name__ == "__main__":
    main()
