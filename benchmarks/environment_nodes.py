"""What a job's own environment adds to the start of two ranks on two machines.

Both ranks are processes of this machine, as an engine starts them; each has a place for environments of its own, so
that the second installs from what the first has resolved, as another node does. In turns: ``plain`` runs without an
environment, ``warm`` finds one on both machines, ``built`` has to build it on the second, from what uv has in its
cache. Times are from starting both to the end of rank 0's first step, which waits for the other.

    pip install ./extensions/environments
    python benchmarks/environment_nodes.py [--rounds 5] [--json FILE]

Set ``UV_INDEX``, ``UV_FIND_LINKS`` or ``UV_CONSTRAINT`` such that uv resolves the torch that is wanted.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import results

from hostcore_hookspecs import Capabilities, StepContext, StepResult

RESULT = "ENVIRONMENT_NODES_RESULT"
#: The trainer is imported in the environment, which has nothing that builds environments.
FOLDER = "HOSTCORE_ENVIRONMENTS_DIR"
NAMES = ("plain", "warm", "built")


class FirstStep:
    """A trainer whose rank 0 notes when the first step of all ranks was done."""

    CAPABILITIES = Capabilities(distributed=True)

    def setup(self) -> None:
        return None

    def configure(self) -> None:
        return None

    def prepare_batch(self) -> None:
        return None

    def train_step(self, ctx: StepContext) -> StepResult:
        import torch

        torch.distributed.barrier()
        if ctx.rank == 0:
            Path(os.environ[RESULT]).write_text(str(time.time()))
        return StepResult()

    def state_dict(self) -> dict[str, object]:
        return {}

    def load_state_dict(self) -> None:
        return None


def first_step(place: Path, job: str) -> float:
    """Seconds from the start of both ranks to the end of their first step."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    began, ranks = time.time(), []
    for rank in range(2):
        engine = {"RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": port}
        own = {"MASTER_ADDR": "127.0.0.1", RESULT: place / "at", FOLDER: place / f"machine-{rank}"}
        environment = {name: str(value) for name, value in {**os.environ, **engine, **own}.items()}
        command = [sys.executable, "-m", "hostcore", "run", job]
        ranks.append(
            subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        )
    said = [rank.communicate()[1].decode() for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise SystemExit(f"{job} failed:\n{said[0]}\n{said[1]}")
    return float((place / "at").read_text()) - began


def main() -> None:
    """Measure, print, and write."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--rounds", type=int, default=5)
    results.add_option(ask)
    options = ask.parse_args()
    took: dict[str, list[float]] = {name: [] for name in NAMES}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        os.environ["HOSTCORE_RUNS_DIR"] = str(place / "runs")
        (place / "environment_nodes.py").symlink_to(Path(__file__).resolve())
        (place / "results.py").symlink_to(Path(__file__).with_name("results.py").resolve())
        plain = {"trainer": "environment_nodes:FirstStep", "max_steps": 1, "device": "cpu", "terminal": False}
        for number in range(options.rounds + 1):
            # Ranks find each other's run by its id.
            (place / "plain.json").write_text(json.dumps({**plain, "run_id": f"plain-{number}"}))
            own = {**plain, "environment": {"requirements": ["six"]}}
            for name in ("built", "warm"):
                (place / f"{name}.json").write_text(json.dumps({**own, "run_id": f"{name}-{number}"}))
            shutil.rmtree(place / "machine-1", ignore_errors=True)
            measured = {name: first_step(place, f"{name}.json") for name in ("built", "warm", "plain")}
            for name in NAMES if number else ():
                took[name].append(measured[name])
    results.write(options.json, "environment_nodes", results.rows("s", took))
    print(f"{options.rounds} rounds\n\n| start of two ranks | s | min..max | over plain, s |\n|---|---|---|---|")
    for name in NAMES:
        over = [one - other for one, other in zip(took[name], took["plain"], strict=True)]
        told = "" if name == "plain" else f"{statistics.median(over):.2f} ({min(over):.2f}..{max(over):.2f})"
        print(
            f"| {name} | {statistics.median(took[name]):.2f} | {min(took[name]):.2f}..{max(took[name]):.2f} | {told} |"
        )


if __name__ == "__main__":
    main()
