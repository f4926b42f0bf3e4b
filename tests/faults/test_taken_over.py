"""Two attempts never write at once: a supervisor that was stopped while another took its run over writes no more."""

import json
import os
import signal
import subprocess
from pathlib import Path

import orjson
from command_line import COMMAND
from waiting import wait_until

#: Its runs come to step 500, and go beyond it once a file is there: neither is over before it is looked at.
PATIENT = """
import os, time
from hostcore_hookspecs import StepResult

class Patient:
    def setup(self, ctx): pass
    def configure(self, ctx): return {"step": 0}
    def prepare_batch(self, raw_batch): return None
    def train_step(self, state, ctx):
        time.sleep(float(os.environ["STEP_SECONDS"]))
        while state["step"] == 500 and not os.path.exists("go-on") and not ctx.is_canceled():
            time.sleep(0.01)
        state["step"] += 1
        return StepResult(metrics={"loss": 1 / state["step"]})
    def state_dict(self, state): return dict(state)
    def load_state_dict(self, state, payload): state.update(payload)
"""


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_supervisor_that_was_stopped_and_replaced_writes_nothing_more(tmp_path: Path) -> None:
    (tmp_path / "patient.py").write_text(PATIENT)
    job = {"trainer": "patient:Patient", "max_steps": 100_000, "run_id": "a", "terminal": False, "metric_every": 1}
    (tmp_path / "job.json").write_text(json.dumps(job | {"checkpoint_every": 5}))
    run = tmp_path / "runs" / "a"
    command = [COMMAND, "run", "job.json"]

    def start(seconds: str, *more: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*command, *more],
            cwd=tmp_path,
            env={**os.environ, "STEP_SECONDS": seconds},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    first = start("0.05")
    wait_until(lambda: list((run / "checkpoints").glob("step-*.json")), "a checkpoint of the first attempt")
    children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    (worker,) = [int(child) for child in children]
    wait_until((run / "lease.json").exists, "the lease")
    os.kill(first.pid, signal.SIGSTOP)

    # As another machine sees it that shares the folder: the holder is elsewhere, and was not heard of for a minute.
    lease = orjson.loads((run / "lease.json").read_bytes())
    lease["process"]["host"] = "elsewhere"
    lease["renewed_ms"] -= 60_000
    (run / "lease.json").write_bytes(orjson.dumps(lease))
    # The worker goes on training until the run is taken over.
    second = start("0.01", "--set", "max_steps=600")
    wait_until((run / "attempts" / "2.json").exists, "the second attempt to claim the run")
    log = run / "logs" / "events.jsonl"
    wait_until(lambda: b'"run_resumed"' in log.read_bytes(), "the second attempt to train")

    os.kill(first.pid, signal.SIGCONT)
    _, told = first.communicate(timeout=300)
    assert first.returncode == 1
    assert "attempt 2 of run 'a' has taken it over from attempt 1" in told
    wait_until(lambda: not lives(worker), "the worker of the first attempt to end")
    (tmp_path / "go-on").touch()
    _, err = second.communicate(timeout=300)
    assert second.returncode == 0, err

    events = [orjson.loads(line) for line in log.read_bytes().splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    resumed = next(place for place, event in enumerate(events) if event["event"] == "run_resumed")
    assert {event["attempt"] for event in events[resumed:]} == {2}
    assert events[-1]["event"] == "run_succeeded"
    assert orjson.loads((run / "result.json").read_bytes())["attempt"] == 2
    verified = subprocess.run([COMMAND, "verify", "a"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stdout
