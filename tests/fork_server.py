"""Commands that begin in milliseconds: a server that has imported hostcore and torch forks a process for each.

Most tests of a command are about what it does, and pay seconds for imports that are always the same. ``hostcore(...)``
gives a ``subprocess.Popen`` whose process is a fork of the server: with its own number, session, working directory,
environment, streams and exit code. ``popen`` and ``run`` do the same for other programs in Python:
``python -m module``, ``python -c code``, ``python script.py``.

What such a command starts in Python (workers, checks, runs of a sweep or of a service, ranks of an agent of torchrun)
are forks as well, and its children: beside it there is a process that was forked before it began, its template, which
forks siblings of itself. ``forked_children`` gives such a template to a test that starts processes itself.

What such a process cannot show is how an interpreter starts. A command whose environment says something about that
(``PYTHONHASHSEED``, ``LD_PRELOAD``, …) is therefore started as everywhere else, and so is every
command where processes with such libraries cannot safely be forked (macOS).

The workers of pytest-xdist can be forks as well: ``--tx '4*popen//python=python tests/fork_server.py --worker'``.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import hashlib
import importlib
import importlib.util
import inspect
import io
import json
import os
import platform
import random
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from command_line import COMMAND

#: What a run, a sweep and a service import sooner or later.
PRELOADED = (
    "hostcore.cli.commands.cancel",
    "hostcore.cli.commands.evaluate",
    "hostcore.cli.folder_client",
    "hostcore.cli.launched",
    "hostcore.cli.commands.logs",
    "hostcore.cli.plan_lines",
    "hostcore.cli.planning",
    "hostcore.cli.commands.plugins",
    "hostcore.cli.commands.replay",
    "hostcore.cli.commands.resume",
    "hostcore.cli.commands.run",
    "hostcore.cli.starting",
    "hostcore.cli.commands.list",
    "hostcore.cli.commands.status",
    "hostcore.cli.status_lines",
    "hostcore.cli.commands.upload",
    "hostcore.cli.uploading",
    "hostcore.cli.commands.validate",
    "hostcore.cli.commands.verify",
    "hostcore.in_process",
    "hostcore.supervisor.check",
    "hostcore.supervisor.evaluate",
    "hostcore.supervisor.run_status",
    "hostcore.supervisor.submit",
    "hostcore.worker.attempt",
    "hostcore_builtin_plugins.sources.arrow",
    "hostcore_builtin_plugins.sources.csv_source",
    "hostcore_builtin_plugins.sources.json_source",
    "hostcore_builtin_plugins.jsonl",
    "hostcore_builtin_plugins.local",
    "hostcore_builtin_plugins.sources.mock",
    "hostcore_builtin_plugins.sources.parquet",
    "hostcore_builtin_plugins.sources.shards",
    "hostcore_builtin_plugins.terminal",
    "hostcore_builtin_plugins.uploaders.fsspec",
    "hostcore_builtin_plugins.stores.folder",
    "hostcore_conformance.checks",
    "hostcore_conformance.cli.check",
    "hostcore_conformance.process.child",
    "hostcore_hookspecs.lifecycle",
    "hostcore_inspect.plots",
    "hostcore_hookspecs.trainer",
    "hostcore_service.app",
    "hostcore_service.serve",
    "hostcore_service.server",
    "hostcore_sweeps.commands",
    "hostcore_sweeps.driving",
    "hostcore_sweeps.service.section",
    "aiobotocore.session",
    "alembic.command",
    "alembic.config",
    "anyio._backends._asyncio",
    "fastapi",
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
    "optuna",
    "packaging.requirements",
    "pandas",
    "PIL.GifImagePlugin",
    "PIL.JpegImagePlugin",
    "PIL.PpmImagePlugin",
    "pyarrow.pandas_compat",
    "pyarrow.parquet",
    "s3fs",
    "sqlalchemy.dialects.sqlite",
    "sqlalchemy.orm",
    "torch._dynamo",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.tensor",
    "uvicorn.lifespan.on",
    "uvicorn.loops.asyncio",
    "uvicorn.protocols.http.h11_impl",
)
#: What the tests import beside that, for workers of pytest; what is not installed is left out.
OF_TESTS = (
    *("datasets", "duckdb", "gcsfs", "lightning.pytorch", "moto.server"),
    *("torch.distributed.fsdp", "transformers.loss.loss_utils"),
)
#: The module of a worker; its contract is the argument behind it.
WORKER = "hostcore.worker"
#: The module of an agent of torchrun, and that in which it starts ranks.
AGENT, RANKS = (
    "torch.distributed.run",
    "torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler",
)
#: The module of a keeper of ``hostcore_engines``, and a variable of what it keeps. It takes all children for ranks.
KEEPER, KEPT = "hostcore_engines.keeper", "HOSTCORE_LAUNCH_FOLDER"
#: Commands and modules that start processes in Python.
STARTING = (
    *("check", "debug", "doctor", "evaluate", "resume", "run", "serve", "sweep", "validate"),
    *("hostcore_service.container", "hostcore.entrypoint", AGENT),
)
#: Beginnings of variables that are read when an interpreter or a library starts.
READ_AT_START = (
    *("COVERAGE_", "LANG", "LC_", "LD_", "MALLOC_", "PYTHON"),
    *("KMP_", "MKL_", "MPL", "OMP_", "OPENBLAS_", "TORCH_"),
)
#: Those of them that a fork heeds.
HANDLED = (
    *("OMP_NUM_THREADS", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONUNBUFFERED"),
    *("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
)
#: Files in ``PYTHONPATH`` that are run when an interpreter starts.
RUN_AT_START = ("sitecustomize.py", "usercustomize.py")
#: Of ``madvise`` (Linux 6.1): move what is there into huge pages now.
MADV_COLLAPSE = 25
#: Of ``clone``: the new process is a child of this one's parent.
CLONE_PARENT = 0x8000
#: The system call by machine.
CLONE = {"x86_64": 56, "aarch64": 220}
#: Descriptors below it are those of a process, above are copies on their way to it.
HIGH = 512


def hostcore(
    arguments: Sequence[str | os.PathLike[str]], *, imported: Sequence[str] = (), **options: Any
) -> subprocess.Popen[Any]:
    """Start the command ``hostcore``.

    :param imported: More modules that are imported before; see ``popen``.
    :param options: Of ``subprocess.Popen``.
    """
    return popen([COMMAND, *arguments], imported=imported, **options)


def ran(arguments: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run the command ``hostcore`` to its end; see ``run``."""
    return run([COMMAND, *arguments], **options)


def popen(
    command: Sequence[str | os.PathLike[str]], *, imported: Sequence[str] = (), **options: Any
) -> subprocess.Popen[Any]:
    """Start a command: as a fork, if its program is ``hostcore`` or this interpreter.

    With options of the interpreter that a fork could not have any more, it is a new process all the same.

    :param imported: More modules that are imported before. They have a server of their own, which takes some seconds to
        start: for tests with several runs that would each import a large framework.
    :param options: Of ``subprocess.Popen``.
    """
    words = [os.fspath(word) for word in command]
    if not _can_be_fork(words, options.get("env")):
        return subprocess.Popen(words, **options)
    return _ForkOfServer(words, tuple(imported), **options)


def run(
    command: Sequence[str | os.PathLike[str]], *, timeout: float = 600, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Run a command as of ``popen`` to its end, with what it prints.

    :param options: Of ``subprocess.Popen``.
    """
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with popen(command, **{**streams, **options}) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@contextmanager
def forked_children(module: str, *imported: str) -> Iterator[None]:
    """Fork the processes ``python -m module`` that this one starts meanwhile; they are its children.

    :param imported: What they find imported. They are forks of a process that takes as long to start as these take to
        import: for tests that start several.
    """
    if sys.platform != "linux":
        yield
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, __file__, "--template", str(theirs.fileno()), *imported]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        template = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])
    before = subprocess.Popen
    _ChildOfHere.forking = _Template(ours, module)
    subprocess.Popen = _ChildOfHere  # type: ignore[misc]
    try:
        yield
    finally:
        subprocess.Popen = before  # type: ignore[misc]
        ours.close()
        template.wait()


def _can_be_fork(command: Sequence[str], environment: Mapping[str, str] | None) -> bool:
    is_known = command[0] == COMMAND or (command[0] == sys.executable and _has_known_options(command[1:]))
    return sys.platform == "linux" and is_known and _is_like_here(environment or os.environ)


def _has_known_options(arguments: Sequence[str]) -> bool:
    """Whether of the interpreter's options only ``-u`` and then ``-P`` come before ``-m``, ``-c`` or the script."""
    for option in ("-u", "-P"):
        if arguments and arguments[0] == option:
            arguments = arguments[1:]
    return bool(arguments) and (arguments[0] in ("-c", "-m") or not arguments[0].startswith("-"))


def _is_like_here(environment: Mapping[str, str]) -> bool:
    """Whether an interpreter with that environment would start like the server's."""
    if any(name.startswith("COVERAGE_") for name in environment):
        return False

    def of(variables: Mapping[str, str]) -> dict[str, str]:
        return {
            name: value for name, value in variables.items() if name.startswith(READ_AT_START) and name not in HANDLED
        }

    folders = [Path(folder) for folder in environment.get("PYTHONPATH", "").split(os.pathsep) if folder]
    return of(environment) == of(os.environ) and not any(
        (folder / name).exists() for folder in folders for name in RUN_AT_START
    )


class _ForkOfServer(subprocess.Popen):  # type: ignore[type-arg]
    """A process that the server has forked. It is the server's child, which therefore says how it has ended."""

    _ended: int | None = None

    def __init__(self, command: list[str], imported: tuple[str, ...], **options: Any) -> None:
        self._imported = imported
        super().__init__(command, **options)

    def _execute_child(self, *given: Any) -> None:
        asked = _asked(self, given)
        self._ended, theirs = os.pipe()
        try:
            question, descriptors = _question(asked)
            self.pid = _server(self._imported).fork(question, [theirs, *descriptors])
        finally:
            os.close(theirs)
            self._close_pipe_fds(*(asked[name] for name in _PIPES))  # type: ignore[attr-defined]
        self._child_created = True

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        assert self._ended is not None
        if wait_flags & os.WNOHANG and not select.select([self._ended], [], [], 0)[0]:
            return 0, 0
        said = os.read(self._ended, 4)
        os.close(self._ended)
        self._ended = None
        assert said, "the server of processes has ended"
        return self.pid, struct.unpack("i", said)[0]

    def _internal_poll(self, _deadstate: Any = None, **_: Any) -> int | None:
        if self.returncode is None and self._ended is not None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


class _Template:
    """A child of this process that forks siblings of itself: children of this process that become what it starts.

    :param module: The only one that is started so; None: whatever can be.
    """

    def __init__(self, line: socket.socket, module: str | None = None) -> None:
        self._line = line
        self._module = module
        self._lock = threading.Lock()
        self._parent = os.getpid()

    def fork(self, question: Mapping[str, Any], descriptors: list[int]) -> int | None:
        """Fork a process that becomes the command; its number. None: it is to be started as everywhere else."""
        if os.getpid() != self._parent or self._module not in (None, *question["command"]):
            return None
        with self._lock, suppress(ConnectionError):  # the template was killed
            _send(self._line, question, descriptors)
            return int(self._line.recv(64) or 0) or None
        return None


class _Itself:
    """In place of a template: a process without threads, and next to no state, forks itself."""

    def fork(self, question: Mapping[str, Any], descriptors: list[int]) -> int:
        """Fork a process that becomes the command; its number."""
        pid = os.fork()
        if pid == 0:
            _end(functools.partial(_be, question, descriptors))
        return pid


class _ChildOfHere(subprocess.Popen):  # type: ignore[type-arg]
    """A child of this process: a fork where that can be, of what is ``forking``."""

    forking: ClassVar[_Template | _Itself]

    def _execute_child(self, *given: Any) -> None:
        asked = _asked(self, given)
        words, cwd = asked["args"], asked["cwd"]
        is_plain = isinstance(words, list | tuple) and not (asked["shell"] or asked["preexec_fn"])
        pid = None
        if is_plain and (cwd is None or Path(cwd).is_dir()):
            question, descriptors = _question(asked)
            if _can_be_fork(question["command"], question["env"]):
                pid = self.forking.fork(question, descriptors)
        if pid is None:
            super()._execute_child(*given)  # type: ignore[misc]
            return
        self._close_pipe_fds(*(asked[name] for name in _PIPES))  # type: ignore[attr-defined]
        self.pid = pid
        self._child_created = True


_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")


_START = subprocess.Popen._execute_child  # type: ignore[attr-defined]


def _asked(process: subprocess.Popen[Any], given: Sequence[Any]) -> Mapping[str, Any]:
    """The arguments of ``Popen._execute_child`` by name; their order is another one from version to version."""
    return inspect.signature(_START).bind(process, *given).arguments


class _Server:
    """The server, as the tests see it. All processes of one pytest share it, and it ends with the last of them."""

    def __init__(self, imported: tuple[str, ...]) -> None:
        self._line = _connect(imported)
        self._lock = threading.Lock()

    def fork(self, question: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        """Fork a process that becomes the command; its number."""
        with self._lock:
            _send(self._line, question, descriptors)
            return int(self._line.recv(64))


def _question(asked: Mapping[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """What a fork is to be, and the descriptors that it is to have: its streams, and those that are passed.

    :param asked: See :func:`_asked`.
    """
    streams = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
    question = {
        "command": [os.fspath(word) for word in asked["args"]],
        "cwd": os.fspath(asked["cwd"] or Path.cwd()),
        "env": dict(os.environ if asked["env"] is None else asked["env"]),
        "new_session": asked["start_new_session"],
        "passed": list(asked["pass_fds"]),
        "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    }
    return question, [
        *(standard if stream == -1 else stream for standard, stream in enumerate(streams)),
        *asked["pass_fds"],
    ]


@functools.cache
def _server(imported: tuple[str, ...]) -> _Server:
    """The server of this process that has imported these modules, too."""
    return _Server(imported)


def _connect(imported: tuple[str, ...]) -> socket.socket:
    """A line to the server, which is started if there is none: the first that gets its address does."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    digest = hashlib.sha256(" ".join(imported).encode()).hexdigest()[:16]  # an address has at most 107 characters
    address = f"\0hostcore-tests-{run}-{digest}".encode()
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, suppress(OSError):
            listener.bind(address)
            listener.listen()
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            _started.append(
                subprocess.Popen(
                    [sys.executable, __file__, str(listener.fileno()), *imported],
                    env=environment,
                    pass_fds=[listener.fileno()],
                )
            )
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with suppress(ConnectionError):  # it does not listen yet, or has just ended
            line.connect(address)
            if line.recv(1):
                return line
        line.close()
        if any(server.poll() for server in _started):
            raise RuntimeError("the server of the tests could not start: what it printed says why")
        time.sleep(0.01)


#: What a server was asked to import beside PRELOADED, in itself and its forks.
_frameworks: list[str] = []
#: So that they are not collected, and warned of, while they run.
_started: list[subprocess.Popen[bytes]] = []


def _send(line: socket.socket, what: object, descriptors: Sequence[int]) -> None:
    """Send what may be larger than one packet: in a file of the memory, beside the descriptors."""
    memory = os.memfd_create("said")
    try:
        with os.fdopen(os.dup(memory), "wb") as file:
            file.write(json.dumps(what).encode())
        socket.send_fds(line, [b"!"], [memory, *descriptors])
    finally:
        os.close(memory)


def _receive(line: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """What was sent, and the descriptors; None if the other side is gone."""
    try:
        said, descriptors, _, _ = socket.recv_fds(line, 1, 64)
    except ConnectionError:
        return None
    if not said:
        return None
    with os.fdopen(descriptors[0], "rb") as file:
        file.seek(0)
        what = json.loads(file.read())
    return what, descriptors[1:]


# What follows runs in the server, and in its forks.


def _serve(listener: socket.socket, imported: Sequence[str]) -> Callable[[], object]:
    """Fork a process for each question, and say how each has ended, until all who ask are gone.

    :param imported: What its forks find imported, beside what a run imports sooner or later.
    :return: In a fork: what it is to do. The server itself never returns.
    """
    _frameworks.extend(imported)
    for module in (*PRELOADED, *imported):
        # An extension may not be installed, as on a machine that is lent for `tests/gpu`.
        if module in imported or importlib.util.find_spec(module.partition(".")[0]):
            importlib.import_module(module)
    _prepare_to_fork()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's is for the tests
    signal.signal(signal.SIGCHLD, lambda *_: None)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    told: dict[int, int] = {}
    lines: list[socket.socket] = []
    while True:
        ready = select.select([listener, woken, *lines], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            for pid in list(told):
                number, status = os.waitpid(pid, os.WNOHANG)
                if number:
                    with suppress(BrokenPipeError):  # the test does not care
                        os.write(told[pid], struct.pack("i", status))
                    os.close(told.pop(pid))
        for line in [line for line in lines if line in ready]:
            asked = _receive(line)
            if asked is None:
                lines.remove(line)
                line.close()
                continue
            question, (ended, *descriptors) = asked
            pid = os.fork()
            if pid == 0:
                for one in (listener, *lines):
                    one.detach()
                return _become_command(question, descriptors)
            told[pid] = ended
            for descriptor in descriptors:
                os.close(descriptor)
            with suppress(ConnectionError):
                line.send(str(pid).encode())
        if listener in ready:
            lines.append(listener.accept()[0])
            with suppress(ConnectionError):
                lines[-1].send(b"!")
        if not lines:
            os._exit(0)


def _prepare_to_fork() -> None:
    """Keep forks from touching what was imported, which would copy its pages."""
    gc.collect()
    gc.freeze()
    _move_to_huge_pages()
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    importlib.invalidate_caches()  # once: a fork looks at the times of folders, as every process


def _move_to_huge_pages() -> None:
    """Have the imported lie in huge pages, where the kernel can do that.

    A fork copies the table of all pages, and goes through it again when it ends: 27 ms for 340 MB in small pages, 9 ms
    in huge ones. A run is five forks.
    """
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, rights, _, _, inode, *_ = line.split()
        if rights == "rw-p" and inode == "0":
            start, end = (int(address, 16) for address in addresses.split("-"))
            madvise(start, end - start, MADV_COLLAPSE)


def _become_command(question: Mapping[str, Any], descriptors: list[int]) -> Callable[[], object]:
    signal.set_wakeup_fd(-1)
    _become(question, descriptors)
    return _act_as(question["command"])


def _be(question: Mapping[str, Any], descriptors: list[int]) -> object:
    """Become a command, and do what it does."""
    _become(question, descriptors)
    return _act_as(question["command"])()


def _act_as(command: list[str]) -> Callable[[], object]:
    """What a process does that has become a command."""
    program, *arguments = command
    asks_only = {"-h", "--help", "--in-process"} & set(arguments)
    if KEEPER in arguments:
        _ChildOfHere.forking = _Itself()
        subprocess.Popen = _ChildOfHere  # type: ignore[misc]
    elif (set(arguments) & set(STARTING) and not asks_only and KEPT not in os.environ) or _has_processes(arguments):
        _ChildOfHere.forking = _fork_template()
        subprocess.Popen = _ChildOfHere  # type: ignore[misc]
        os.posix_spawnp = _spawn
        if AGENT in arguments:
            importlib.import_module(RANKS).Popen = _ChildOfHere  # type: ignore[attr-defined]
    if program != COMMAND:
        return _program(arguments)
    from hostcore.cli import main

    sys.path.insert(0, str(Path(COMMAND).parent))  # as of every script
    return main


def _spawn(program: str, command: list[str], environment: Mapping[str, str], **how: Any) -> int:
    """In place of ``os.posix_spawnp``, by which ``local`` starts supervisors: in a shell that notes its number.

    Here the fork does that, in its place: the shell would become an interpreter.
    """
    is_noted = command[:2] == ["/bin/sh", "-c"] and command[2].endswith('exec "$@"')
    words = command[4:] if is_noted else command
    if _can_be_fork(words, environment):
        streams = [0, 1, 2]
        opened = []
        for action, number, *rest in how["file_actions"]:
            if action == os.POSIX_SPAWN_OPEN:
                streams[number] = os.open(*rest)
                opened.append(streams[number])
            else:
                streams[rest[0]] = streams[number]
        question = {
            "command": words,
            "cwd": str(Path.cwd()),
            "env": dict(environment),
            "new_session": how["setsid"],
            "passed": [],
            "blocked": how["setsigmask"],
            "note": command[3] if is_noted else None,
        }
        try:
            if pid := _ChildOfHere.forking.fork(question, streams):
                return pid
        finally:
            for descriptor in opened:
                os.close(descriptor)
    return _posix_spawnp(program, command, environment, **how)


_posix_spawnp = os.posix_spawnp


def _has_processes(arguments: list[str]) -> bool:
    """Whether this is a worker of a large framework whose job asks for processes that transform batches."""
    if WORKER not in arguments or not _frameworks:
        return False
    with suppress(OSError, LookupError, ValueError):  # a test's contract may be any
        contract = json.loads(Path(arguments[arguments.index(WORKER) + 1]).read_text())
        return '"workers"' in Path(contract["job_spec_path"]).read_text()
    return False


def _program(arguments: list[str]) -> Callable[[], None]:
    """What an interpreter does that gets these arguments."""
    arguments = arguments[1:] if arguments[0] == "-u" else arguments
    has_folder = arguments[0] != "-P"
    what, *rest = arguments if has_folder else arguments[1:]
    if what == "-m":
        folder, sys.argv = str(Path.cwd()), rest
    elif what == "-c":
        folder, sys.argv = "", ["-c", *rest[1:]]
    else:
        folder, sys.argv = str(Path(what).resolve().parent), [what, *rest]
    if has_folder:
        sys.path.insert(0, folder)

    def be_program() -> None:
        if what == "-m":
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        elif what == "-c":
            exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
        else:
            runpy.run_path(what, run_name="__main__")

    return be_program


def _note_number(place: str) -> None:
    """Take a name, as the shell of the launcher ``local``; end if another process has."""
    try:
        with Path(place).open("x") as note:
            note.write(f"{os.getpid()}\n")
    except FileExistsError:
        os._exit(2)


def _become(question: Mapping[str, Any], descriptors: list[int]) -> None:
    """Be a process as it was asked for: its session, streams, descriptors, folder, environment, arguments."""
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, question["blocked"])
    if question["new_session"]:
        os.setsid()
    high = [os.dup(descriptor) for descriptor in descriptors]
    while min(high) < HIGH:  # so that none lies where another is to be
        high = [os.dup2(descriptor, HIGH + place, inheritable=False) for place, descriptor in enumerate(high)]
    os.closerange(3, HIGH)
    for target, descriptor in zip((0, 1, 2, *question["passed"]), high, strict=True):
        os.dup2(descriptor, target)
    os.closerange(HIGH, HIGH + len(high))
    os.chdir(question["cwd"])
    os.environ.clear()
    os.environ.update(question["env"])
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    is_buffered = question["command"][1:2] != ["-u"] and not os.environ.get("PYTHONUNBUFFERED")
    sys.stdout = sys.__stdout__ = _output(1, "strict", is_buffered=is_buffered)
    sys.stderr = sys.__stderr__ = _output(2, "backslashreplace", is_buffered=is_buffered)
    time.tzset()
    random.seed()
    importlib.import_module("numpy").random.seed()
    if threads := question["env"].get("OMP_NUM_THREADS"):
        importlib.import_module("torch").set_num_threads(int(threads))
    sys.dont_write_bytecode = bool(question["env"].get("PYTHONDONTWRITEBYTECODE"))
    sys.argv = list(question["command"])
    sys.path[:] = [*filter(None, question["env"].get("PYTHONPATH", "").split(os.pathsep)), *_PATH]


def _output(descriptor: int, errors: str, *, is_buffered: bool) -> io.TextIOWrapper:
    raw = open(descriptor, "wb", buffering=0, closefd=False)  # noqa: SIM115
    if not is_buffered:
        return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, write_through=True)  # type: ignore[arg-type]
    line_wise = raw.isatty() or descriptor == 2
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors=errors, line_buffering=line_wise)


#: Without the folder of this file.
_PATH = sys.path[1:]


def _fork_template() -> _Template:
    """Fork the template of this process, as long as it has no threads, and no state of a command."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        _end(functools.partial(_be_template, theirs))
    theirs.close()
    return _Template(ours)


def _be_template(line: socket.socket) -> object:
    """Fork siblings, and in such a sibling do what it is to do."""
    return _fork_siblings(line)()


def _fork_siblings(line: socket.socket) -> Callable[[], object]:
    """Fork a sibling for each question, until the parent is gone; in such a sibling: what it is to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's is for the command
    os.chdir("/")  # a test that kills the processes of a folder means those that work there
    while (asked := _receive(line)) is not None:
        question, descriptors = asked
        pid = _clone()
        if pid == 0:
            told = os.dup2(line.fileno(), HIGH + 200, inheritable=False)
            line.detach()
            _become(question, descriptors)
            os.write(told, str(os.getpid()).encode())  # now that it has its session
            os.close(told)
            if note := question.get("note"):
                _note_number(note)
            return _act_as(question["command"])
        for descriptor in descriptors:
            os.close(descriptor)
        if pid < 0:
            line.send(b"")
    os._exit(0)


def _clone() -> int:
    """Fork a child of this process's parent, as ``os.fork`` forks one of this process."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    number, flags = CLONE[platform.machine()], CLONE_PARENT | signal.SIGCHLD
    pid = python.syscall(*map(ctypes.c_long, (number, flags, 0, 0, 0, 0)))
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return int(pid)


def _end(act: Callable[[], object]) -> NoReturn:
    """Do what a process is to do, and end as an interpreter does.

    It does not free its objects as an interpreter would: that copies the pages that it shares with the server, and
    takes half a second.
    """
    code: object = 1
    try:
        try:
            code = act()
        except SystemExit as error:
            code = error.code
        except KeyboardInterrupt:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
            code = -signal.SIGINT
        except BaseException:  # noqa: BLE001 - as an interpreter does
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
            code = 1
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stderr.flush()
        try:
            sys.stdout.flush()
        except OSError:
            code = 120
        if code == -signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        os._exit((code or 0) & 0xFF if isinstance(code, int | None) else 1)


def _be_worker(arguments: Sequence[str]) -> int:
    """Start a worker of pytest-xdist with the arguments of its interpreter, and wait for its end.

    The workers of one pytest, which is the parent, share a server.
    """
    installed = [module for module in OF_TESTS if importlib.util.find_spec(module.partition(".")[0])]
    os.environ["PYTEST_XDIST_TESTRUNUID"] = f"workers-{os.getppid()}"
    return popen([sys.executable, *arguments], imported=installed).wait()


def _main(arguments: Sequence[str]) -> Callable[[], object]:
    """Be a server, a ``--worker``, or with ``--template`` a template of the process that has started this one."""
    if arguments[0] == "--worker":
        return functools.partial(_be_worker, arguments[1:])
    if arguments[0] != "--template":
        return _serve(socket.socket(fileno=int(arguments[0])), arguments[1:])
    for module in arguments[2:]:
        importlib.import_module(module)
    _prepare_to_fork()
    return _fork_siblings(socket.socket(fileno=int(arguments[1])))


if __name__ == "__main__":
    _end(_main(sys.argv[1:]))
