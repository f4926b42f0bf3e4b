"""Plugins that start processes by fork: these end with a signal, wherever the plugin runs."""

import json
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
from fork_server import run

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
PLUGINS = f"""
import json
import multiprocessing
import os
import signal
from pathlib import Path

import pyarrow as pa
from hostcore_hookspecs import StepResult, UploadReceipt

def end_by(number):
    signal.raise_signal(number)

def square(value):
    return value * value

def start_processes(place):
    if os.environ["PLACE"] != place:
        return
    methods = multiprocessing.get_context("fork")
    codes = []
    for number in {[int(number) for number in SIGNALS]}:
        process = methods.Process(target=end_by, args=(number,))
        process.start()
        process.join()
        codes.append(process.exitcode)
    with methods.Pool(2) as pool:  # ends its processes with SIGTERM
        assert pool.map(square, [2.0]) == [4.0]
    Path(os.environ["NOTE"]).write_text(json.dumps(codes))

class Trainer:
    def setup(self, ctx):
        start_processes("trainer")
    def transform_batch(self, raw_batch, rng, ctx):
        start_processes("transform")
        return raw_batch
    def configure(self, ctx):
        return {{}}
    def prepare_batch(self, raw_batch):
        return raw_batch
    def train_step(self, prepared_batch, state):
        return StepResult(metrics={{"loss": 1.0}})
    def state_dict(self, state):
        return {{}}
    def load_state_dict(self, state, payload):
        pass

class Reporter:
    def open(self, ctx):
        start_processes("reporter")
    def report_event(self, event):
        pass
    def close(self):
        pass

class Uploader(Reporter):
    def open(self, ctx):
        pass
    def upload_artifact(self, artifact):
        start_processes("uploader")
        return UploadReceipt(uri="nowhere", size=artifact.size)
"""
SCRIPT = "import hostcore; raise SystemExit(hostcore.run('job.json').exit_code)"
DATA = {"source": "mock", "num_rows": 8, "num_shards": 1, "batch_size": 8}


@pytest.mark.parametrize(
    ("place", "command"),
    [
        ("trainer", ("hostcore", "run", "job.json")),
        ("transform", ("hostcore", "run", "job.json")),
        ("reporter", ("hostcore", "run", "job.json")),
        ("uploader", ("hostcore", "run", "job.json")),
        ("trainer", ("hostcore", "run", "job.json", "--in-process")),
        ("reporter", ("hostcore", "run", "job.json", "--in-process")),
        ("trainer", ("-c", SCRIPT)),
    ],
)
def test_a_process_that_a_plugin_forks_ends_by_signals(
    own_project: Callable[..., Any], site: Any, place: str, command: tuple[str, ...]
) -> None:
    entry_points = {f"hostcore.{kind}s": {"forks": f"forking:{kind.title()}"} for kind in ("reporter", "uploader")}
    site.install("forking", modules={"forking.py": PLUGINS}, entry_points=entry_points)
    project = own_project(site.environment)
    project.job(
        trainer="forking:Trainer",
        dataset={**DATA, "workers": 1 if place == "transform" else 0},
        max_steps=1,
        reporters=["forks"],
        uploaders=["forks"],
    )
    note = project.path / "codes.json"
    how = command if command[0] == "-c" else ("-m", *command)
    environment = {**project.environment, "PLACE": place, "NOTE": str(note)}
    ended = run([sys.executable, *how], cwd=project.path, env=environment, text=True)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(note.read_text()) == [-number for number in SIGNALS]
