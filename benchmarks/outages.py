"""What an outage of the tracker and of the object store costs a training step.

Real runs: ``hostcore run`` in processes of its own, with a ``webhook`` reporter (an event every 10 steps) and an
``http`` uploader (a checkpoint every 250 steps). Both speak through the proxy of ``tests/faults`` with a server in a
process apart; from the first event to the last step the proxy does what the row says. A perceptron, batch 32, one
thread; a run is measured in stretches of 100 steps, of which the first two are for warming up, and its figure is the
median of the others. All rows take turns, and each is compared with ``healthy`` of the same round; the median of these
ratios is printed. The promise: at most 1.02.

    python benchmarks/outages.py [--steps 1000] [--rounds 5] [--only absent,slow] [--width 1024] [--no-peer]
                                 [--json FILE]

======================= ========================================================================
``silent``              no reporter, no uploader
``healthy``             all is well
a fault's name          see ``tests/faults/proxy.py``
``lightning``           the same model in Lightning, if it is installed, with a logger that posts
                        its metrics every 10 steps and waits for the answer, as loggers of trackers
                        do; compared with its own ``healthy``
======================= ========================================================================

The logger of the peer is one of fifteen lines made for this: it waits for one second and then drops what it could not
post. That is kind to the peer: MLFlowLogger, with MLflow's own defaults, waits for 120 seconds, tries seven times
more, and then ends the training with an exception. Its runs are shorter (``--peer-steps``), since each post may take a
second.
"""

import argparse
import contextlib
import http.server
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import results

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "faults"))
from proxy import Fault, Proxy  # noqa: E402

STRETCH = 100
WARMING_UP = 2
ROWS = [fault.name.lower() for fault in Fault if fault is not Fault.NONE]
#: How long a run may deliver what is left, once it was measured, in seconds.
LEAVE_SECONDS = 5


class Stretches:
    """Takes the time of stretches of steps."""

    def __init__(self) -> None:
        self._step = 0
        self._marks: list[float] = []

    def step_begins(self) -> None:
        if self._step % STRETCH == 0:
            self._marks.append(time.perf_counter())
        self._step += 1

    def write(self, path: Path) -> None:
        microseconds = [(end - begin) / STRETCH * 1e6 for begin, end in zip(self._marks, self._marks[1:], strict=False)]
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(microseconds))
        partial.replace(path)


def make_model(width: int) -> Any:
    import torch

    torch.set_num_threads(1)
    return torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width))


class Trainer:
    """Of hostcore."""

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        width: int
        #: Where the microseconds a step of each stretch are written.
        result: str

    def setup(self) -> None:
        self.stretches = Stretches()

    def configure(self, ctx: Any) -> Any:
        import torch

        model = make_model(ctx.hyperparams.width)
        self.batch = torch.randn(32, ctx.hyperparams.width)
        return model, torch.optim.SGD(model.parameters(), lr=1e-4)

    def prepare_batch(self, raw_batch: Any) -> Any:
        self.stretches.step_begins()
        return self.batch

    def train_step(self, prepared_batch: Any, state: Any) -> Any:
        from hostcore_hookspecs import StepResult

        model, optimizer = state
        loss = model(prepared_batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return StepResult(metrics={"loss": loss.detach()})

    def state_dict(self, state: Any) -> dict[str, object]:
        return {"model": state[0].state_dict()}

    def load_state_dict(self, state: Any, payload: dict[str, Any]) -> None:
        state[0].load_state_dict(payload["model"])

    def teardown(self, ctx: Any) -> None:
        self.stretches.write(Path(ctx.hyperparams.result))


def train_with_lightning(url: str, *, steps: int, width: int, result: Path) -> None:
    """The peer, in a process of its own."""
    import logging

    import lightning
    import torch
    from lightning.pytorch.loggers.logger import Logger

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    stretches = Stretches()

    class PostingLogger(Logger):
        name, version = "posting", 0

        def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
            body = json.dumps({"step": step, **metrics}).encode()
            with contextlib.suppress(OSError):
                urllib.request.urlopen(urllib.request.Request(url, body), timeout=1).read()

        def log_hyperparams(self, *_: Any, **__: Any) -> None:
            """Not measured."""

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = make_model(width)

        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            stretches.step_begins()

        def training_step(self, batch: Any) -> Any:
            loss = self.model(batch).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-4)

    off = dict.fromkeys(("enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    batches = torch.utils.data.DataLoader([torch.randn(32, width)] * steps, batch_size=None)
    trainer = lightning.Trainer(
        max_steps=steps, log_every_n_steps=10, logger=PostingLogger(), accelerator="cpu", barebones=False, **off
    )
    trainer.fit(Module(), batches)
    stretches.write(result)


class _Store(http.server.BaseHTTPRequestHandler):
    """Takes whatever comes, and gives back what was put."""

    objects: dict[str, bytes] = {}  # noqa: RUF012 - of the process
    protocol_version = "HTTP/1.1"

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200)

    def do_PUT(self) -> None:
        self.objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200)

    def do_GET(self) -> None:
        found = self.objects.get(self.path)
        self._answer(404 if found is None else 200, found or b"")

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def be_the_far_side() -> None:
    """A server behind a proxy; lines on standard input name the fault."""
    os.nice(10)  # it stands for another machine
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Store) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Proxy(server.server_port, bytes_per_second=5000) as proxy:
            print(proxy.url, flush=True)
            for line in sys.stdin:
                proxy.fault = Fault[line.strip().upper()]
                _Store.objects.clear()
                print(line, end="", flush=True)
        server.shutdown()


@attrs.frozen
class FarSide:
    """The other process."""

    process: "subprocess.Popen[str]"
    url: str

    def set(self, fault: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{fault}\n")
        self.process.stdin.flush()
        self.process.stdout.readline()


@contextlib.contextmanager
def far_side() -> Iterator[FarSide]:
    command = [sys.executable, __file__, "--far-side"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield FarSide(process, process.stdout.readline().strip())


def median_of(path: Path) -> float:
    return float(statistics.median(json.loads(path.read_text())[WARMING_UP:]))


def hostcore_step(folder: Path, far: FarSide, row: str, *, steps: int, width: int, run_id: str) -> float:
    """Microseconds a step of a real run."""
    result = folder / f"{run_id}.result"
    job: dict[str, Any] = {
        "trainer": "outages:Trainer",
        "run_id": run_id,
        "hyperparams": {"width": width, "result": str(result)},
        "device": "cpu",
        "max_steps": steps,
        "checkpoint_every": 250,
        "grace_seconds": 1,
        "terminal": False,
    }
    if row != "silent":
        job["reporters"] = [{"use": "webhook", "url": f"{far.url}/events", "timeout_seconds": 1}]
        job["uploaders"] = [{"use": "http", "url": far.url + "/{run_id}/{path}", "timeout_seconds": 1}]
    (folder / "job.json").write_text(json.dumps(job))
    far.set("none" if row in ("silent", "healthy") else row)
    command = [str(Path(sys.executable).with_name("hostcore")), "run", "job.json"]
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
        while not result.exists() and process.poll() is None:
            time.sleep(0.05)
        far.set("none")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LEAVE_SECONDS)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait()
    if not result.exists():
        sys.exit((folder / "output").read_text())
    status = json.loads((folder / "runs" / run_id / "result.json").read_text())["status"]
    if status != "succeeded":
        sys.exit(f"{row}: the run has {status}\n{(folder / 'output').read_text()}")
    return median_of(result)


def lightning_step(folder: Path, far: FarSide, row: str, *, steps: int, width: int) -> float:
    """Microseconds a step of the peer."""
    far.set("none" if row == "healthy" else row)
    result = folder / "lightning.result"
    arguments = ["--peer-url", f"{far.url}/events", "--peer-steps", str(steps), "--width", str(width)]
    command = [sys.executable, __file__, *arguments, "--peer-result", str(result)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    far.set("none")
    if done.returncode:
        sys.exit(done.stderr)
    return median_of(result)


def show(title: str, times: dict[str, list[float]]) -> None:
    print(f"\n| {title} | µs/step | of healthy | min..max |\n|---|---|---|---|")
    for row, values in times.items():
        ratios = [value / healthy for value, healthy in zip(values, times["healthy"], strict=True)]
        middle = statistics.median(ratios)
        print(f"| {row} | {statistics.median(values):.0f} | {middle:.3f} | {min(ratios):.3f}..{max(ratios):.3f} |")


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--steps", type=int, default=1000)
    ask.add_argument("--rounds", type=int, default=5)
    ask.add_argument("--only", help="comma separated faults")
    ask.add_argument("--width", type=int, default=1024)
    ask.add_argument("--no-peer", action="store_true")
    ask.add_argument("--peer-steps", type=int, default=500)
    results.add_option(ask)
    for hidden in ("--peer-url", "--peer-result"):
        ask.add_argument(hidden, help=argparse.SUPPRESS)
    ask.add_argument("--far-side", action="store_true", help=argparse.SUPPRESS)
    options = ask.parse_args()
    if options.far_side:
        return be_the_far_side()
    if options.peer_url:
        result = Path(options.peer_result)
        return train_with_lightning(options.peer_url, steps=options.peer_steps, width=options.width, result=result)
    if min(options.steps, options.peer_steps) < (WARMING_UP + 2) * STRETCH:
        ask.error(f"at least {(WARMING_UP + 2) * STRETCH} steps are needed")
    chosen = options.only.split(",") if options.only else ROWS
    if unknown := set(chosen) - set(ROWS):
        ask.error(f"no fault is called {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    rows = ["silent", "healthy", *chosen]
    times: dict[str, list[float]] = {row: [] for row in rows}
    peer: dict[str, list[float]] = {row: [] for row in rows[1:]}
    has_peer = not options.no_peer and importlib.util.find_spec("lightning") is not None
    with tempfile.TemporaryDirectory() as name, far_side() as far:
        folder = Path(name)
        for number in range(options.rounds):
            for row in rows:
                how = {"steps": options.steps, "width": options.width, "run_id": f"{row.replace('_', '-')}-{number}"}
                times[row].append(hostcore_step(folder, far, row, **how))
                if has_peer and row in peer:
                    how = {"steps": options.peer_steps, "width": options.width}
                    peer[row].append(lightning_step(folder, far, row, **how))
    every = {
        f"{name}, {row}": values
        for name, of in (("hostcore", times), ("lightning", peer))
        for row, values in of.items()
    }
    rows_taken = results.rows("µs/step", {name: values for name, values in every.items() if values})
    how = {"steps": options.steps, "peer_steps": options.peer_steps, "width": options.width}
    results.write(options.json, "outages", rows_taken, **how)
    print(
        f"{options.steps} steps, {options.rounds} rounds, width {options.width}; the peer: {options.peer_steps} steps"
    )
    show("hostcore", times)
    if has_peer:
        show("lightning", peer)
    return None


if __name__ == "__main__":
    main()
