"""The system calls that a training step makes in a run, counted by strace in the loop's own thread.

The trainer is that of ``step_overhead.py``, without its bare loop in between. strace is attached to the loop's thread
after some steps, and counted is what lies between two marks. It slows each call down, but the counts of this thread do
not depend on that, where those of the supervisor, which looks ten times a second, would.

    apt-get install strace
    python benchmarks/step_system_calls.py [--steps 2000] [--json FILE]

Takes half a minute.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import results
import step_overhead

#: Steps before those that are counted.
WARM = 1000
#: A call that nothing else makes.
MARK = "getpgrp"
JOBS: dict[str, dict[str, Any]] = {
    "hostcore": {},
    "hostcore_silent": {"metric_every": 0, "terminal": False},
}


class Source(step_overhead.Source):
    """Hands out the batch; has strace write down what the thread calls between two steps."""

    def tick(self, step: int) -> None:
        if step == WARM:
            self._calls = tempfile.NamedTemporaryFile()  # noqa: SIM115 - until the answer
            command = ["strace", "-o", self._calls.name, "-p", str(threading.get_native_id())]
            self._strace = subprocess.Popen(command, stderr=subprocess.PIPE)
            assert self._strace.stderr is not None
            self._strace.stderr.readline()  # it is attached
            _mark()
        elif step == self.steps - 1:
            _mark()
            self._strace.send_signal(signal.SIGINT)
            self._strace.wait()

    def answer(self) -> dict[str, Any]:
        names = [line.partition(b"(")[0].decode() for line in self._calls.read().splitlines()]
        first, last = (at for at, name in enumerate(names) if name == MARK)
        return Counter(names[first + 1 : last])


def _mark() -> None:
    os.getpgrp()


class Trainer(step_overhead.Trainer):
    """The same steps, without the bare loop."""

    source_class = Source


def count(way: str, steps: int) -> dict[str, int]:
    """The calls of the loop's thread in so many steps, by name."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for module in (__file__, step_overhead.__file__, results.__file__):
            (place / Path(module).name).symlink_to(Path(module).resolve())
        whole = WARM + steps + 1
        job = {"trainer": "step_system_calls:Trainer", "max_steps": whole, **JOBS[way]}
        (place / "job.json").write_text(json.dumps(job))
        environment = {
            **os.environ,
            step_overhead.STEPS: str(whole),
            step_overhead.RESULT: str(place / "result.json"),
            "HOSTCORE_RUNS_DIR": str(place / "runs"),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "hostcore", "run", str(place / "job.json")]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        found: dict[str, int] = json.loads((place / "result.json").read_text())
        return found


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--steps", type=int, default=2000)
    results.add_option(ask)
    options = ask.parse_args()
    if shutil.which("strace") is None:
        raise SystemExit("strace is not installed; on Debian: apt-get install strace")
    by_row: dict[str, list[float]] = {}
    print("| loop | system calls in 1,000 steps | of which |\n|---|---|---|")
    for way in JOBS:
        counted = Counter(count(way, options.steps)).most_common()
        found = {name: number * 1000 / options.steps for name, number in counted}
        by_row[way] = [sum(found.values())]
        named = ", ".join(f"{name} {number:,.1f}" for name, number in found.items())
        print(f"| {way} | {sum(found.values()):,.1f} | {named} |")
    results.write(options.json, "step_system_calls", results.rows("in 1,000 steps", by_row))


if __name__ == "__main__":
    main()
