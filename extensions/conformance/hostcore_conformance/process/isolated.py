"""A plugin in a process of its own, which makes some calls and comes to its end: ``python -P -m`` of this module.

The argument names a file with a pickled :class:`_CallRequest`.
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
    #: Whether the calls are made in a thread, as of reporters and uploaders, or in the main one.
    in_thread: bool
    linger_seconds: float

    @property
    def answer(self) -> Path:
        """The file for what the last call has returned."""
        return self.scratch / "answer"


def ends_after(subject: Subject, calls: Sequence[Call], *, linger_seconds: float = 0.0) -> None:
    """Have another process make calls in a thread, the last of them ``close``, and see that it ends.

    :param linger_seconds: How long it stays after the calls.
    :raises ConformanceError: It does not end, or ends otherwise than it should.
    """
    end_seconds = min(_END_SECONDS, patience_seconds(subject))
    process, _ = _started(
        subject, calls, in_thread=True, linger_seconds=linger_seconds, stdout=subprocess.PIPE, text=True
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


def called_elsewhere(subject: Subject, method: str, *arguments: Any) -> tuple[Any, int]:
    """Call a method in the main thread of another process, which then ends; return its result and the process's number.

    It has led a session of its own, so its number is that of its process group.

    :raises ConformanceError: It returns nothing in good time, or the process ends before.
    """
    said = subject.folder() / "said"
    with said.open("wb") as output:
        process, answer = _started(
            subject, [(method, arguments)], in_thread=False, stdout=output, start_new_session=True
        )
    try:
        process.wait(timeout=_BEGIN_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise ConformanceError(
            expected=f"{method} to return within {_BEGIN_SECONDS:g} s",
            got="it did not",
            fix="Return as soon as the engine has accepted it.",
        ) from None
    if not answer.exists():
        lines = said.read_text(errors="replace").strip().splitlines()
        raise ConformanceError(
            expected=f"another process to be able to {method}",
            got=f"it ended with {process.returncode}" + (f": {lines[-1]}" if lines else ""),
            fix="The plugin is imported and constructed there like here; look for what it takes from this process.",
        )
    return pickle.loads(answer.read_bytes()), process.pid  # noqa: S301 - of the kit's own process


def _started(
    subject: Subject, calls: Sequence[Call], *, in_thread: bool, linger_seconds: float = 0.0, **how: Any
) -> tuple["subprocess.Popen[Any]", Path]:
    """A process that makes calls, and the file for what the last of them returns."""
    request = _CallRequest(
        ref=subject.ref,
        settings=subject.settings,
        folder=subject.example.folder,
        scratch=subject.folder(),
        calls=calls,
        in_thread=in_thread,
        linger_seconds=linger_seconds,
    )
    file = request.scratch / "request"
    file.write_bytes(pickle.dumps(request))
    path = [one for one in sys.path if one and isinstance(one, str)]  # as `import` looks at it
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    command = [sys.executable, "-P", "-m", __name__, str(file)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, env=environment, **how)
    return process, request.answer


def main() -> None:
    """In the process: make the calls."""
    request: _CallRequest = pickle.loads(Path(sys.argv[1]).read_bytes())  # noqa: S301 - of the kit's own process
    example = Example(settings=request.settings, folder=request.folder)
    subject = Subject(request.ref, example, scratch=request.scratch)
    if request.in_thread:
        with Served(subject) as served:
            for method, arguments in request.calls:
                served.call(method, *arguments)
    else:
        methods = subject.calls()
        for method, arguments in request.calls:
            answer = methods[method](*arguments)
        part = request.answer.with_suffix(".part")
        part.write_bytes(pickle.dumps(answer))
        part.replace(request.answer)
    time.sleep(request.linger_seconds)
    print(_CLOSED, flush=True)


if __name__ == "__main__":
    main()
