"""What each built-in callback adds to a training step, against the same run without any, in the same process.

Linear 16 -> 1, SGD, one batch of 32 in memory, one thread, metric_every 50, no reporters, supervisor and worker in this
process. Runs without a callback and with one take turns, so that a drift of the machine's speed hits both alike: what a
callback adds in a round is the difference to the mean of the two runs without one beside it. Each run is measured in
pieces of 46 steps between two cadence steps, and of 4 steps around a cadence step; the first 20 of each are for warming
up, and its figures are the medians of the others. The median over the rounds is printed.

=================== ================================================================================================
``between``         microseconds that a step takes longer, away from cadence steps
``at a cadence``    microseconds that a cadence step takes longer than the steps between, with the step behind it
``at every 10``     microseconds a step of a job with the default ``metric_every``: computed from the two
=================== ================================================================================================

``--clock thread`` counts the time that the loop's thread itself works, for machines that others use too. ``--width 0``
makes the step do nothing, which leaves the callbacks' own work. What grows with the model is small here: ``grad-clip``
and ``nonfinite-guard`` read all gradients once; ``--width 1024`` makes that a matrix of 1024 x 1024. The rows in
parentheses are peers: what a trainer pays that calls torch itself in place of the callback.

    python benchmarks/callbacks.py [--steps 10000] [--rounds 7] [--only grad-clip,profiler] [--width 16]
                                   [--clock wall] [--json FILE]

====================== ==========================================================================
``early-stopping``     watches ``val/loss``; the validation itself comes after what is measured
``best-checkpoint``    the same
``lr-monitor``         one parameter group
``throughput``
``csv-metrics``
``grad-clip``          ``max_norm`` 1
``(clip_grad_norm_)``  called by the trainer before ``optimizer.step``
``nonfinite-guard``    reads loss and gradients at every step
``… check_every 100``  reads them at every hundredth
``… skip``             decides before the update
``(get_total_norm)``   and whether it is finite, read by the trainer before ``optimizer.step``
``profiler``           between its start and the end of the run, when nothing is traced any more
``oom-hint``
``(records)``          records a tensor at every step with ``ctx.record``
``(wraps)``            adds it in a wrapper around ``train_step``
``(when recorded)``    the same, marked ``@when_recorded``
``(looks on)``         an ``on_batch_end`` that does nothing
====================== ==========================================================================
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
import results

import hostcore
from hostcore_hookspecs import StepResult, hookimpl, when_recorded

CADENCE = 50
#: Steps before and behind a cadence step that are measured with it.
MARGIN = 2
WARMING_UP = 20

CLOCKS = {"wall": time.perf_counter, "thread": time.thread_time}

#: What the trainer does itself, in place of a callback.
CLIP, GUARD = {"by_hand": "clip"}, {"by_hand": "guard"}

CALLBACKS: dict[str, Any] = {
    "early-stopping": "early-stopping",
    "best-checkpoint": "best-checkpoint",
    "lr-monitor": "lr-monitor",
    "throughput": "throughput",
    "csv-metrics": "csv-metrics",
    "grad-clip": {"use": "grad-clip", "max_norm": 1.0},
    "(clip_grad_norm_)": CLIP,
    "nonfinite-guard": "nonfinite-guard",
    "nonfinite-guard, check_every 100": {"use": "nonfinite-guard", "check_every": 100},
    "nonfinite-guard, skip": {"use": "nonfinite-guard", "action": "skip"},
    "(get_total_norm)": GUARD,
    "profiler": "profiler",
    "oom-hint": "oom-hint",
    "(records)": "callbacks:Records",
    "(wraps)": "callbacks:Wraps",
    "(when recorded)": "callbacks:WrapsWhenRecorded",
    "(looks on)": "callbacks:LooksOn",
}


class Trainer:
    """Takes the time of pieces of its own run, in turns between two cadence steps and around one."""

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        width: int
        clock: Literal["wall", "thread"]
        #: Where the microseconds of each piece are written: those between, and those around a cadence step.
        result: str
        by_hand: Literal["", "clip", "guard"] = ""

    def setup(self) -> None:
        import torch

        torch.set_num_threads(1)
        self.step = 0
        self.marks: list[float] = []

    def configure(self, ctx: Any) -> Any:
        import torch

        self.clock = CLOCKS[ctx.hyperparams.clock]
        width = ctx.hyperparams.width
        model = torch.nn.Linear(width or 1, width if width > 16 else 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        ctx.register_optimizer(optimizer)
        self.batch = torch.randn(32, width)
        self.nothing = StepResult(metrics={"loss": 1.0}) if width == 0 else None
        self.before_update = {"": None, "clip": clip, "guard": guard}[ctx.hyperparams.by_hand]
        return model, optimizer

    def prepare_batch(self, raw_batch: Any) -> Any:
        if self.step % CADENCE in (MARGIN, CADENCE - MARGIN):
            self.marks.append(self.clock())
        self.step += 1
        return self.batch

    def train_step(self, prepared_batch: Any, state: Any) -> StepResult:
        if self.nothing is not None:
            return self.nothing
        model, optimizer = state
        loss = model(prepared_batch).square().mean()
        loss.backward()
        if self.before_update is not None:
            self.before_update(model)
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
        pieces = [(end - begin) * 1e6 for begin, end in zip(self.marks, self.marks[1:], strict=False)]
        Path(ctx.hyperparams.result).write_text(json.dumps([pieces[::2], pieces[1::2]]))


class Records:
    """Adds a metric to every step as the contract has it."""

    def on_train_begin(self) -> None:
        import torch

        self.value = torch.tensor(1.0)

    def on_batch_end(self, ctx: Any) -> None:
        ctx.record("mine", self.value)


class Wraps:
    """Adds a metric to every step around it."""

    def on_train_begin(self) -> None:
        import torch

        self.value = torch.tensor(1.0)

    @hookimpl(wrapper=True)
    def train_step(self) -> Any:
        result = yield
        return attrs.evolve(result, metrics={**result.metrics, "mine": self.value})


class WrapsWhenRecorded(Wraps):
    """The same where metrics are recorded."""

    @hookimpl(wrapper=True)
    @when_recorded
    def train_step(self) -> Any:
        result = yield
        return attrs.evolve(result, metrics={**result.metrics, "mine": self.value})


class LooksOn:
    """Is called, and does nothing."""

    def on_batch_end(self) -> None:
        pass


def clip(model: Any) -> None:
    """What stands in many training loops."""
    import torch

    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def guard(model: Any) -> None:
    """The same for gradients that are not finite."""
    import torch

    norm = torch.nn.utils.get_total_norm([one.grad for one in model.parameters()])
    if not torch.isfinite(norm):
        raise FloatingPointError


def times(folder: Path, wanted: Any, *, steps: int, run_id: str, **hyperparams: Any) -> tuple[float, float]:
    """Microseconds of a step between cadence steps, and how much longer those around one are, together."""
    result = folder / f"{run_id}.json"
    by_hand = wanted if wanted in (CLIP, GUARD) else {}
    job = {
        "trainer": "callbacks:Trainer",
        "run_id": run_id,
        "hyperparams": {**hyperparams, **by_hand, "result": str(result)},
        "device": "cpu",
        "max_steps": steps,
        "metric_every": CADENCE,
        "validation": {"source": "mock", "num_rows": 32},
        "validate_every": steps,
        "callbacks": [] if wanted is None or by_hand else [wanted],
        "terminal": False,
    }
    ended = hostcore.run(job)
    assert ended.status == "succeeded", ended.error
    between, around = (statistics.median(pieces[WARMING_UP:]) for pieces in json.loads(result.read_text()))
    step = between / (CADENCE - 2 * MARGIN)
    return step, around - 2 * MARGIN * step


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--steps", type=int, default=10_000)
    ask.add_argument("--rounds", type=int, default=7)
    ask.add_argument("--only", help="comma separated; a callback's name stands for all its rows")
    ask.add_argument("--width", type=int, default=16, help="0: a step that does nothing")
    ask.add_argument("--clock", choices=CLOCKS, default="wall")
    results.add_option(ask)
    options = ask.parse_args()
    fewest = (WARMING_UP + 20) * CADENCE
    if options.steps < fewest:
        ask.error(f"--steps must be at least {fewest}")
    only = options.only.split(",") if options.only else list(CALLBACKS)
    chosen = [name for name in CALLBACKS if name in only or name.partition(",")[0] in only]
    plain: list[float] = []
    added: dict[str, list[tuple[float, float]]] = {name: [] for name in chosen}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["HOSTCORE_RUNS_DIR"] = str(folder / "runs")
        sys.path.insert(0, str(Path(__file__).parent))

        def measure(wanted: Any, run_id: str) -> tuple[float, float]:
            how = {"width": options.width, "clock": options.clock}
            return times(folder, wanted, steps=options.steps, run_id=run_id, **how)

        measure(None, "warming-up")
        for number in range(options.rounds):
            before = measure(None, f"plain-{number}")
            for place, callback in enumerate(chosen):
                with_it = measure(CALLBACKS[callback], f"with-{number}-{place}")
                after = measure(None, f"plain-{number}-{place}")
                neither = [(one + other) / 2 for one, other in zip(before, after, strict=True)]
                added[callback].append((with_it[0] - neither[0], with_it[1] - neither[1]))
                plain.append(after[0])
                before = after
    by_row = {"without callbacks": plain}
    for callback, values in added.items():
        by_row[f"{callback}, between"], by_row[f"{callback}, at a cadence"] = map(list, zip(*values, strict=True))
    sizes = {"steps": options.steps, "width": options.width, "clock": options.clock}
    results.write(options.json, "callbacks", results.rows("µs", by_row), **sizes)
    how = f"{options.steps} steps, {options.rounds} rounds, {options.clock} clock, width {options.width}"
    print(f"without callbacks: {statistics.median(plain):.1f} µs a step between cadences; {how}")
    print("| callback | between, µs/step | min..max | at a cadence, µs | min..max | at every 10, µs/step |")
    print("|---|---|---|---|---|---|")
    for callback, values in added.items():
        (between, *spread), (around, *spread_around) = (
            (statistics.median(each), min(each), max(each)) for each in zip(*values, strict=True)
        )
        print(
            f"| {callback} | {between:.1f} | {spread[0]:.1f}..{spread[1]:.1f} "
            f"| {around:.0f} | {spread_around[0]:.0f}..{spread_around[1]:.0f} | {between + around / 10:.1f} |"
        )


if __name__ == "__main__":
    main()
