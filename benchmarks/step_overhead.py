"""Host time per training step: hostcore's loop beside a bare PyTorch loop, in the same process, on the same model.

Linear 16 -> 1, SGD, batch 32 in memory (the feed is measured apart), one thread. In every process, stretches of 500
steps of the framework's loop and of the bare loop take turns, so that a drift of the machine's speed hits both alike; a
stretch's overhead is its difference to the mean of the two bare ones beside it. Processes of all ways are interleaved
over rounds; the median stretch of each process is taken, and the median of these printed. Peers are measured if they
are installed in this environment:

    pip install lightning pytorch-ignite
    python benchmarks/step_overhead.py [--steps 10000] [--rounds 5] [--only hostcore,ignite]

====================  ===========================================================================
``hostcore``          ``hostcore run``, metric_every 10, default reporters: as users run it
``hostcore_silent``   the same with metric_every 0 and no reporters: no events
``hostcore_callback`` the first with one callback that implements on_batch_end
``hostcore_wrapped``  the first with one callback that wraps train_step
``ignite``            a bare Engine with its lists of handlers
``lightning``         a Trainer without logger, checkpoints, progress bar
====================  ===========================================================================
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

RESULT = "STEP_OVERHEAD_RESULT"
STEPS = "STEP_OVERHEAD_STEPS"


STRETCH = 500


class Source:
    """An in-memory batch, handed out n times; runs the bare loop between two stretches of the framework's."""

    def __init__(self, steps: int) -> None:
        import torch

        torch.manual_seed(0)
        self.batch = (torch.randn(32, 16), torch.randn(32, 1))
        self.steps = steps
        self.bare: list[float] = []
        self.framework: list[float] = []
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
        now = time.perf_counter()
        if step:
            self.framework.append((now - self._since) / STRETCH * 1e6)
        self.bare.append(self._bare_stretch())
        self._since = time.perf_counter()

    def _bare_stretch(self) -> float:
        model, optimizer, loss_fn = self._parts
        began = time.perf_counter()
        for _ in range(STRETCH):
            x, y = self.batch
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return (time.perf_counter() - began) / STRETCH * 1e6

    def answer(self) -> dict[str, float]:
        """Microseconds a step: the bare loop's, and the framework's over it. The first stretches are for warming up."""
        beside = [(before + after) / 2 for before, after in zip(self.bare, self.bare[1:], strict=False)]
        over = [took - bare for took, bare in zip(self.framework, beside, strict=False)]
        return {"bare": statistics.median(self.bare[2:]), "over": statistics.median(over[2:])}


def parts() -> tuple[Any, Any, Callable[..., Any]]:
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(16, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.01), torch.nn.functional.mse_loss


class Trainer:
    """The same step as a hostcore trainer."""

    def setup(self) -> None:
        import torch

        from hostcore_hookspecs import StepResult  # the peers' environments may lack it

        torch.set_num_threads(1)
        self.StepResult = StepResult

    def configure(self) -> Any:
        self.source, self.step = Source(int(os.environ[STEPS])), -1
        self.batch = self.source.batch
        return parts()

    def prepare_batch(self, raw_batch: Any, state: Any) -> Any:
        self.step = step = self.step + 1
        self.source.tick(step)
        return self.batch

    def train_step(self, prepared_batch: Any, state: Any) -> Any:
        model, optimizer, loss_fn = state
        x, y = prepared_batch
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return self.StepResult(metrics={"loss": loss.detach()})

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
        (place / "step_overhead.py").symlink_to(Path(__file__).resolve())
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


PEERS = {"ignite": (ignite, "ignite"), "lightning": (lightning, "lightning")}
WAYS: dict[str, Callable[[int], dict[str, Any]]] = {
    "hostcore": hostcore,
    "hostcore_silent": lambda steps: hostcore(steps, metric_every=0, terminal=False),
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
    options = ask.parse_args()
    if options.peer:
        run_peer(options.peer, options.steps)
        return
    wanted = options.only.split(",")
    missing = [name for name in wanted if name in PEERS and not importlib.util.find_spec(PEERS[name][1])]
    ways = [name for name in WAYS if name in wanted and name not in missing]
    over: dict[str, list[float]] = {name: [] for name in ways}
    loops: list[float] = []
    for _ in range(options.rounds):
        for name in ways:
            answer = WAYS[name](options.steps)
            loops.append(answer["bare"])
            over[name].append(answer["over"])
    print(f"bare loop: {statistics.median(loops):.0f} µs a step; {options.steps} steps, {options.rounds} rounds")
    print("| loop | overhead µs/step | min..max |\n|---|---|---|")
    for name, values in over.items():
        print(f"| {name} | {statistics.median(values):.1f} | {min(values):.1f}..{max(values):.1f} |")
    for name in missing:
        print(f"| {name} | not installed here | |")


if __name__ == "__main__":
    main()
