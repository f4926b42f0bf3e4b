"""What a job's own environment adds to the start of a run, and to the disk.

The same job with and without ``"environment"``, in turns: ``plain`` runs in this environment, ``warm`` finds its own in
the cache, ``asked`` does too after uv has asked the package index anew, ``built`` has to build it, from what uv has in
its own cache (an unmeasured round fills that), and compiles what it imports. Times are from starting ``hostcore run``
to the end of the first step, of a trainer that imports torch; the goal is at most 1 s between ``warm`` and ``plain``.
``import torch`` here and in the built one stand beside.

    pip install ./extensions/environments
    python benchmarks/environments.py [--rounds 5] [--requirement NAME ...] [--json FILE]

Set ``UV_INDEX``, ``UV_FIND_LINKS`` or ``UV_CONSTRAINT`` such that uv resolves the torch that is wanted.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import results
from cold_start import RESULT

from hostcore_environments.cache import FOLDER_VARIABLE, EnvironmentCache
from hostcore_environments.resolutions import REUSED_VARIABLE


def first_step(place: Path, job: str, **variables: str) -> float:
    """Seconds from the start of ``hostcore run`` to the end of the first step."""
    answer = place / "result.json"
    environment = {**os.environ, RESULT: str(answer), "HOSTCORE_RUNS_DIR": str(place / "runs"), **variables}
    began = time.time()
    done = subprocess.run(
        [sys.executable, "-m", "hostcore", "run", job], cwd=place, env=environment, capture_output=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{job} failed:\n{done.stderr.decode()}")
    return float(json.loads(answer.read_text())["at"] - began)


def import_torch(python: str | Path) -> float:
    """Seconds of a process that does nothing else."""
    began = time.perf_counter()
    subprocess.run([python, "-c", "import torch"], check=True)
    return time.perf_counter() - began


def disk(folder: Path) -> tuple[float, float]:
    """Bytes of an environment, and those of them that it shares with uv's cache by hard links."""
    files = [one.lstat() for one in folder.rglob("*") if not one.is_dir()]
    shared = [one.st_blocks * 512 for one in files if one.st_nlink > 1]
    return float(sum(one.st_blocks * 512 for one in files)), float(sum(shared))


def main() -> None:
    """Measure, print, and write."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--rounds", type=int, default=5)
    ask.add_argument(
        "--requirement", action="append", help="what the environment has beside hostcore; six if not given"
    )
    results.add_option(ask)
    options = ask.parse_args()
    requirements = options.requirement or ["six"]
    names = ("import torch", "import torch there", "plain", "warm", "asked", "built")
    took: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        place, environments = Path(folder), Path(folder) / "environments"
        os.environ[FOLDER_VARIABLE] = str(environments)
        (place / "cold_start.py").symlink_to(Path(__file__).with_name("cold_start.py").resolve())
        plain = {"trainer": "cold_start:FirstStep", "max_steps": 1}
        (place / "plain.json").write_text(json.dumps(plain))
        (place / "own.json").write_text(json.dumps({**plain, "environment": {"requirements": requirements}}))
        for number in range(options.rounds + 1):
            shutil.rmtree(environments, ignore_errors=True)
            measured = {"built": first_step(place, "own.json")}
            (built,) = EnvironmentCache().all()
            measured["warm"] = first_step(place, "own.json")
            measured["asked"] = first_step(place, "own.json", **{REUSED_VARIABLE: "0"})
            measured["plain"] = first_step(place, "plain.json")
            measured["import torch"] = import_torch(sys.executable)
            measured["import torch there"] = import_torch(built.folder / "bin" / "python")
            for name in names if number else ():
                took[name].append(measured[name])
        whole, shared = disk(built.folder)
    rows = {
        **results.rows("s", took),
        **results.rows("bytes", {"disk": [whole], "disk, shared with uv's cache": [shared]}),
    }
    results.write(options.json, "environments", rows, requirements=requirements)
    print(f"{options.rounds} rounds; {', '.join(requirements)}\n")
    print("| start | s | min..max | over plain, s |\n|---|---|---|---|")
    for name in names:
        over = [own - other for own, other in zip(took[name], took["plain"], strict=True)]
        told = (
            f"{statistics.median(over):.2f} ({min(over):.2f}..{max(over):.2f})"
            if name in ("warm", "asked", "built")
            else ""
        )
        print(
            f"| {name} | {statistics.median(took[name]):.2f} | {min(took[name]):.2f}..{max(took[name]):.2f} | {told} |"
        )
    print(f"\nthe environment: {whole / 1e6:,.0f} MB, of which {shared / 1e6:,.0f} MB are uv's own files by hard links")


if __name__ == "__main__":
    main()
