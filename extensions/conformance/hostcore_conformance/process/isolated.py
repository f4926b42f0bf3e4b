"""A plugin in a process of its own, which makes some calls of its methods.

A process that is to come to its end as Python's do is ``python -P -m`` of this module; one call is a child of the fork
server. Both get the path of a file with a pickled :class:`_CallRequest`.
"""

import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.example import Example
from hostcore_conformance.process.fork_server import Imported, fork_server
from hostcore_conformance.served import Served, patience_seconds
from hostcore_conformance.subject import Subject
from hostcore_hookspecs.plan import PluginRef

#: A method of the plugin, and its documented arguments.
Call = tuple[str, tuple[Any, ...]]

#: What such a process prints when all calls are made.
_CLOSED: Final = "hostcore conformance: closed"
#: So long may its end take then.
_END_SECONDS: Final = 10.0
#: Importing a plugin and its libraries, on a slow machine.
_BEGIN_SECONDS: Final = 60.0
#: What it has printed is read by then; what it has started may keep its output open for longer.
_READ_SECONDS: Final = 3.0


@attrs.frozen(kw_only=True)
class _CallRequest:
    """Work of the process."""

    ref: PluginRef
    settings: Mapping[str, Any]
    #: The folder that import paths and the relative paths of settings start at.
    folder: Path
    #: For what the process writes.
    scratch: Path
    calls: Sequence[Call]
    linger_seconds: float = 0.0

    def plugin(self) -> Subject:
        """Return the plugin, in the process that makes the calls."""
        example = Example(settings=self.settings, folder=self.folder)
        return Subject(self.ref, example, scratch=self.scratch)


def ends_after(subject: Subject, calls: Sequence[Call], *, linger_seconds: float = 0.0) -> None:
    """Have another process make calls in a thread, the last of them ``close``, and see that it ends.

    :param linger_seconds: How long it stays after the calls.
    :raises ConformanceError: It does not end, or ends otherwise than it should.
    """
    end_seconds = min(_END_SECONDS, patience_seconds(subject))
    path = [one for one in sys.path if one and isinstance(one, str)]  # as `import` looks at it
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, str(_written(subject, calls, linger_seconds=linger_seconds))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        text=True,
    )
    try:
        output = _output(process, end_seconds)
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        lines = [line.strip() for line in output.splitlines() if line.strip() and line != _CLOSED]
        is_closed = _CLOSED in output
        raise ConformanceError(
            expected="the process to end with exit code 0 after close()"
            if is_closed
            else "a new process to come as far as close()",
            got=f"exit code {process.returncode}: {' | '.join(lines[-3:])}",
            fix="See what is done while the interpreter ends: atexit, __del__, threads that outlive close()."
            if is_closed
            else "See what a new process lacks that this one has.",
        )


def _output(process: "subprocess.Popen[str]", end_seconds: float) -> str:
    """Return the output of a process until its end.

    :raises ConformanceError: That does not come.
    """
    lines: list[str] = []
    closed = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if line.strip() == _CLOSED:
                closed.set()
        closed.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    is_closed = closed.wait(_BEGIN_SECONDS)
    with suppress(subprocess.TimeoutExpired):
        process.wait(end_seconds if is_closed else 0)
        reader.join(_READ_SECONDS)
        return "".join(tuple(lines))
    raise ConformanceError(
        expected="the process to end after close()",
        got=f"a process that still runs {end_seconds:g} s later"
        if is_closed
        else f"a process that has not come to close() within {_BEGIN_SECONDS:g} s",
        fix="Stop and join the plugin's threads in close(), or make them daemons: the interpreter waits for all others,"
        " and with it `hostcore run`.",
    )


def called_elsewhere(subject: Subject, method: str, *arguments: Any) -> Any:
    """Call a method in another process, of which nothing is left then, its process group included; return its result.

    :raises ConformanceError: It returns nothing in good time, or the process ends before.
    """
    ended = fork_server().call(
        f"{__name__}:{call_once.__name__}",
        {"file": str(_written(subject, [(method, arguments)]))},
        folder=subject.folder(),
        timeout_seconds=_BEGIN_SECONDS,
        imported=Imported.LITTLE,
    )
    if ended.timed_out:
        raise ConformanceError(
            expected=f"{method} to return within {_BEGIN_SECONDS:g} s",
            got="it did not",
            fix="Return as soon as the engine has accepted it.",
        )
    if ended.value is None:
        lines = ended.output.strip().splitlines()
        raise ConformanceError(
            expected=f"another process to be able to {method}",
            got=f"it ended with {ended.code}" + (f": {lines[-1]}" if lines else ""),
            fix="The plugin is imported and constructed there like here; look for what it takes from this process.",
        )
    return pickle.loads(bytes.fromhex(ended.value))  # noqa: S301 - of the kit's own process


def _written(subject: Subject, calls: Sequence[Call], *, linger_seconds: float = 0.0) -> Path:
    """Return the file of a request."""
    request = _CallRequest(
        ref=subject.ref,
        settings=subject.settings,
        folder=subject.example.folder,
        scratch=subject.folder(),
        calls=calls,
        linger_seconds=linger_seconds,
    )
    file = request.scratch / "request"
    file.write_bytes(pickle.dumps(request))
    return file


def _read(file: str) -> _CallRequest:
    request: _CallRequest = pickle.loads(Path(file).read_bytes())  # noqa: S301 - of the kit's own process
    return request


def call_once(file: str) -> str:
    """In a child of the fork server: make the one call in the main thread, and return its pickled result."""
    request = _read(file)
    ((method, arguments),) = request.calls
    return pickle.dumps(request.plugin().calls()[method](*arguments)).hex()


def main() -> None:
    """In the process that comes to its end: make the calls in a thread, as of reporters and uploaders."""
    request = _read(sys.argv[1])
    with Served(request.plugin()) as served:
        for method, arguments in request.calls:
            served.call(method, *arguments)
    time.sleep(request.linger_seconds)
    print(_CLOSED, flush=True)


if __name__ == "__main__":
    main()
