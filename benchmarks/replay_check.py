"""What the callback ``replay-check`` adds to a step, beside the same run without it, in the same process.

A transformer encoder of 4 layers, width 128, trained on one batch of 16 x 64 vectors in memory with AdamW and dropout,
on two threads. Runs take turns, so that a drift of the machine's speed hits all alike. A row is CPU seconds of the
process (``--clock wall``: seconds) over the steps behind the first ten; the median over the rounds.

    python benchmarks/replay_check.py [--steps 210] [--rounds 5] [--clock cpu] [--json FILE]
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import results
import torch
from torch import nn

import hostcore
from hostcore_hookspecs import Capabilities, StepResult

WARMING_UP = 10
CLOCKS = {"cpu": time.process_time, "wall": time.perf_counter}
#: Settings of the callback, by row.
ROWS: Mapping[str, Mapping[str, Any] | None] = {
    "without": None,
    "every 100": {"every": 100},
    "every 10": {"every": 10},
    "every 1": {"every": 1},
}
TAKEN: list[float] = []


class Trainer:
    CAPABILITIES = Capabilities(repeatable=True)

    def configure(self) -> Any:
        torch.set_num_threads(2)
        layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, dropout=0.1)
        model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.batch = torch.randn(16, 64, 128)
        return {"model": model, "optimizer": torch.optim.AdamW(model.parameters())}

    def prepare_batch(self) -> Any:
        return self.batch

    def train_step(self, prepared_batch: Any, state: Any) -> StepResult:
        loss = (state["model"](prepared_batch) - prepared_batch).square().mean()
        loss.backward()
        state["optimizer"].step()
        state["optimizer"].zero_grad()
        return StepResult(metrics={"loss": loss.detach()})


class Watch:
    """Takes the time of the steps behind the first ones."""

    def on_batch_end(self, run_state: Any, ctx: Any) -> None:
        clock = CLOCKS[ctx.hyperparams["clock"]]
        if run_state.step == WARMING_UP:
            self.began = clock()
        elif run_state.step == run_state.total_steps:
            TAKEN.append(clock() - self.began)


def measure(row: str, options: argparse.Namespace, number: int) -> float:
    """Train once; seconds a step."""
    settings = ROWS[row]
    job = {
        "run_id": f"{row.replace(' ', '-')}-{number}",
        "trainer": "replay_check:Trainer",
        "hyperparams": {"clock": options.clock},
        "callbacks": ["replay_check:Watch", *([] if settings is None else [{"use": "replay-check", **settings}])],
        "max_steps": options.steps,
        "metric_every": 50,
        "device": "cpu",
        "terminal": False,
    }
    ended = hostcore.run(job)
    assert ended.status == "succeeded", ended.error
    return float(sys.modules["replay_check"].TAKEN.pop()) / (options.steps - WARMING_UP)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=210)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clock", choices=CLOCKS, default="cpu")
    results.add_option(parser)
    options = parser.parse_args()
    values: dict[str, list[float]] = {row: [] for row in ROWS}
    sys.path.insert(0, str(Path(__file__).parent))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOSTCORE_RUNS_DIR"] = folder
        for number in range(options.rounds):
            for row in ROWS:
                values[row].append(measure(row, options, number))
    alone = statistics.median(values["without"])
    for row, taken in values.items():
        middle = statistics.median(taken)
        print(f"{row:10} {1e3 * middle:8.3f} ms a step {middle / alone - 1:+8.1%}")
    results.write(options.json, "replay_check", results.rows("s", values), steps=options.steps, clock=options.clock)


if __name__ == "__main__":
    main()
