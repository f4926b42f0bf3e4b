"""What a framework's loop adds to a training step, counted by valgrind: a busy machine does not change it.

The steps are those of ``step_overhead.py``, and so are its ways. Counted are, over the bare loop in the same process:
instructions of the loop's thread; instructions of all threads, where ``hostcore run --in-process`` has its supervisor
and its reporters in threads, too; misses of the first-level caches (as simulated, 32 KiB each, which a step of PyTorch
fills with other things); and mispredicted branches. What the kernel does for a system call is not counted. The last
columns are ratios to ignite: of instructions, and of what they cost in cycles, if a miss takes 10 and a branch 15.

    apt-get install valgrind && pip install pytorch-ignite
    python benchmarks/step_instructions.py [--only hostcore,hostcore_silent,ignite] [--json FILE]

Takes about three minutes a way.
"""

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import results
import step_overhead
from step_overhead import DATASET, STRETCH

#: Stretches: some to warm up, and those that are counted, each between two of the bare loop.
WARM, COUNTED = 3, 2
STEPS = (WARM + COUNTED) * STRETCH + 1
JOBS: dict[str, dict[str, Any]] = {
    "hostcore": {},
    "hostcore_silent": {"metric_every": 0, "terminal": False},
    "hostcore_feed": {"metric_every": 0, "terminal": False, "dataset": DATASET},
}
#: Valgrind's names of what is counted.
INSTRUCTIONS, MISSES, BRANCHES = ("Ir",), ("I1mr", "D1mr", "D1mw"), ("Bcm", "Bim")
CYCLES_OF_MISS, CYCLES_OF_BRANCH = 10, 15


class Source(step_overhead.Source):
    """Has callgrind write down what it has counted at the end of each stretch: bare, framework, bare, framework."""

    def tick(self, step: int) -> None:
        stretch, rest = divmod(step, STRETCH)
        if rest or stretch < WARM:
            return
        if stretch == WARM:
            _control("-i", "on")
            _control("-z")
        else:
            _control("-d")
        self._run_bare()
        _control("-d")

    def answer(self) -> dict[str, Any]:
        return {}


class Trainer(step_overhead.Trainer):
    """The same steps, counted."""

    source_class = Source


def _control(*order: str) -> None:
    subprocess.run(["callgrind_control", *order, str(os.getpid())], check=True, capture_output=True)


def count(way: str, place: Path) -> dict[str, float]:
    """What a step adds, by what is counted; ``all`` are the instructions of all threads."""
    tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--separate-threads=yes", "--cache-sim=yes"]
    tool += ["--branch-sim=yes", f"--callgrind-out-file={place / 'counted'}", sys.executable]
    if way in JOBS:
        for module in (__file__, step_overhead.__file__, results.__file__):
            (place / Path(module).name).symlink_to(Path(module).resolve())
        if "dataset" in JOBS[way]:
            step_overhead.write_rows(place / "rows.parquet", STEPS)
        job = {"trainer": "step_instructions:Trainer", "max_steps": STEPS, **JOBS[way]}
        (place / "job.json").write_text(json.dumps(job))
        command = [*tool, "-m", "hostcore", "run", "--in-process", str(place / "job.json")]
    else:
        command = [*tool, __file__, "--peer", way]
    environment = {
        **os.environ,
        step_overhead.STEPS: str(STEPS),
        step_overhead.RESULT: str(place / "result.json"),
        "HOSTCORE_RUNS_DIR": str(place / "runs"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{way} failed:\n{done.stderr}")
    files = {(int(number), int(thread)): file for file, number, thread in _written(place)}
    stretches = range(1, 2 * COUNTED + 1)
    loop = [_counts(files[number, 1]) for number in stretches]
    added = {
        name: sum(loop[number][name] - loop[number - 1][name] for number in range(1, 2 * COUNTED, 2))
        for name in loop[0]
    }
    # The other threads have nothing to do for the bare loop, and work off during it what is left to do.
    others = sum(_counts(file)["Ir"] for (number, thread), file in files.items() if thread > 1 and number in stretches)
    return {name: total / (COUNTED * STRETCH) for name, total in {**added, "all": added["Ir"] + others}.items()}


def _written(place: Path) -> list[tuple[Path, str, str]]:
    names = ((file, re.fullmatch(r"counted\.(\d+)-(\d+)", file.name)) for file in place.iterdir())
    return [(file, found[1], found[2]) for file, found in names if found]


def _counts(file: Path) -> dict[str, int]:
    text = file.read_text()
    names, values = (re.search(rf"^{line}: (.+)$", text, re.MULTILINE) for line in ("events", "summary"))
    assert names, file
    numbers = [int(one) for one in values[1].split()] if values else []
    return dict.fromkeys(names[1].split(), 0) | dict(zip(names[1].split(), numbers, strict=False))


def main() -> None:
    ways = [*JOBS, "ignite"]
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--only", default=",".join(ways), help="comma separated")
    ask.add_argument("--peer", choices=["ignite"], help=argparse.SUPPRESS)
    results.add_option(ask)
    options = ask.parse_args()
    if options.peer:
        import torch

        torch.set_num_threads(1)
        step_overhead.Source = Source  # type: ignore[misc]
        step_overhead.ignite(STEPS)
        return
    if shutil.which("callgrind_control") is None:
        raise SystemExit("valgrind is not installed; on Debian: apt-get install valgrind")
    found: dict[str, dict[str, float]] = {}
    for way in options.only.split(","):
        if way == "ignite" and importlib.util.find_spec("ignite") is None:
            print("ignite is not installed here", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as folder:
            added = count(way, Path(folder))
        misses, branches = sum(added[name] for name in MISSES), sum(added[name] for name in BRANCHES)
        found[way] = {
            "instructions": added["Ir"],
            "instructions, all threads": added["all"],
            "cache misses": misses,
            "branches": branches,
            "cycles": added["Ir"] + CYCLES_OF_MISS * misses + CYCLES_OF_BRANCH * branches,
        }
    peer = found.get("ignite")
    ratios = ("instructions", "instructions, all threads", "cycles")
    columns = ["loop", *list(next(iter(found.values())))[:-1], *(f"{name}, of ignite" for name in ratios)]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for way, added in found.items():
        cells = [f"{added[name]:,.0f}" for name in columns[1 : -len(ratios)]]
        cells += [f"{added[name] / peer[name]:.2f}" if peer else "-" for name in ratios]
        print(f"| {way} | {' | '.join(cells)} |")
    by_row = {f"{way}, {what}": [value] for way, added in found.items() for what, value in added.items()}
    results.write(options.json, "step_instructions", results.rows("a step", by_row))


if __name__ == "__main__":
    main()
