"""Several ranks: hostcore's loop beside a plain DistributedDataParallel loop, in the same processes, on the same model.

A perceptron of two hidden layers, SGD, batch 64 in memory on each rank, gloo, one thread a rank. In every process,
stretches of hostcore's loop and of the plain one take turns, at the same steps on all ranks, so that a drift of the
machine's speed hits both alike. Runs of one rank and of several are interleaved over rounds; the median stretch of each
run is taken, and the median of these printed. One rank trains without DistributedDataParallel in both loops.

    python benchmarks/ranks.py [--ranks 2] [--steps 2000] [--rounds 3] [--width 512] [--json]

It needs as many free cores as ranks. ``scaling`` is the rows a second of all ranks together, over those of one rank
times the number of ranks.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from hostcore.toolkit import parallelize
from hostcore_hookspecs import Capabilities, StepContext, StepResult

RESULT, WIDTH = "RANKS_RESULT", "RANKS_WIDTH"
BATCH_ROWS = 64
STRETCH = 100


class Perceptron:
    """The trainer: measures a stretch of steps as the host calls them, then trains as many in a loop of its own."""

    CAPABILITIES = Capabilities(distributed=True)

    def setup(self, ctx: StepContext) -> None:
        torch.set_num_threads(1)
        self.hosted: list[float] = []
        self.plain: list[float] = []
        self.began = 0.0

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
        if at == 0:
            if ctx.run_state.step:
                self.hosted.append((now - self.began) / STRETCH)
                now = self.train_plainly()
            self.began = now
        return StepResult(metrics={"loss": self.step(prepared_batch)})

    def train_plainly(self) -> float:
        began = time.perf_counter()
        for _ in range(STRETCH):
            self.step(self.batch)
        now = time.perf_counter()
        self.plain.append((now - began) / STRETCH)
        return now

    def state_dict(self, state: Any) -> dict[str, object]:
        return {}

    def load_state_dict(self, state: Any, payload: dict[str, object], ctx: StepContext) -> None:
        pass

    def teardown(self, state: Any, ctx: StepContext) -> None:
        if ctx.rank == 0:
            medians = [statistics.median(stretches[1:]) for stretches in (self.hosted, self.plain)]
            Path(os.environ[RESULT]).write_text(json.dumps(medians))


def measure(ranks: int, *, steps: int, width: int) -> tuple[float, float]:
    """Seconds a step in hostcore's loop and in the plain one.

    :raises SystemExit: With what the run wrote, when it failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        job = {"trainer": "ranks:Perceptron", "devices": ["cpu"] * ranks, "max_steps": steps}
        Path(folder, "job.json").write_text(json.dumps(job))
        Path(folder, "ranks.py").write_text(Path(__file__).read_text())
        environment = {**os.environ, RESULT: str(result), WIDTH: str(width), "OMP_NUM_THREADS": "1"}
        command = [str(Path(sys.executable).with_name("hostcore")), "run", "job.json"]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"the run with {ranks} ranks failed:\n{done.stderr}{done.stdout}")
        hosted, plain = json.loads(result.read_text())
        return hosted, plain


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=int, default=512, help="units of each hidden layer")
    parser.add_argument("--json", action="store_true", help="print every single result, instead of a table")
    options = parser.parse_args()
    counts = (1, options.ranks)
    results: dict[int, list[tuple[float, float]]] = {count: [] for count in counts}
    for number in range(options.rounds):
        for count in counts[:: 1 if number % 2 else -1]:
            results[count].append(measure(count, steps=options.steps, width=options.width))
            print(f"round {number + 1} of {options.rounds}, {count} ranks", file=sys.stderr)
    if options.json:
        print(json.dumps(results))
        return
    print("| ranks | plain, µs a step | hostcore, µs a step | added | scaling, plain | scaling, hostcore |")
    print("|---|---|---|---|---|---|")
    alone = [statistics.median(each) for each in zip(*results[1], strict=True)]
    for count in counts:
        hosted, plain = (statistics.median(each) for each in zip(*results[count], strict=True))
        added = statistics.median(hosted - plain for hosted, plain in results[count])
        scaling = f"{alone[1] / plain:.2f} | {alone[0] / hosted:.2f}"
        print(f"| {count} | {plain * 1e6:.0f} | {hosted * 1e6:.0f} | {added * 1e6:+.0f} | {scaling} |")


if __name__ == "__main__":
    main()
