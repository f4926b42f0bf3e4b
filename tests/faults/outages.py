"""Real runs beside a proxy that fails: started, watched, and looked at when all is over."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from fork_server import hostcore
from ledger import Ledger
from started import workers_of
from waiting import wait_until

HERE = Path(__file__).parent
STEPS = 20
#: After so many steps the training waits for the gate.
HALF = 10


@attrs.frozen
class Outage:
    """A folder with a trainer, a gate in the middle of its training, and the command in it."""

    folder: Path

    @classmethod
    def prepare(cls, folder: Path) -> "Outage":
        shutil.copy(HERE / "paced_trainer.py", folder)
        return cls(folder)

    @property
    def gate(self) -> Path:
        return self.folder / "gate"

    def job(self, **keys: Any) -> dict[str, Any]:
        """Of twenty steps, of which ten wait for the gate."""
        hyperparams = {"gates": {str(HALF): str(self.gate)}, **keys.pop("hyperparams", {})}
        return {
            "run_id": "run",
            "trainer": "paced_trainer:Trainer",
            "hyperparams": hyperparams,
            "max_steps": STEPS,
            "metric_every": 1,
            "device": "cpu",
            "terminal": False,
            "grace_seconds": 1,
            **keys,
        }

    def start(self, job: Mapping[str, Any]) -> "Command":
        """``hostcore run``."""
        name = f"{job['run_id']}.json"
        (self.folder / name).write_text(json.dumps(job))
        return self.command("run", name, run_id=str(job["run_id"]))

    def command(self, *arguments: str, run_id: str = "run") -> "Command":
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOSTCORE_")}
        path = self.folder / f"{run_id}.{arguments[0]}.out"
        with path.open("ab") as output:
            process = hostcore(
                arguments, cwd=self.folder, env=environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        return Command(process, path, Ledger(self.folder / "runs" / run_id))


@attrs.frozen
class Command:
    """The command, started, and the run that it is about."""

    process: "subprocess.Popen[bytes]"
    output: Path
    ledger: Ledger

    @property
    def printed(self) -> str:
        return self.output.read_text(errors="replace")

    @property
    def workers(self) -> Sequence[int]:
        """The processes that it has started and that have not ended."""
        return workers_of(self.process.pid)

    def wait(self) -> int:
        """For its end; the exit code."""
        return self.process.wait(timeout=600)

    def hurry(self) -> None:
        """When the training has come to its end: wait no longer for what cannot be delivered."""
        plot = self.ledger.path / "plots" / "loss.png"  # drawn when the workers are gone
        wait_until(lambda: plot.exists() or self.process.poll() is not None, "the training to end")
        self.process.send_signal(signal.SIGTERM)

    def wait_for_step(self, step: int) -> None:
        """Until a step was told."""

        def told() -> bool:
            assert self.process.poll() is None, self.printed
            return any(event["event"] == "metrics" and event["step"] == step for event in self.ledger.events)

        wait_until(told, f"step {step}")

    def named(self, name: str) -> Sequence[Mapping[str, Any]]:
        """The events of a name."""
        return [event for event in self.ledger.events if event["event"] == name]

    def assert_all_steps_done(self) -> None:
        """All steps, once each, and the run has succeeded: by its own log and result."""
        assert [event["step"] for event in self.named("metrics")] == list(range(1, STEPS + 1))
        assert self.ledger.result is not None
        assert (self.ledger.result["status"], self.ledger.result["step"]) == ("succeeded", STEPS), self.printed
        self.ledger.check_numbers()
