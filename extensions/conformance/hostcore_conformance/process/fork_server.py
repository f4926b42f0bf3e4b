"""Processes that begin in milliseconds: a server that has imported torch and hostcore, and forks a child for each call.

A check that needs processes of their own, because it kills them or because nothing of one may reach the next, calls
functions in them by name. The server never computes anything and never imports the plugin: a fork must not inherit
torch's threads, nor what a plugin keeps in its modules.

Where a process with such libraries cannot safely be forked (macOS), and for a child that is to share nothing at all
with the server, not even the seed of Python's hashes, the child is a new interpreter instead. That takes seconds.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import attrs

_FORKS: Final = sys.platform == "linux"
#: What a run imports sooner or later.
_PRELOADED: Final = (
    "hostcore.in_process",
    "hostcore.worker.attempt",
    "hostcore_conformance.rehearsal",
    "hostcore_builtin_plugins.sources.mock",
    "hostcore_builtin_plugins.sources.parquet",
    "hostcore_builtin_plugins.sources.arrow",
    "pyarrow.parquet",
    "torch._dynamo",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.tensor",
)
#: The same of what is imported where it is installed.
_PRELOADED_IF_THERE: Final = ("pandas",)
_MODULE: Final = "hostcore_conformance.process.fork_server"
#: The argument of an interpreter that is to be a child.
_CHILD: Final = "child"
_OUTPUT_TAIL: Final = 2_000
#: The environment variable with the seed of Python's hashes.
_HASH_SEED: Final = "PYTHONHASHSEED"
_THREADS: Final = "OMP_NUM_THREADS"


@attrs.frozen(kw_only=True)
class Ended:
    """How a child has ended."""

    #: The exit code, or the negative number of the signal.
    code: int
    #: Whether it was killed because it took too long.
    timed_out: bool
    seconds: float
    #: The end of what it has printed.
    output: str
    #: What the function returned; None if it did not come to its end.
    value: Any = None

    @property
    def killed(self) -> bool:
        """Whether it was killed, and not for taking too long."""
        return self.code == -signal.SIGKILL and not self.timed_out


class ForkServer:
    """Starts one child at a time."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", "-m", _MODULE]
        # One thread each, unless the environment says otherwise: examples are small, and a machine of CI is shared.
        environment = {_THREADS: "1", **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def call(
        self,
        function: str,
        arguments: Mapping[str, Any],
        *,
        folder: Path,
        timeout_seconds: float,
        environment: Mapping[str, str] | None = None,
        fresh: bool = False,
    ) -> Ended:
        """Call a function in a process of its own, and wait for the end of that.

        :param function: ``module:name``. Takes the arguments by name, and returns plain JSON.
        :param arguments: Plain JSON.
        :param folder: Empty; becomes the working directory of the child, beside files for what it says.
        :param timeout_seconds: After which it is killed.
        :param environment: Variables to set.
        :param fresh: Whether the child is a new interpreter, with another seed of Python's hashes.
        """
        answer, output, work = folder / "answer.json", folder / "output.txt", folder / "work"
        work.mkdir()
        question = {
            "function": function,
            "arguments": arguments,
            "answer": str(answer),
            "output": str(output),
            "folder": str(work),
            "path": [str(Path(entry).absolute()) for entry in sys.path],
            "environment": {_THREADS: "1", **os.environ, **(environment or {})},
            "fresh": fresh or not _FORKS,
        }
        started = time.monotonic()
        pid = self._ask(question)
        timed_out = True
        try:
            timed_out = not self._is_answered(timeout_seconds)
        finally:  # also when this process is interrupted
            if timed_out:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(self._read())
        return Ended(
            code=code,
            timed_out=timed_out,
            seconds=time.monotonic() - started,
            output=_tail(output),
            value=json.loads(answer.read_bytes()) if answer.exists() else None,
        )

    def _ask(self, question: Mapping[str, Any]) -> int:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(question).encode() + b"\n")
        self._server.stdin.flush()
        return self._read()

    def _is_answered(self, timeout_seconds: float) -> bool:
        assert self._server.stdout is not None
        return bool(select.select([self._server.stdout], [], [], timeout_seconds)[0])

    def _read(self) -> int:
        assert self._server.stdout is not None
        line = b""
        # Byte by byte: what a buffer holds back, `select` does not see.
        while not line.endswith(b"\n"):
            byte = os.read(self._server.stdout.fileno(), 1)
            if not byte:
                raise RuntimeError(f"the server of processes has ended with {self._server.wait()}")
            line += byte
        return int(line)

    def close(self) -> None:
        """End the server."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()


@functools.cache
def fork_server() -> ForkServer:
    """The fork server of this process, for all plugins that it checks; it ends with the process."""
    made = ForkServer()
    atexit.register(made.close)
    return made


def _tail(output: Path) -> str:
    text = output.read_text(errors="replace") if output.exists() else ""
    return text[-_OUTPUT_TAIL:]


def _serve() -> None:
    """Start a child for each line, and answer twice: with its number, and with its wait status when it has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of Ctrl-C: the process that asks decides
    answers = os.fdopen(os.dup(1), "w")  # a child's own output goes elsewhere, that of an import here to the terminal
    os.dup2(2, 1)
    for module in _PRELOADED:
        importlib.import_module(module)
    for module in _PRELOADED_IF_THERE:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a collection in a child would copy the pages of what is imported
    for line in sys.stdin:
        question = json.loads(line)
        pid = _start(line, question) if question["fresh"] else os.fork()
        if pid == 0:
            answers.close()
            _be(question)
        print(pid, file=answers, flush=True)
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # its number is not given away before it is waited for
            _kill_session(pid)
            status = os.waitpid(pid, 0)[1]
        else:
            status = os.waitpid(pid, 0)[1]
            _kill_session(pid)
        print(status, file=answers, flush=True)


def _start(line: str, question: Mapping[str, Any]) -> int:
    environment = {**question["environment"], "PYTHONPATH": os.pathsep.join(question["path"])}
    if _FORKS:  # then a caller wants it fresh, to see what the hashes do
        environment[_HASH_SEED] = "1" if environment.get(_HASH_SEED) != "1" else "2"
    child = subprocess.Popen([sys.executable, "-P", "-m", _MODULE, _CHILD], env=environment, stdin=subprocess.PIPE)
    assert child.stdin is not None
    with child.stdin as told:
        told.write(line.encode())
    child.returncode = 0  # it is waited for by its number
    return child.pid


def _kill_session(pid: int) -> None:
    """End what a child has started and left behind."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _be(question: Mapping[str, Any]) -> NoReturn:
    """Be the child that was asked for."""
    code = 70
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        descriptor = os.open(question["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for standard, target in ((0, nothing), (1, descriptor), (2, descriptor)):
            os.dup2(target, standard)
        os.chdir(question["folder"])
        os.environ.clear()
        os.environ.update(question["environment"])
        sys.path[:] = question["path"]
        value = _function(question["function"])(**question["arguments"])
        Path(question["answer"]).write_text(json.dumps(value))
        code = 0
    except BaseException:  # noqa: BLE001 - what is raised here must not come to the server's code
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _function(reference: str) -> Callable[..., Any]:
    module, _, name = reference.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


if __name__ == "__main__":
    if sys.argv[1:] == [_CHILD]:
        _be(json.loads(sys.stdin.readline()))
    _serve()
