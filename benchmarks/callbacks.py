"""What each built-in callback adds to a training step, against the same run without any, in the same process.

Linear 16 -> 1, SGD, one batch of 32 in memory, one thread, metric_every 10, no reporters, supervisor and worker in this
process. Runs without a callback and with one take turns, so that a drift of the machine's speed hits both alike: what a
callback adds in a round is the difference to the mean of the two runs without one beside it. A run is measured in
stretches of 500 steps, of which the first two are for warming up; its figure is the median of the others. The median
over the rounds is printed. ``--clock thread`` counts the time that the loop's thread itself works, for machines that
others use too. What grows with the model is small here: ``grad-clip`` and ``nonfinite-guard`` read all gradients once;
``--width 1024`` makes that a matrix of 1024 x 1024.

    python benchmarks/callbacks.py [--steps 10000] [--rounds 7] [--only grad-clip,profiler] [--width 16]
                                   [--clock wall]

===================== ==========================================================================
``early-stopping``    watches ``val/loss``; the validation itself comes after what is measured
``best-checkpoint``   the same
``lr-monitor``        one parameter group
``throughput``
``csv-metrics``
``grad-clip``         ``max_norm`` 1
``nonfinite-guard``   reads loss and gradients at every step
``… check_every 100`` reads them at every hundredth
``… skip``            decides before the update
``profiler``          between its start and the end of the run, when nothing is traced any more
``oom-hint``
===================== ==========================================================================
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

import attrs

import hostcore
from hostcore_hookspecs import StepResult

STRETCH = 500
WARMING_UP = 2

CLOCKS = {"wall": time.perf_counter, "thread": time.thread_time}

CALLBACKS: dict[str, Any] = {
    "early-stopping": "early-stopping",
    "best-checkpoint": "best-checkpoint",
    "lr-monitor": "lr-monitor",
    "throughput": "throughput",
    "csv-metrics": "csv-metrics",
    "grad-clip": {"use": "grad-clip", "max_norm": 1.0},
    "nonfinite-guard": "nonfinite-guard",
    "nonfinite-guard, check_every 100": {"use": "nonfinite-guard", "check_every": 100},
    "nonfinite-guard, skip": {"use": "nonfinite-guard", "action": "skip"},
    "profiler": "profiler",
    "oom-hint": "oom-hint",
}


class Trainer:
    """Takes the time of stretches of its own steps."""

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        width: int
        clock: Literal["wall", "thread"]
        #: Where the microseconds a step of each stretch are written.
        result: str

    def setup(self) -> None:
        import torch

        torch.set_num_threads(1)
        self.step = 0
        self.marks: list[float] = []

    def configure(self, ctx: Any) -> Any:
        import torch

        self.clock = CLOCKS[ctx.hyperparams.clock]
        width = ctx.hyperparams.width
        model = torch.nn.Linear(width, 1 if width == 16 else width)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        ctx.register_optimizer(optimizer)
        self.batch = torch.randn(32, width)
        return model, optimizer

    def prepare_batch(self, raw_batch: Any) -> Any:
        if self.step % STRETCH == 0:
            self.marks.append(self.clock())
        self.step += 1
        return self.batch

    def train_step(self, prepared_batch: Any, state: Any) -> StepResult:
        model, optimizer = state
        loss = model(prepared_batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return StepResult(metrics={"loss": loss.detach()})

    def validate_step(self, prepared_batch: Any, state: Any) -> StepResult:
        return StepResult(metrics={"loss": 1.0})

    def state_dict(self, state: Any) -> dict[str, object]:
        return {"model": state[0].state_dict()}

    def load_state_dict(self, state: Any, payload: dict[str, Any]) -> None:
        state[0].load_state_dict(payload["model"])

    def teardown(self, ctx: Any) -> None:
        stretches = [(end - begin) / STRETCH * 1e6 for begin, end in zip(self.marks, self.marks[1:], strict=False)]
        Path(ctx.hyperparams.result).write_text(json.dumps(stretches))


def step_time(folder: Path, callbacks: list[Any], *, steps: int, run_id: str, **hyperparams: Any) -> float:
    """Microseconds a step."""
    result = folder / f"{run_id}.json"
    job = {
        "trainer": "callbacks:Trainer",
        "run_id": run_id,
        "hyperparams": {**hyperparams, "result": str(result)},
        "device": "cpu",
        "max_steps": steps,
        "validation": {"source": "mock", "num_rows": 32},
        "validate_every": steps,
        "callbacks": callbacks,
        "terminal": False,
    }
    ended = hostcore.run(job)
    assert ended.status == "succeeded", ended.error
    return float(statistics.median(json.loads(result.read_text())[WARMING_UP:]))


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--steps", type=int, default=10_000)
    ask.add_argument("--rounds", type=int, default=7)
    ask.add_argument("--only", help="comma separated; a callback's name stands for all its rows")
    ask.add_argument("--width", type=int, default=16)
    ask.add_argument("--clock", choices=CLOCKS, default="wall")
    options = ask.parse_args()
    if options.steps < (WARMING_UP + 2) * STRETCH:
        ask.error(f"--steps must be at least {(WARMING_UP + 2) * STRETCH}")
    only = options.only.split(",") if options.only else list(CALLBACKS)
    chosen = [name for name in CALLBACKS if name in only or name.partition(",")[0] in only]
    plain: list[float] = []
    added: dict[str, list[float]] = {name: [] for name in chosen}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["HOSTCORE_RUNS_DIR"] = str(folder / "runs")
        sys.path.insert(0, str(Path(__file__).parent))

        def measure(callbacks: list[Any], run_id: str) -> float:
            how = {"width": options.width, "clock": options.clock}
            return step_time(folder, callbacks, steps=options.steps, run_id=run_id, **how)

        measure([], "warming-up")
        for number in range(options.rounds):
            before = measure([], f"plain-{number}")
            for place, callback in enumerate(chosen):
                between = measure([CALLBACKS[callback]], f"with-{number}-{place}")
                after = measure([], f"plain-{number}-{place}")
                added[callback].append(between - (before + after) / 2)
                plain.append(after)
                before = after
    how = f"{options.steps} steps, {options.rounds} rounds, {options.clock} clock"
    print(f"without callbacks: {statistics.median(plain):.0f} µs a step; {how}")
    print("| callback | adds µs/step | min..max |\n|---|---|---|")
    for callback, values in added.items():
        print(f"| {callback} | {statistics.median(values):.1f} | {min(values):.1f}..{max(values):.1f} |")


if __name__ == "__main__":
    main()
