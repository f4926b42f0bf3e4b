"""A process that has imported everything and forks runs off: each begins in milliseconds instead of seconds.

As a program it reads lines of JSON: ``{"job": …, "runs_dir": …, "output": …}`` starts a run in a child and answers with
its process number; ``null`` waits for the child and answers with its wait status.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class Nursery:
    """Starts runs, one at a time."""

    def __init__(self, runs_dir: Path) -> None:
        self.runs_dir = runs_dir
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOSTCORE_")}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def _ask(self, question: object) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def start(self, job: Mapping[str, Any]) -> int:
        """Start a run in a process of its own; its number. It stays in the process table until it was waited for."""
        output = self.runs_dir / f"{job['run_id']}.out"
        return self._ask({"job": job, "runs_dir": str(self.runs_dir), "output": str(output)})

    def wait(self) -> int:
        """Wait for the end of the run: its exit code, or the negative number of the signal that ended it."""
        return os.waitstatus_to_exitcode(self._ask(None))

    def run(self, job: Mapping[str, Any]) -> tuple[int, float]:
        """Run a job to its end: its exit code, and how long it took, in seconds."""
        started = time.monotonic()
        self.start(job)
        return self.wait(), time.monotonic() - started

    def run_and_kill(self, job: Mapping[str, Any], after_seconds: float) -> int:
        """Run a job, and kill it after a while if it has not ended by then; its exit code, or ``-SIGKILL``."""
        pid = self.start(job)
        time.sleep(after_seconds)
        os.kill(pid, signal.SIGKILL)
        return self.wait()

    def output(self, run_id: str) -> str:
        """What the runs of an id have printed."""
        return (self.runs_dir / f"{run_id}.out").read_text(errors="replace")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def nursery(runs_dir: Path) -> Iterator[Nursery]:
    """A nursery that is closed in the end."""
    made = Nursery(runs_dir)
    try:
        yield made
    finally:
        made.close()


def _main() -> None:
    # What a run imports sooner or later. Nothing of it computes anything: a fork must not inherit torch's threads.
    for module in ("hostcore.in_process", "hostcore.worker.attempt", "hostcore_builtin_plugins.mock", "torch._dynamo"):
        importlib.import_module(module)
    sys.path.insert(0, str(HERE))
    for line in sys.stdin:
        question = json.loads(line)
        if question is not None:
            child = os.fork()
            if child == 0:
                _be_a_run(**question)
            print(child, flush=True)
        else:
            print(os.waitpid(child, 0)[1], flush=True)


def _be_a_run(job: Mapping[str, Any], runs_dir: str, output: str) -> None:
    code = 70
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for standard in (1, 2):
            os.dup2(descriptor, standard)
        os.environ["HOSTCORE_RUNS_DIR"] = runs_dir
        import hostcore

        code = hostcore.run(job).exit_code
    except BaseException:  # noqa: BLE001 - what is raised here must not come to the parent's code
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    _main()
