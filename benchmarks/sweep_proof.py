"""What a sweep has lost when its driver and its trials are killed with SIGKILL, at random instants.

The digits are swept with TPE and ASHA in peace, on this machine; then under fire, once with each launcher. Each row of
the table must be the same then: the values of a trial, its state, the step at which it ended, its objective to the last
bit; and so must the best. Each trial must be one run, whose attempts followed one another.

    pip install ./extensions/inspect ./extensions/sweeps './example_trainers/digits[data]'
    python benchmarks/sweep_proof.py [--launchers local slurm ray] [--trials 60] [--kills 30] [--parallel 2] [--seed 1]

With another launcher than `local`, the trials run there (Slurm's commands on the PATH, a Ray in
RAY_API_SERVER_ADDRESS), and what is killed of them are their processes on this machine.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_HOSTCORE = [sys.executable, "-m", "hostcore"]


def write(folder: Path, options: argparse.Namespace, launcher: str) -> None:
    """The data, the job and the sweep."""
    data = folder / "data"
    prepare = [sys.executable, "-m", "digits.prepare_data", "--out", str(data)]
    subprocess.run(prepare, check=True, capture_output=True)
    job = {
        "trainer": "digits",
        "dataset": {"parquet_paths": ["data/train.parquet"], "batch_size": 64, "shuffle": True},
        "validation": {"parquet_paths": ["data/validation.parquet"], "batch_size": 512},
        "epochs": 12,
        "validate_every": 8,
        "checkpoint_every": 16,
        "device": "cpu",
        "launcher": launcher,
    }
    sweep = {
        "sweep_id": "digits",
        "job": "job.json",
        "space": {
            "/hyperparams/learning_rate": {"log_uniform": [1e-4, 3e-2]},
            "/hyperparams/weight_decay": {"log_uniform": [1e-3, 0.3]},
            "/hyperparams/dropout": {"uniform": [0.0, 0.6]},
            "/hyperparams/channels": {"choice": [8, 16, 32]},
        },
        "objective": {"metric": "val/loss", "mode": "min"},
        "pruner": {"use": "asha", "min_steps": 16},
        "limits": {"trials": options.trials, "parallel": options.parallel, "resumes": options.kills},
    }
    (folder / "job.json").write_text(json.dumps(job))
    (folder / "sweep.json").write_text(json.dumps(sweep))


def start(folder: Path) -> "subprocess.Popen[bytes]":
    """A driver."""
    with (folder / "driver.log").open("ab") as log:
        command = [*_HOSTCORE, "sweep", "sweep.json"]
        return subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def processes_of(folder: Path) -> list[int]:
    """The processes that work in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and (entry / "cwd").readlink() == folder:
                found.append(int(entry.name))
    return found


def swept(folder: Path, kills: int, rng: random.Random, between: float = 0.0) -> tuple[int, int]:
    """Sweep to the end, whatever is killed; how often that was the driver, and a process of a trial.

    :param between: Seconds from one kill to the next, on average.
    """
    of_driver = of_trials = 0
    while True:
        driver = start(folder)
        while driver.poll() is None and of_driver + of_trials < kills:
            time.sleep(rng.uniform(0.0, 2 * between))
            others = [pid for pid in processes_of(folder) if pid != driver.pid]
            victim = driver.pid if rng.random() < 0.5 or not others else rng.choice(others)
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                of_driver, of_trials = of_driver + (victim == driver.pid), of_trials + (victim != driver.pid)
        code = driver.wait()
        if code == 0:
            return of_driver, of_trials
        # What checked the first job may have been killed, too: then nothing has begun.
        if code != -signal.SIGKILL and (folder / "sweeps").exists():
            raise SystemExit(f"the sweep has failed:\n{(folder / 'driver.log').read_text()[-2000:]}")


def table_of(folder: Path) -> tuple[list[Sequence[Any]], list[int]]:
    """What became of each trial, and the best. Why trials have failed is printed."""
    command = [*_HOSTCORE, "sweep", "status", "digits", "--json"]
    status = json.loads(subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout)
    for row in status["trials"]:
        if row["state"] == "failed":
            print(f"trial {row['number']} has failed: {row['reason']}", flush=True)
    keys = ("number", "run_id", "state", "values", "objective", "step")
    return [[row[key] for key in keys] for row in status["trials"]], status["best"]


def repeated(folder: Path) -> int:
    """Runs whose attempts did not follow one another, as their event logs say."""
    broken = 0
    for log in (folder / "runs").glob("*/logs/events.jsonl"):
        events = [json.loads(line) for line in log.read_bytes().splitlines()]
        attempts = [event["attempt"] for event in events]
        numbered = [event["seq"] for event in events] == list(range(1, len(events) + 1))
        broken += not numbered or attempts != sorted(attempts)
    return broken


def shown(
    folder: Path,
    options: argparse.Namespace,
    launcher: str,
    kills: int = 0,
    rng: random.Random | None = None,
    between: float = 0.0,
) -> tuple[float, tuple[list[Sequence[Any]], list[int]]]:
    """Sweep in a folder and print what came of it; how long it took, and the table."""
    folder.mkdir(parents=True)
    write(folder, options, launcher)
    began = time.monotonic()
    of_driver, of_trials = swept(folder, kills, rng or random.Random(), between)
    took = time.monotonic() - began
    rows, best = table_of(folder)
    states = [row[2] for row in rows]
    counted = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
    runs = len(list((folder / "runs").iterdir()))
    print(
        f"{folder.name}: {took:.0f} s, {runs} runs, {counted}, best {best}; killed: driver {of_driver}, trials "
        f"{of_trials}; runs whose attempts overlapped: {repeated(folder)}",
        flush=True,
    )
    return took, (rows, best)


def main() -> None:
    """Sweep in peace and under fire, compare, and print."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--trials", type=int, default=60)
    ask.add_argument("--kills", type=int, default=30)
    ask.add_argument("--parallel", type=int, default=2)
    ask.add_argument("--launchers", nargs="+", default=["local"])
    ask.add_argument("--seed", type=int, default=1)
    ask.add_argument("--keep", type=Path, metavar="FOLDER", help="a new folder, in which the sweeps stay")
    options = ask.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # as Ray has it: with as many threads, sums are the same to the last bit
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        place = (options.keep or Path(name)).resolve()
        took, peaceful = shown(place / "in peace", options, "local")
        differing = []
        for launcher in options.launchers:
            folder = place / f"under fire, {launcher}"
            _, table = shown(folder, options, launcher, options.kills, rng, took / max(1, options.kills))
            if table != peaceful:
                differing.append(launcher)
                for before, now in zip(peaceful[0], table[0], strict=False):
                    print(*([] if before == now else [before, now]), sep="\n", end="\n" if before != now else "")
        print(f"the tables DIFFER: {', '.join(differing)}" if differing else "the tables are the same")
        sys.exit(bool(differing))


if __name__ == "__main__":
    main()
