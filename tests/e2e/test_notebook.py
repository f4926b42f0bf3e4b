"""The notebook of the documentation, and runs in a notebook's kernel: real ones of ipykernel."""

import importlib
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from checkout import ROOT
from nbclient import NotebookClient
from waiting import wait_until

NOTEBOOK = ROOT / "docs/tutorials/first-run.ipynb"
#: How far a run is depends on how fast it is; so does how long ago something was.
PROGRESS = re.compile(r"^\w+ step .*$", re.MULTILINE)
SGR = re.compile(r"\x1b\[[0-9;]*m")

ENDLESS = """
import hostcore
from hostcore_hookspecs import StepResult

class Halving:
    def setup(self): pass
    def configure(self): return {"loss": 8.0}
    def prepare_batch(self, raw_batch): return raw_batch
    def train_step(self, state):
        state["loss"] /= 2
        return StepResult(metrics={"loss": state["loss"]})
    def state_dict(self, state): return state
    def load_state_dict(self, state, payload): state.update(payload)
"""
RUN = 'result = hostcore.run({{"trainer": "halving:Halving", "run_id": "stopped", "metric_every": 1, "max_steps": {}}})'
TOLD = "print(result.status, result.exit_code, result.attempt, result.step > 0, result.final_checkpoint is not None)"

#: Of times: a machine that is busy takes minutes.
_UNITS = {"second", "seconds", "minute", "minutes"}


def said(output: nbformat.NotebookNode) -> tuple[object, ...]:
    """What a reader sees of an output, without what differs from machine to machine: numbers, times, progress."""
    text = output.get("text") or output.get("data", {}).get("text/html") or "\n".join(output.get("traceback", ()))
    plain = PROGRESS.sub("", SGR.sub("", text))
    return output.output_type, sorted(output.get("data", {})), set(re.findall(r"[a-z_/-]{4,}", plain)) - _UNITS


def test_the_notebook_of_the_documentation_shows_what_comes_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    fresh = importlib.import_module("execute_notebook").executed(NOTEBOOK, tmp_path)
    shown = nbformat.read(NOTEBOOK, as_version=4)
    for before, after in zip(shown.cells, fresh.cells, strict=True):
        assert [said(each) for each in before.get("outputs", ())] == [said(each) for each in after.get("outputs", ())]
    assert {path.name for path in (tmp_path / "runs").iterdir() if not path.name.startswith(".")} == {"first", "second"}


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NotebookClient]:
    """A kernel that works in a folder with a trainer."""
    monkeypatch.delenv("HOSTCORE_RUNS_DIR", raising=False)
    (tmp_path / "halving.py").write_text(ENDLESS)
    notebook = nbformat.v4.new_notebook()
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    with client.setup_kernel():
        yield client


def outputs(client: NotebookClient, *lines: str) -> str:
    """What a new cell prints on standard output."""
    client.nb.cells.append(cell := nbformat.v4.new_code_cell("\n".join(lines)))
    client.execute_cell(cell, len(client.nb.cells) - 1)
    return "".join(output.text for output in cell.outputs if output.get("name") == "stdout")


def test_a_cell_that_is_interrupted_stops_its_run_with_a_checkpoint_and_goes_on_when_it_is_run_again(
    kernel: NotebookClient, tmp_path: Path
) -> None:
    log = tmp_path / "runs/stopped/logs/events.jsonl"
    kernel_pid = kernel.km.provisioner.pid

    def press() -> None:
        wait_until(lambda: log.exists() and b'"event":"metrics"' in log.read_bytes(), "a step of the run")
        os.killpg(os.getpgid(kernel_pid), signal.SIGINT)  # as the button of Jupyter does

    presser = threading.Thread(target=press)
    presser.start()
    assert outputs(kernel, "import hostcore", RUN.format(10**9), TOLD) == "cancelled 130 1 True True\n"
    presser.join()
    again = outputs(kernel, RUN.format("result.step + 5"), TOLD)
    assert again == "succeeded 0 2 True True\n"
    assert Path(f"/proc/{kernel_pid}/task/{kernel_pid}/children").read_text() == "", "no process is left, dead or alive"


def test_runs_of_other_cells_and_of_a_thread_follow_each_other_in_one_kernel(kernel: NotebookClient) -> None:
    outputs(kernel, "import asyncio, threading, hostcore")
    for number in range(3):
        job = f'{{"trainer": "halving:Halving", "run_id": "run-{number}", "max_steps": 3}}'
        assert outputs(kernel, f"result = hostcore.run({job})", TOLD) == "succeeded 0 1 True True\n"
    job = '{"trainer": "halving:Halving", "run_id": "awaited", "max_steps": 3}'
    awaited = f"result = await asyncio.to_thread(hostcore.run, {job})"
    assert outputs(kernel, awaited, TOLD) == "succeeded 0 1 True True\n"
    own = "print([each.name for each in threading.enumerate() if each.name.startswith('hostcore')])"
    wait_until(lambda: outputs(kernel, own) == "[]\n", "the threads of the runs to end")
