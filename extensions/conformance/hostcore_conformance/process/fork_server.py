"""Processes that begin in milliseconds: a server that has imported torch and hostcore, and forks a child for each call.

A check that needs processes of their own, because it kills them or because nothing of one may reach the next, calls
functions in them by name. The server never computes anything and never imports the plugin: a fork must not inherit
torch's threads, nor what a plugin keeps in its modules.

The servers form chains of processes, each a fork of the one before that has imported more, so that torch is imported
once. The first has imported next to nothing: what it forks is as good as a new interpreter. Each waits with its imports
until it, or one behind it, is asked.

A child that is to share nothing at all with the others, not even the seed of Python's hashes, is forked by a second
chain. The process of ``hostcore check`` needs only one chain: it forks the server of runs from itself. Where a process
with such libraries cannot safely be forked (macOS), a child is a new interpreter. That takes seconds.
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
    """Starts one child at a time, in the chain of processes that has what the child needs.

    There are two chains, with different seeds of Python's hashes, each begun when it is needed first.
    """

    def __init__(self) -> None:
        self._chains: dict[bool, _Chain] = {}
        #: To a fork of this process; see :meth:`fork_here`.
        self._forked: _Link | None = None

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
        link = self._link(imported, fresh=fresh)
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
            "environment": {**defaults, **os.environ, **link.hash_seed, **(environment or {})},
        }
        started = time.monotonic()
        link.ask(question)
        pid = link.read()
        timed_out = True
        try:
            timed_out = not link.is_answered(timeout_seconds)
        finally:  # also when this process is interrupted
            if timed_out:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(link.read())
        return ChildEnd(
            code=code,
            timed_out=timed_out,
            seconds=time.monotonic() - started,
            output=_tail(output),
            value=json.loads(answer.read_bytes()) if answer.exists() else None,
        )

    def prepare(self, *, fresh: bool = False) -> None:
        """Let a chain import what a run imports, while this process does something else."""
        if _FORKS:
            self._link(Imported.RUN, fresh=fresh).prepare()

    def fork_here(self) -> None:
        """Import what a run imports, and fork the server of children that have it from this process.

        So it is imported once for both. No code of a plugin may have run before.
        """
        for imported in Imported:
            preload(imported)
        if _FORKS:
            link, theirs = _Link.opened()
            if os.fork() == 0:
                _end_with_parent()
                link.close()
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                if THREADS not in os.environ:
                    sys.modules["torch"].set_num_threads(1)
                _answer_all(*theirs)
                os._exit(0)
            for descriptor in theirs:
                os.close(descriptor)
            self._forked = link

    def _link(self, imported: Imported, *, fresh: bool) -> "_Link":
        if not _FORKS:
            imported, fresh = Imported.LITTLE, False  # each child is a new interpreter
        if self._forked is not None and imported is Imported.RUN and not fresh:
            return self._forked
        other = fresh or self._forked is not None  # one interpreter beside this one is enough
        if other not in self._chains:
            self._chains[other] = _Chain(_other_hash_seed() if other else {})
        return self._chains[other].links[imported]

    def close(self) -> None:
        """End the servers, also if they are in the middle of their imports."""
        if self._forked is not None:
            self._forked.close()
        for chain in self._chains.values():
            chain.close()


def _other_hash_seed() -> Mapping[str, str]:
    return {_HASH_SEED: "1" if os.environ.get(_HASH_SEED) != "1" else "2"}


class _Chain:
    """The processes of a chain, in a new interpreter.

    :param hash_seed: The environment variable with the seed of Python's hashes in all of them; empty: as everywhere.
    """

    def __init__(self, hash_seed: Mapping[str, str]) -> None:
        # One thread each, unless the environment has another number; see `process_kept`.
        path = [one for one in sys.path if one and isinstance(one, str)]  # as `import` looks at it
        environment = {THREADS: "1", **os.environ, "PYTHONPATH": os.pathsep.join(path), **hash_seed}
        opened = {imported: _Link.opened(hash_seed) for imported in Imported}
        self.links = {imported: link for imported, (link, _) in opened.items()}
        theirs = [descriptor for _, pair in opened.values() for descriptor in pair]
        command = [sys.executable, "-P", "-m", _MODULE, *map(str, theirs)]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, pass_fds=theirs)
        finally:
            for descriptor in theirs:
                os.close(descriptor)

    def close(self) -> None:
        for link in self.links.values():
            link.close()
        self._process.kill()
        self._process.wait()


@attrs.frozen(kw_only=True)
class _Link:
    """The pipes to a process of a chain."""

    asks: int
    reads: int
    #: The environment variable for its children, if they have other hashes than this process.
    hash_seed: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def opened(cls, hash_seed: Mapping[str, str] | None = None) -> "tuple[_Link, tuple[int, int]]":
        """Return a link, and the descriptors of the process behind it: to be asked on, and to answer on."""
        (asked, asks), (reads, answers) = os.pipe(), os.pipe()
        return cls(asks=asks, reads=reads, hash_seed=hash_seed or {}), (asked, answers)

    def ask(self, question: Mapping[str, Any]) -> None:
        _write(self.asks, json.dumps(question).encode() + b"\n")

    def prepare(self) -> None:
        _write(self.asks, b"\n")

    def is_answered(self, timeout_seconds: float) -> bool:
        return bool(select.select([self.reads], [], [], timeout_seconds)[0])

    def read(self) -> int:
        """The number that was answered.

        :raises RuntimeError: The process has ended.
        """
        line = b""
        # Byte by byte: what a buffer holds back, `select` does not see.
        while not line.endswith(b"\n"):
            byte = os.read(self.reads, 1)
            if not byte:
                raise RuntimeError("the server of processes has ended")
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
