"""Processes that begin in milliseconds: a server that has imported torch and hostcore, and forks a child for each call.

A check that needs processes of their own, because it kills them or because nothing of one may reach the next, calls
functions in them by name. The server never computes anything and never imports the plugin: a fork must not inherit
torch's threads, nor what a plugin keeps in its modules.

A server is a chain of processes, each a fork of the one before that has imported more, so that torch is imported once.
The first has imported next to nothing: what it forks is as good as a new interpreter. Each waits with its imports until
it, or one behind it, is asked.

A child that is to share nothing at all with the others, not even the seed of Python's hashes, is forked by a second
server. Where a process with such libraries cannot safely be forked (macOS), a child is a new interpreter. That takes
seconds.
"""

import atexit
import contextlib
import ctypes
import enum
import fcntl
import functools
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import termios
import time
import traceback
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final, NoReturn

import attrs

from hostcore_conformance.process.settings import THREADS

_FORKS: Final = sys.platform == "linux"


class Imported(enum.IntEnum):
    """Modules that a child finds imported, in the order of the chain."""

    #: Numpy, and the start of :mod:`~hostcore_conformance.process.import_probe`.
    LITTLE = 0
    TORCH = 1
    #: What a run imports sooner or later.
    RUN = 2


_PRELOADED: Final = {
    Imported.LITTLE: ("hostcore_conformance.process.import_probe",),
    Imported.TORCH: ("torch",),
    Imported.RUN: (
        "hostcore.in_process",
        "hostcore.worker.attempt",
        "hostcore_conformance.checks.trainer.attempts",
        "hostcore_builtin_plugins.sources.mock",
        "hostcore_builtin_plugins.sources.parquet",
        "hostcore_builtin_plugins.sources.arrow",
        "packaging.requirements",
        "pyarrow.parquet",
        "torch._dynamo",
        "torch.distributed.checkpoint.state_dict",
        "torch.distributed.tensor",
    ),
}
#: The same of what is imported where it is installed.
_PRELOADED_IF_THERE: Final = {
    Imported.LITTLE: ("numpy",),
    Imported.TORCH: (),
    Imported.RUN: ("pandas", "pyarrow.pandas_compat"),
}
#: The checks that all others require which run in processes of their own, and with another seed of Python's hashes.
_RUNS_APART: Final = "trainer.resume_exact"
_RUNS_WITH_OTHER_HASHES: Final = "trainer.resumes_in_new_process"
_MODULE: Final = "hostcore_conformance.process.fork_server"
#: The argument of an interpreter that is to be a child.
_CHILD: Final = "child"
_OUTPUT_TAIL: Final = 2_000
#: The environment variable with the seed of Python's hashes.
_HASH_SEED: Final = "PYTHONHASHSEED"
#: Of ``prctl``: the signal for when the parent process ends.
_PR_SET_PDEATHSIG: Final = 1


@attrs.frozen(kw_only=True)
class ChildEnd:
    """End of a child."""

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
        """True if it was killed, and not for taking too long."""
        return self.code == -signal.SIGKILL and not self.timed_out


class ForkServer:
    """Starts one child at a time.

    :param hash_seed: Of Python's hashes in all children; if not given, that of the environment, or one by chance.
    """

    def __init__(self, hash_seed: str | None = None) -> None:
        # One thread each, unless the environment has another number; see `process_kept`.
        path = [one for one in sys.path if one and isinstance(one, str)]  # as `import` looks at it
        environment = {THREADS: "1", **os.environ, "PYTHONPATH": os.pathsep.join(path)}
        self._hash_seed = {} if hash_seed is None else {_HASH_SEED: hash_seed}
        self._with_other_hashes: ForkServer | None = None
        pipes = [(os.pipe(), os.pipe()) for _ in Imported]
        self._links = {
            imported: _Link(asks=asks, reads=reads)
            for imported, ((_, asks), (reads, _)) in zip(Imported, pipes, strict=True)
        }
        theirs = [descriptor for (asked, _), (_, answers) in pipes for descriptor in (asked, answers)]
        command = [sys.executable, "-P", "-m", _MODULE, *map(str, theirs)]
        try:
            self._server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, env=environment | self._hash_seed, pass_fds=theirs
            )
        finally:
            for descriptor in theirs:
                os.close(descriptor)

    def call(
        self,
        function: str,
        arguments: Mapping[str, Any],
        *,
        folder: Path,
        timeout_seconds: float,
        environment: Mapping[str, str] | None = None,
        imported: Imported = Imported.RUN,
        fresh: bool = False,
    ) -> ChildEnd:
        """Call a function in a process of its own, and wait for the end of that.

        :param function: ``module:name``. Takes the arguments by name, and returns plain JSON.
        :param arguments: Plain JSON.
        :param folder: Empty; becomes the working directory of the child, beside files for its output.
        :param timeout_seconds: After which it is killed.
        :param environment: Variables to set.
        :param imported: Modules that the child finds imported.
        :param fresh: Whether the child has another seed of Python's hashes.
        """
        if fresh and _FORKS:
            return self._other().call(
                function,
                arguments,
                folder=folder,
                timeout_seconds=timeout_seconds,
                environment=environment,
                imported=imported,
            )
        link = self._links[imported if _FORKS else Imported.LITTLE]
        answer, output, work = folder / "answer.json", folder / "output.txt", folder / "work"
        work.mkdir()
        defaults = {THREADS: "1"} if imported is Imported.RUN else {}  # others are to see the environment as it is
        question = {
            "function": function,
            "arguments": arguments,
            "answer": str(answer),
            "output": str(output),
            "folder": str(work),
            "path": [str(Path(entry).absolute()) for entry in sys.path],
            "environment": {**defaults, **os.environ, **self._hash_seed, **(environment or {})},
        }
        started = time.monotonic()
        link.ask(question)
        pid = self._read(link)
        timed_out = True
        try:
            timed_out = not link.is_answered(timeout_seconds)
        finally:  # also when this process is interrupted
            if timed_out:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(self._read(link))
        return ChildEnd(
            code=code,
            timed_out=timed_out,
            seconds=time.monotonic() - started,
            output=_tail(output),
            value=json.loads(answer.read_bytes()) if answer.exists() else None,
        )

    def prepare(self, *, fresh: bool = False) -> None:
        """Let the server import what a run imports, while this process does something else.

        :param fresh: Also the server of children with another seed of Python's hashes.
        """
        if not _FORKS:
            return
        self._links[Imported.RUN].prepare()
        if fresh:
            self._other().prepare()

    def _other(self) -> "ForkServer":
        if self._with_other_hashes is None:
            self._with_other_hashes = ForkServer("1" if os.environ.get(_HASH_SEED) != "1" else "2")
        return self._with_other_hashes

    def _read(self, link: "_Link") -> int:
        number = link.read()
        if number is None:
            raise RuntimeError(f"the server of processes has ended with {self._server.wait()}")
        return number

    def close(self) -> None:
        """End the server, also if it is in the middle of its imports."""
        if self._with_other_hashes is not None:
            self._with_other_hashes.close()
        for link in self._links.values():
            link.close()
        self._server.kill()
        self._server.wait()


@attrs.frozen(kw_only=True)
class _Link:
    """The pipes to a process of the chain."""

    asks: int
    reads: int

    def ask(self, question: Mapping[str, Any]) -> None:
        _write(self.asks, json.dumps(question).encode() + b"\n")

    def prepare(self) -> None:
        _write(self.asks, b"\n")

    def is_answered(self, timeout_seconds: float) -> bool:
        return bool(select.select([self.reads], [], [], timeout_seconds)[0])

    def read(self) -> int | None:
        """The number that was answered; None if the server has ended."""
        line = b""
        # Byte by byte: what a buffer holds back, `select` does not see.
        while not line.endswith(b"\n"):
            byte = os.read(self.reads, 1)
            if not byte:
                return None
            line += byte
        return int(line)

    def close(self) -> None:
        os.close(self.asks)
        os.close(self.reads)


def _write(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):  # reading the answer has the cause
        while data:
            data = data[os.write(descriptor, data) :]


@functools.cache
def fork_server() -> ForkServer:
    """The fork server of this process, for all plugins that it checks; it ends with the process."""
    made = ForkServer()
    atexit.register(made.close)
    return made


def makes_runs(families: Set[str], *, fresh: bool = False) -> bool:
    """Return whether some checks call functions in children that have imported what a run does.

    :param families: The checks, and those that they require.
    :param fresh: Only in those with another seed of Python's hashes.
    """
    return (_RUNS_WITH_OTHER_HASHES if fresh else _RUNS_APART) in families


def _tail(output: Path) -> str:
    text = output.read_text(errors="replace") if output.exists() else ""
    return text[-_OUTPUT_TAIL:]


def _serve(links: Sequence[tuple[int, int]]) -> None:
    """Be the first process of a chain, or in a fork of it one of the others.

    :param links: For each process of the chain, the descriptors that it is asked on, and that it answers on.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of Ctrl-C: the process that asks decides
    os.dup2(2, 1)  # a child's own output goes elsewhere, that of an import here to the terminal
    for imported in Imported:
        (asked, answers), *behind = links[imported:]
        if not _wait_for_question([asked, *(descriptor for descriptor, _ in behind)]):
            return
        preload(imported)
        following = os.fork() if behind and _FORKS else None
        if following == 0:
            _end_with_parent()
            os.close(asked)
            os.close(answers)
            continue
        for one in behind:
            for descriptor in one:
                os.close(descriptor)
        _answer_all(asked, answers)
        if following is not None:
            os.waitpid(following, 0)
        return


def _wait_for_question(descriptors: Sequence[int]) -> bool:
    """Wait until one of some processes is asked; false if none will be, since the process that asks is gone."""
    ready = select.select(descriptors, [], [])[0]
    return any(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)) != bytes(4) for descriptor in ready)


def preload(imported: Imported) -> None:
    """Import what the children of a process of the chain find, and leave it out of all collections of garbage.

    A collection takes a tenth of a second otherwise, and in a child copies the pages of all that. Those that importing
    causes take as long, and find next to nothing.
    """
    gc.disable()
    for module in _PRELOADED[imported]:
        importlib.import_module(module)
    for module in _PRELOADED_IF_THERE[imported]:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    gc.freeze()
    gc.enable()


def _answer_all(asked: int, answering: int) -> None:
    """Start a child for each line, and answer twice: with its number, and with its wait status when it has ended."""
    questions, answers = os.fdopen(asked), os.fdopen(answering, "w")
    for line in questions:
        if not line.strip():  # that was to prepare it
            continue
        question = json.loads(line)
        pid = os.fork() if _FORKS else _start(line, question)
        if pid == 0:
            os.close(asked)
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


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _be(question: Mapping[str, Any]) -> NoReturn:
    """Be the child that was asked for."""
    code = 70
    try:
        os.setsid()
        if _FORKS:  # it is not of the group of the checks, and must not outlive it
            _end_with_parent()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        descriptor = os.open(question["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for standard, target in ((0, nothing), (1, descriptor), (2, descriptor)):
            os.dup2(target, standard)
        os.chdir(question["folder"])
        os.environ.clear()
        os.environ.update(question["environment"])
        sys.path[:] = question["path"]
        importlib.invalidate_caches()
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
    _descriptors = [int(argument) for argument in sys.argv[1:]]
    _serve(list(zip(_descriptors[::2], _descriptors[1::2], strict=True)))
