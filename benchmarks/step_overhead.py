"""What a framework's loop adds to a training step, over a bare PyTorch loop in the same process; hostcore beside peers.

Linear 16 -> 1, SGD, batch 32, one thread. In every process, stretches of 500 steps of the framework's loop and of the
bare loop take turns, so that a drift of the machine's speed hits both alike; a stretch's overhead is its difference to
the mean of the two bare ones beside it. Processes of all ways are interleaved over rounds; the median stretch of each
process is taken, and the median of these printed. Beside wall time stands what it is made of: processor time of the
loop's thread, of the worker's other threads, and of the process that started it; how often the thread waited or lost
its core, page faults, garbage collections, blocks of Python's memory that it keeps. Ratios are to ignite in the same
round. Peers are measured if they are installed in this environment; ``step_instructions.py`` counts where a machine is
too busy for times:

    pip install lightning pytorch-ignite
    python benchmarks/step_overhead.py [--steps 10000] [--rounds 5] [--only hostcore,ignite] [--json FILE]

====================  ===========================================================================
``hostcore``          ``hostcore run``, metric_every 10, default reporters: as users run it
``hostcore_silent``   the same with metric_every 0 and no reporters: no events
``hostcore_feed``     ``hostcore_silent`` with rows from Parquet in batches of 32: two columns, made tensors
``hostcore_callback`` the first with one callback that implements on_batch_end
``hostcore_wrapped``  the first with one callback that wraps train_step
``ignite``            a bare Engine with its lists of handlers
``lightning``         a Trainer without logger, checkpoints, progress bar
====================  ===========================================================================
"""

import argparse
import gc
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import results

RESULT = "STEP_OVERHEAD_RESULT"
STEPS = "STEP_OVERHEAD_STEPS"


STRETCH = 500
#: What is taken of each stretch: µs a step, and counts in 1,000 steps.
TAKEN = {
    "wall": "wall µs",
    "thread": "loop's thread, CPU µs",
    "others": "other threads, CPU µs",
    "supervisor": "parent process, CPU µs",
    "waits": "waits",
    "preempted": "core lost",
    "faults": "page faults",
    "collections": "collections",
    "blocks": "blocks of memory kept",
}


def taken() -> dict[str, float]:
    """What has been used up to now, by the names of :data:`TAKEN`; times in microseconds, counts in thousandths."""
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    thread = time.thread_time()
    return {
        "thread": thread * 1e6,
        "others": (time.process_time() - thread) * 1e6,
        "supervisor": processor_time(os.getppid()) * 1e6,
        "waits": usage.ru_nvcsw * 1e3,
        "preempted": usage.ru_nivcsw * 1e3,
        "faults": usage.ru_minflt * 1e3,
        "collections": sum(one["collections"] for one in gc.get_stats()) * 1e3,
        "blocks": sys.getallocatedblocks() * 1e3,
        "wall": time.perf_counter() * 1e6,
    }


def processor_time(process: int) -> float:
    """Of all threads of a process, in seconds; 0 where the kernel does not say."""
    threads = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in threads) / 1e9


class Source:
    """An in-memory batch, handed out n times; runs the bare loop between two stretches of the framework's."""

    def __init__(self, steps: int) -> None:
        import torch

        torch.manual_seed(0)
        self.batch = (torch.randn(32, 16), torch.randn(32, 1))
        self.steps = steps
        self.bare: list[dict[str, float]] = []
        self.framework: list[dict[str, float]] = []
        self._parts = parts()

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Any]:
        for step in range(self.steps):
            self.tick(step)
            yield self.batch

    def tick(self, step: int) -> None:
        """Called before every step."""
        if step % STRETCH:
            return
        if step:
            self.framework.append(self._since())
        self._begin()
        self._run_bare()
        self.bare.append(self._since())
        self._begin()

    def _begin(self) -> None:
        self._began = taken()

    def _since(self) -> dict[str, float]:
        now = taken()
        return {name: (now[name] - self._began[name]) / STRETCH for name in TAKEN}

    def _run_bare(self) -> None:
        model, optimizer, loss_fn = self._parts
        for _ in range(STRETCH):
            x, y = self.batch
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    def answer(self) -> dict[str, dict[str, float]]:
        """Of a step of the bare loop, and of the framework's over it. The first stretches are for warming up."""
        both = list(zip(self.bare, self.bare[1:], self.framework, strict=False))[2:]
        over = {
            name: statistics.median(took[name] - (before[name] + after[name]) / 2 for before, after, took in both)
            for name in TAKEN
        }
        return {
            "bare": {name: statistics.median(before[name] for before, _, _ in both) for name in TAKEN},
            "over": over,
        }


def parts() -> tuple[Any, Any, Callable[..., Any]]:
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(16, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.01), torch.nn.functional.mse_loss


class Trainer:
    """The same step as a hostcore trainer."""

    source_class = Source

    def setup(self) -> None:
        import torch

        from hostcore_hookspecs import StepResult
        from hostcore_toolkit import to_tensors  # the peers' environments may lack it

        torch.set_num_threads(1)
        self.StepResult, self.to_tensors = StepResult, to_tensors

    def configure(self) -> Any:
        self.source, self.step = self.source_class(int(os.environ[STEPS])), -1
        self.batch = self.source.batch
        return parts()

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> Any:
        self.step = step = self.step + 1
        self.source.tick(step)
        if raw_batch is not None:
            self.to_tensors(raw_batch, ctx=ctx)
        return self.batch

    def train_step(self, prepared_batch: Any, state: Any) -> Any:
        model, optimizer, loss_fn = state
        x, y = prepared_batch
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return self.StepResult(metrics={"loss": loss})  # as ignite's step returns it, with its graph

    def state_dict(self, state: Any) -> dict[str, object]:
        return {"model": state[0].state_dict()}

    def load_state_dict(self, state: Any, payload: dict[str, object]) -> None:
        raise NotImplementedError("this run is never resumed")

    def teardown(self) -> None:
        Path(os.environ[RESULT]).write_text(json.dumps(self.source.answer()))


class BatchEnd:
    """A callback with one hook that is called at every step."""

    def on_batch_end(self) -> None:
        """Nothing: the call itself is measured."""


def _wrapping() -> Any:
    from hostcore_hookspecs import hookimpl

    class Wrapping:
        @hookimpl(wrapper=True)
        def train_step(self) -> Any:
            return (yield)

    return Wrapping


def __getattr__(name: str) -> Any:
    """``step_overhead:Wrapping``, made when a job names it: the peers' processes have no hostcore to import."""
    if name == "Wrapping":
        return _wrapping()
    raise AttributeError(name)


def hostcore(steps: int, **job: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        # Import paths are searched in the job file's folder, so the job lies beside this module.
        for module in (__file__, results.__file__):
            (place / Path(module).name).symlink_to(Path(module).resolve())
        if "dataset" in job:
            write_rows(place / "rows.parquet", steps)
        (place / "job.json").write_text(json.dumps({"trainer": "step_overhead:Trainer", "max_steps": steps, **job}))
        environment = {
            **os.environ,
            STEPS: str(steps),
            RESULT: str(place / "result.json"),
            "HOSTCORE_RUNS_DIR": str(place / "runs"),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "hostcore", "run", str(place / "job.json")]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        answer: dict[str, Any] = json.loads((place / "result.json").read_text())
        return answer


def write_rows(file: Path, steps: int) -> None:
    """Two columns, with rows for so many steps of 32."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"x": np.arange(32 * steps, dtype=np.float32), "y": np.arange(32 * steps, dtype=np.int64)}
    pq.write_table(pa.table(columns), file, row_group_size=65_536)


def peer(name: str, steps: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--peer", name, "--steps", str(steps)]
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, capture_output=True, text=True
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def ignite(steps: int) -> Source:
    from ignite.engine import Engine

    source = Source(steps)
    model, optimizer, loss_fn = parts()

    def step(engine: Any, batch: Any) -> Any:
        loss = loss_fn(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    Engine(step).run(source, max_epochs=1)
    return source


def lightning(steps: int) -> Source:
    import logging

    import lightning as pl
    import torch

    for logger in ("lightning", "lightning.pytorch"):
        logging.getLogger(logger).setLevel(logging.ERROR)

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, _, self.loss_fn = parts()

        def training_step(self, batch: Any, index: int) -> Any:
            return self.loss_fn(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    source = Source(steps)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    pl.Trainer(max_epochs=1, accelerator="cpu", devices=1, enable_model_summary=False, **quiet).fit(Module(), source)
    return source


DATASET = {"source": "parquet", "parquet_paths": "rows.parquet", "batch_size": 32}
PEERS = {"ignite": (ignite, "ignite"), "lightning": (lightning, "lightning")}
WAYS: dict[str, Callable[[int], dict[str, Any]]] = {
    "hostcore": hostcore,
    "hostcore_silent": lambda steps: hostcore(steps, metric_every=0, terminal=False),
    "hostcore_feed": lambda steps: hostcore(steps, metric_every=0, terminal=False, dataset=DATASET),
    "hostcore_callback": lambda steps: hostcore(steps, callbacks=["step_overhead:BatchEnd"]),
    "hostcore_wrapped": lambda steps: hostcore(steps, callbacks=["step_overhead:Wrapping"]),
    "ignite": lambda steps: peer("ignite", steps),
    "lightning": lambda steps: peer("lightning", steps),
}


def run_peer(name: str, steps: int) -> None:
    import torch

    torch.set_num_threads(1)
    print(json.dumps(PEERS[name][0](steps).answer()))


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--steps", type=int, default=10_000)
    ask.add_argument("--rounds", type=int, default=5)
    ask.add_argument("--only", default=",".join(WAYS), help="comma separated")
    ask.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    results.add_option(ask)
    options = ask.parse_args()
    if options.peer:
        run_peer(options.peer, options.steps)
        return
    wanted = options.only.split(",")
    missing = [name for name in wanted if name in PEERS and not importlib.util.find_spec(PEERS[name][1])]
    ways = [name for name in WAYS if name in wanted and name not in missing]
    rounds = [{name: WAYS[name](options.steps) for name in ways} for _ in range(options.rounds)]
    bare = statistics.median(answer["bare"]["wall"] for each in rounds for answer in each.values())
    print(f"bare loop: {bare:.0f} µs a step; {options.steps} steps, {options.rounds} rounds\n")
    print(f"| loop | {' | '.join(TAKEN.values())} | of ignite, wall | of ignite, CPU |\n|{'---|' * (len(TAKEN) + 3)}")
    for name in ways:
        cells = [in_words([each[name]["over"][what] for each in rounds]) for what in TAKEN]
        for cost in (lambda over: over["wall"], processor_time_of):
            ratios = [cost(each[name]["over"]) / cost(each["ignite"]["over"]) for each in rounds if "ignite" in each]
            cells.append(in_words(ratios, digits=2) if ratios else "-")
        print(f"| {name} | {' | '.join(cells)} |")
    for name in missing:
        print(f"| {name} | not installed here |{' |' * (len(TAKEN) + 1)}")
    of_each = {name: [each[name]["over"] for each in rounds] for name in ways}
    found = {
        **results.rows("µs", {f"{name}, wall": [over["wall"] for over in of_each[name]] for name in ways}),
        **results.rows("µs", {f"{name}, CPU": [processor_time_of(over) for over in of_each[name]] for name in ways}),
    }
    results.write(options.json, "step_overhead", found, steps=options.steps)


def processor_time_of(over: dict[str, float]) -> float:
    """Of all threads and processes, in µs a step."""
    return over["thread"] + over["others"] + over["supervisor"]


def in_words(values: list[float], *, digits: int = 1) -> str:
    """Median, and the least and most where they differ."""
    low, median, high = (f"{one:.{digits}f}" for one in (min(values), statistics.median(values), max(values)))
    return median if low == high else f"{median} ({low}..{high})"


if __name__ == "__main__":
    main()
