"""Two trainers that exclude each other, side by side, killed again and again: pyarrow 20, and the one that is here."""

import os
import random
import signal
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from fork_server import hostcore
from thoroughness import points
from waiting import wait_until

from hostcore_builtin_plugins.processes import children

KILLS = points(3, long=20)
STEPS_BETWEEN = 10
STEPS = STEPS_BETWEEN * (KILLS + 1)
#: Its losses depend on all rows before, in their order, and on the random generator that the host keeps. It makes
#: as many steps as a file allows, and waits there: a run that is quick is not over before its last kill.
TRAINER = """
    import random
    import time
    from pathlib import Path
    import pyarrow
    from hostcore_hookspecs import StepResult

    class Trainer:
        def setup(self):
            print("pyarrow", pyarrow.__version__, flush=True)

        def configure(self):
            return {"weight": 0.5}

        def prepare_batch(self, raw_batch, state):
            return raw_batch.column("x").to_pylist()

        def train_step(self, prepared_batch, state, ctx):
            while ctx.run_state.step >= int(Path(ctx.hyperparams["steps_allowed"]).read_text()):
                time.sleep(0.01)
            loss = sum((state["weight"] * x - 1.0) ** 2 for x in prepared_batch) / len(prepared_batch)
            slope = sum(2 * x * (state["weight"] * x - 1.0) for x in prepared_batch) / len(prepared_batch)
            state["weight"] -= 0.01 * slope + 0.001 * random.random()
            return StepResult(metrics={"loss": loss})

        def state_dict(self, state):
            return dict(state)

        def load_state_dict(self, state, payload):
            state.update(payload)
"""


def metrics(workplace: Any, run_id: str) -> list[tuple[int, float]]:
    """Step and loss of every event, of all attempts."""
    log = workplace.run_directory(run_id) / "logs/events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True) if log.exists() else []
    events = [orjson.loads(line) for line in lines if line.endswith(b"\n")]
    return [(event["step"], event["metrics"]["train/loss"]) for event in events if event["event"] == "metrics"]


def start(workplace: Any, job: Path) -> "subprocess.Popen[Any]":
    return hostcore(["run", job.name], cwd=workplace.path, env=workplace.environment, stdout=-1, stderr=-2, text=True)


def test_both_are_killed_again_and_again_and_lose_nothing(workplace: Any, pyarrows: dict[str, str]) -> None:
    chance = random.Random(3)
    rows = pa.table({"x": [chance.gauss(0, 1) for _ in range(400)]})
    pq.write_table(rows, workplace.path / "rows.parquet", row_group_size=50)
    jobs: dict[str, Path] = {}
    steps_allowed = {name: workplace.path / f"{name}-steps-allowed" for name in pyarrows}
    for name, wanted in pyarrows.items():
        own = f"{name}-arrow"
        workplace.index.publish(own, trainer=own, requires=[f"pyarrow=={wanted}"], source=textwrap.dedent(TRAINER))
        keys = {
            "trainer": own,
            "hyperparams": {"steps_allowed": str(steps_allowed[name])},
            "environment": {"requirements": [own]},
            "dataset": {"parquet_paths": ["rows.parquet"], "batch_size": 16, "shuffle": True},
            "max_steps": STEPS,
            "checkpoint_every": 1,
            "device": "cpu",
        }
        steps_allowed[name].write_text(str(STEPS))
        whole = workplace.hostcore("run", workplace.job(f"whole-{name}.json", **keys, run_id=f"whole-{name}"))
        assert whole.code == 0, whole.err
        assert f"pyarrow {wanted}" in workplace.output(f"whole-{name}")
        jobs[name] = workplace.job(f"{name}.json", **keys, run_id=name)

    for kill in range(KILLS):
        for path in steps_allowed.values():
            path.write_text(str(STEPS_BETWEEN * (kill + 1)))
        running = {name: start(workplace, job) for name, job in jobs.items()}
        for name, run in running.items():
            enough = STEPS_BETWEEN * kill + chance.randint(1, STEPS_BETWEEN)
            wait_until(
                lambda name=name, run=run, enough=enough: (
                    run.poll() is not None or max(dict(metrics(workplace, name)), default=0) >= enough
                ),
                f"step {enough} of {name}",
            )
            workers = children(run.pid)
            assert workers
            for worker in workers:
                os.kill(worker, signal.SIGKILL)
        for run in running.values():
            said, _ = run.communicate(timeout=900)
            assert run.returncode != 0
            assert "Traceback" not in said
            assert "building" not in said
    for path in steps_allowed.values():
        path.write_text(str(STEPS))
    for run in [start(workplace, job) for job in jobs.values()]:
        said, _ = run.communicate(timeout=900)
        assert run.returncode == 0, said
    for name in jobs:
        losses = dict(metrics(workplace, f"whole-{name}"))
        assert len(losses) == STEPS
        assert dict(metrics(workplace, name)) == losses
        assert all(loss == losses[step] for step, loss in metrics(workplace, name))
