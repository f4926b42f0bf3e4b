"""A process that has imported what ``hostcore upload`` needs, and forks uploads off.

As a program it reads lines of JSON: ``{"run": …, "output": …}`` starts ``hostcore upload`` in a child, and answers with
its process number; ``null`` waits for the child and answers with its wait status.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class UploadNursery:
    """Starts uploads, one at a time.

    :param output: Where they print to.
    """

    def __init__(self, output: Path) -> None:
        self.output = output
        self._process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _ask(self, question: object) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def upload(self, run: Path, *, kill_after_seconds: float | None = None) -> int:
        """Upload what is left of a run; the exit code, or ``-SIGKILL`` if it was killed before it had ended."""
        pid = self._ask({"run": str(run), "output": str(self.output)})
        if kill_after_seconds is not None:
            time.sleep(kill_after_seconds)
            os.kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(self._ask(None))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def upload_nursery(output: Path) -> Iterator[UploadNursery]:
    """A nursery that is closed in the end."""
    made = UploadNursery(output)
    try:
        yield made
    finally:
        made.close()


def _main() -> None:
    # Nothing of it may start a thread: a fork would not inherit it.
    for module in (
        "hostcore.cli.upload",
        "hostcore.supervisor.uploads.leftover",
        "hostcore_builtin_plugins.uploaders.fsspec",
        "hostcore_builtin_plugins.uploaders.places",
        "s3fs",
        "aiobotocore.session",
    ):
        importlib.import_module(module)
    for line in sys.stdin:
        question = json.loads(line)
        if question is not None:
            child = os.fork()
            if child == 0:
                _upload(**question)
            print(child, flush=True)
        else:
            print(os.waitpid(child, 0)[1], flush=True)


def _upload(run: str, output: str) -> None:
    code = 70
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for standard in (1, 2):
            os.dup2(descriptor, standard)
        from hostcore.cli import main

        sys.argv = ["hostcore", "upload", run]
        main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:  # noqa: BLE001 - what is raised here must not come to the parent's code
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _main()
