"""Cold start: wall time of new processes, beside ``import torch``, in one run; and the memory of supervisor and worker.

"Cold" is a new process with the files in the page cache and ``.pyc`` files written: one unmeasured round goes first.
Ways are interleaved over rounds; medians are printed. Peers are measured if they are installed in this environment.

    python benchmarks/cold_start.py [--rounds 7] [--json FILE]

``run to step 1`` is the time from starting ``hostcore run`` to the end of the first step, for a job without data
and a trainer that imports torch and does nothing. Its budget is counted over ``import torch`` of the same round.
``CPU`` is what all processes of a way took together, to their end: less noisy on a busy machine.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

RESULT = "COLD_START_RESULT"


class FirstStep:
    """A trainer that notes when its first step was done, and the memory of both processes."""

    def setup(self) -> None:
        import torch  # noqa: F401 - what every trainer imports

    def configure(self) -> None:
        return None

    def prepare_batch(self) -> None:
        return None

    def train_step(self) -> object:
        from hostcore_hookspecs import StepResult

        answer = {"at": time.time(), "worker": resident(os.getpid()), "supervisor": resident(os.getppid())}
        Path(os.environ[RESULT]).write_text(json.dumps(answer))
        return StepResult()

    def state_dict(self) -> dict[str, object]:
        return {}

    def load_state_dict(self) -> None:
        return None


def resident(pid: int) -> int:
    """Resident memory of a process in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def process(*arguments: str) -> Callable[[Path], float]:
    """A way that is one process of this interpreter."""

    def measure(place: Path) -> float:
        began = time.perf_counter()
        done = subprocess.run([sys.executable, *arguments], cwd=place, capture_output=True, check=False)
        took = time.perf_counter() - began
        if done.returncode:
            raise SystemExit(f"{arguments} failed:\n{done.stderr.decode()}")
        return took

    return measure


def first_step(place: Path) -> float:
    """From the start of ``hostcore run`` to the end of the first step."""
    environment = {**os.environ, RESULT: str(place / "result.json"), "HOSTCORE_RUNS_DIR": str(place / "runs")}
    began = time.time()
    subprocess.run(
        [sys.executable, "-m", "hostcore", "run", "job.json"],
        cwd=place,
        env=environment,
        capture_output=True,
        check=True,
    )
    answer = json.loads((place / "result.json").read_text())
    MEMORY["supervisor"].append(answer["supervisor"])
    MEMORY["worker"].append(answer["worker"])
    return float(answer["at"] - began)


MEMORY: dict[str, list[int]] = {"supervisor": [], "worker": []}
WAYS: dict[str, Callable[[Path], float]] = {
    "python -c pass": process("-c", "pass"),
    "import torch": process("-c", "import torch"),
    "hostcore --help": process("-m", "hostcore", "--help"),
    "hostcore plugins": process("-m", "hostcore", "plugins"),
    "hostcore list": process("-m", "hostcore", "list"),
    "hostcore validate": process("-m", "hostcore", "validate", "job.json"),
    "hostcore run to step 1": first_step,
}
PEERS = {
    "import lightning": ("lightning", process("-c", "import lightning")),
    "import ignite.engine": ("ignite", process("-c", "import ignite.engine")),
    "import transformers.Trainer": ("transformers", process("-c", "from transformers import Trainer")),
}


def main() -> None:
    import results  # the worker that is measured does not

    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--rounds", type=int, default=7)
    results.add_option(ask)
    options = ask.parse_args()
    ways = WAYS | {name: way for name, (module, way) in PEERS.items() if importlib.util.find_spec(module)}
    took: dict[str, list[float]] = {name: [] for name in ways}
    worked: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "cold_start.py").symlink_to(Path(__file__).resolve())
        (place / "job.json").write_text(json.dumps({"trainer": "cold_start:FirstStep", "max_steps": 1}))
        for number in range(options.rounds + 1):
            for name, way in ways.items():
                before = processor_seconds()
                seconds = way(place)
                if number:
                    took[name].append(seconds)
                    worked[name].append(processor_seconds() - before)
    memory = {f"memory of the {name}": list(map(float, values[1:])) for name, values in MEMORY.items()}
    rows = {
        **results.rows("s", took),
        **results.rows("s", {f"{name}, CPU": values for name, values in worked.items()}),
        **results.rows("bytes", memory),
    }
    results.write(options.json, "cold_start", rows)
    distributions = len(list(importlib.metadata.distributions()))
    torch = took["import torch"]
    print(f"{options.rounds} rounds, {distributions} distributions installed")
    print("| start | ms | min..max | over import torch, ms | min..max | CPU, ms |\n|---|---|---|---|---|---|")
    for name, values in took.items():
        over = [a - b for a, b in zip(values, torch, strict=True)]
        cells = [name, ms(statistics.median(values)), f"{ms(min(values))}..{ms(max(values))}"]
        cells += [ms(statistics.median(over)), f"{ms(min(over))}..{ms(max(over))}", ms(statistics.median(worked[name]))]
        print("|", " | ".join(cells), "|")
    for name, values in memory.items():
        print(f"{name}: {statistics.median(values) / 1e6:.0f} MB")


def processor_seconds() -> float:
    """Of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f}"


if __name__ == "__main__":
    main()
