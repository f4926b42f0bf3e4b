"""The program that trains: started, asked, and ended. The protocol is ``hostcore.trainer/1``.

Messages are JSON-RPC 2.0, one a line: requests on the child's standard input, answers on its standard output. Batches
are an Arrow IPC stream on a socket whose number is in ``HOSTCORE_BATCHES_FD``. What the child writes on its standard
error is passed on as it is.

JSON-RPC 2.0: https://www.jsonrpc.org/specification. Arrow's streams:
https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format.
"""

import io
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

import attrs
import orjson
import pyarrow as pa

from hostcore_builtin_plugins.processes import descendants, kill_all, send
from hostcore_hookspecs import HostcoreError, InvalidData, InvalidSettings

PROTOCOL: Final = "hostcore.trainer/1"
BATCHES_VARIABLE: Final = "HOSTCORE_BATCHES_FD"

_STANDARD_ERROR: Final = 2
#: Of one message.
_MOST_BYTES: Final = 16 * 2**20
#: Of what the child has printed last, for the message about its end.
_LAST_LINES: Final = 5
_LONGEST_LINE: Final = 500
#: How long a child may take to end once it was told to, and then once it got a SIGTERM.
_END_SECONDS: Final = 10.0
_SHOWN: Final = 80
_READ_BYTES: Final = 2**16
#: Small writes of the Arrow stream are put together into one of up to this size, in bytes.
_WRITE_BYTES: Final = 2**20


class ChildFailed(HostcoreError):
    """The program of a ``process`` trainer has ended, or does not keep to the protocol."""

    code = "process.failed"


class ChildRaised(HostcoreError):
    """The program of a ``process`` trainer has answered a request with an error."""

    code = "process.raised"


class _Late(Exception):
    """The child does not read, or does not write, until the time for it is over."""


@attrs.frozen
class _ChildRequest:
    number: int
    method: str


class _ToSocket(io.RawIOBase):
    """A file that writes all it is given to a socket, as Arrow expects it of a file.

    :param answers: The lines of the other side, which may have the reason why it does not read.
    :param answered: Called when there is something of that.
    """

    def __init__(self, end: socket.socket, answers: "_PipeLines", answered: Callable[[], object]) -> None:
        self._end = end
        self._answers = answers
        self._answered = answered

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = left.nbytes
        poll = select.poll()
        poll.register(self._end, select.POLLOUT)
        poll.register(self._answers, select.POLLIN)
        while left:
            if self._answers.is_one_here() or self._end.fileno() not in dict(poll.poll()):
                self._answered()
            else:
                left = left[self._end.send(left, socket.MSG_DONTWAIT) :]
        return size


class _PipeLines:
    """The lines of a pipe, and whether one of them is here already."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._received = bytearray()

    def fileno(self) -> int:
        return self._pipe.fileno()

    def is_one_here(self) -> bool:
        """Return True if the next line needs no waiting."""
        return b"\n" in self._received

    def next(self, due: float | None) -> bytes:
        """The next line; without its end if the pipe has ended in it, or if it is too long.

        :param due: See :func:`_wait_for`.
        :raises _Late: When it is not here by then.
        """
        seen = 0
        while (end := self._received.find(b"\n", seen)) < 0 and len(self._received) < _MOST_BYTES:
            seen = len(self._received)
            _wait_for(self._pipe, select.POLLIN, due)
            if not (part := os.read(self._pipe.fileno(), _READ_BYTES)):
                break
            self._received += part
        taken = end + 1 or len(self._received)
        line = bytes(self._received[:taken])
        del self._received[:taken]
        return line


class Child:
    """A program that was started and speaks the protocol.

    :param command: The program and its arguments.
    :param cwd: Its working directory.
    :param env: Variables beside those of this process.
    :param notified: Called with the method and the parameters of each notification that the child sends.
    :raises InvalidSettings: When it cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None,
        env: Mapping[str, str],
        notified: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        self._command = command
        self._notified = notified
        self._asked = 0
        #: Requests without an answer yet, the oldest first.
        self._open: deque[_ChildRequest] = deque()
        #: When the request at hand must have been answered, by the monotonic clock; None: it takes what it takes.
        self._due: float | None = None
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        #: Whether it has ended, or does not keep to the protocol: it can be asked nothing more.
        self.is_lost = False
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._schema: pa.Schema | None = None
        mine, its = socket.socketpair()
        try:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, **env, BATCHES_VARIABLE: str(its.fileno())},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[its.fileno()],
            )
        except (OSError, ValueError) as error:
            mine.close()
            told = getattr(error, "strerror", None) or error
            if cwd is not None and not cwd.is_dir():
                raise InvalidSettings("/cwd", f"{cwd} is no folder to work in: {told}") from error
            raise InvalidSettings(
                "/command",
                f"{command[0]} cannot be started: {told}",
                hint="name a program: a path that begins at `cwd`, or a name that is on the PATH",
            ) from error
        finally:
            its.close()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._lines = _PipeLines(self._output)
        self._batches = mine
        self._sink = pa.BufferedOutputStream(pa.PythonFile(_ToSocket(mine, self._lines, self._answer)), _WRITE_BYTES)
        self._listener = threading.Thread(
            target=self._pass_on, args=(self._process.stderr,), daemon=True, name="stderr of a process trainer"
        )
        self._listener.start()

    def begin(self, params: Mapping[str, Any], *, seconds: float) -> Mapping[str, Any]:
        """Make the handshake.

        :param params: The description of the run.
        :param seconds: How long it may take.
        :return: The child's description of itself.
        :raises ChildFailed: It speaks another protocol, none, or nothing in time.
        """
        self._due = time.monotonic() + seconds
        try:
            said = self.call("initialize", {"protocol": PROTOCOL, **params})
        except _Late:
            self.is_lost = True
            kill_all(self._process.pid)  # one of its own may hold its output open
            told = f"{self._name} has not answered `initialize` within {seconds:g} seconds"
            hint = f"it reads requests of {PROTOCOL} on its standard input, and answers each with a line"
            raise ChildFailed(told, hint=hint) from None
        finally:
            self._due = None
        spoken = said.get("protocol") if isinstance(said, Mapping) else None
        if spoken != PROTOCOL:
            raise ChildFailed(
                f"{self._name} does not speak {PROTOCOL}: it answered `initialize` with {_shown(said)}",
                hint=f'answer with {{"protocol": "{PROTOCOL}"}}, or use a version of hostcore that speaks the other',
            )
        return said  # type: ignore[no-any-return]

    def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """Ask the child, and wait for the answer, and for those of all earlier requests.

        :raises ChildRaised: It answered one of them with an error.
        :raises ChildFailed: It has ended, or what it wrote is no answer.
        """
        number = self.ask(method, params)
        while True:
            request, result = self._answer()
            if request.number == number:
                return result

    def ask(self, method: str, params: Mapping[str, Any]) -> int:
        """Ask the child, and do not wait; :meth:`call` reads the answer.

        :return: The number of the request.
        """
        self._asked += 1
        request = {"jsonrpc": "2.0", "id": self._asked, "method": method, "params": params}
        self._open.append(_ChildRequest(self._asked, method))
        try:
            self._write(orjson.dumps(request, option=orjson.OPT_APPEND_NEWLINE))
        except OSError:
            self._raise_what_it_said(method)
        return self._asked

    def _write(self, message: bytes) -> None:
        left = memoryview(message)
        while left:
            _wait_for(self._input, select.POLLOUT, self._due)
            left = left[os.write(self._input.fileno(), left[: select.PIPE_BUF]) :]

    def send_batch(self, batch: pa.RecordBatch) -> None:
        """Send a batch, after the request that announces it. It blocks until the child reads it.

        Its announcement has the begin of a stream: :meth:`begins_stream`.
        """
        try:
            if self.begins_stream(batch.schema):
                if self._writer is not None:
                    self._writer.close()
                self._writer, self._schema = pa.ipc.new_stream(self._sink, batch.schema), batch.schema
            assert self._writer is not None
            self._writer.write_batch(batch)
            self._sink.flush()
        except OSError:
            self._raise_what_it_said("prepare_batch")

    def begins_stream(self, schema: pa.Schema) -> bool:
        """Return True if a batch with this schema begins another stream: all batches of a stream have one schema."""
        return self._schema is None or not schema.equals(self._schema, check_metadata=True)

    def end(self) -> None:
        """End the child: its standard input ends, then it gets a SIGTERM, then a SIGKILL. May be called again.

        What it has started gets the signals, too.
        """
        for one in (self._input, self._batches):
            with suppress(OSError):
                one.close()
        if not self._ends():
            for pid in (self._process.pid, *descendants(self._process.pid)):
                send(pid, signal.SIGTERM)
            if not self._ends():
                kill_all(self._process.pid)
        self._process.wait()
        self._output.close()
        self._listener.join(_END_SECONDS)

    def _ends(self) -> bool:
        """Wait for the end; return False if it takes too long."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        return self._process.returncode is not None

    @property
    def _name(self) -> str:
        return Path(self._command[0]).name

    def _answer(self) -> tuple[_ChildRequest, Any]:
        """The next answer, which is one to the oldest open request; notifications before it are passed on."""
        while True:
            line = self._line()
            message = self._message(line)
            if "id" in message:
                break
            method, params = message.get("method"), message.get("params", {})
            if not isinstance(method, str) or not isinstance(params, Mapping):
                raise self._broken(f"a message that is neither an answer nor a notification: {_shown(message)}")
            self._notified(method, params)
        request = self._open.popleft() if self._open else None
        if request is None or message["id"] != request.number:
            expected = f"where {request.number} ({request.method}) is open" if request else "where none is open"
            raise self._broken(f"an answer to request {_shown(message['id'])}, {expected}")
        if "error" in message:
            raise self._raised(request, message["error"])
        if "result" not in message:
            raise self._broken(f"an answer to `{request.method}` with neither `result` nor `error`")
        return request, message["result"]

    def _line(self) -> bytes:
        line = self._lines.next(self._due)
        if line.endswith(b"\n"):
            return line
        if len(line) >= _MOST_BYTES:
            raise self._broken(f"a line of more than {_MOST_BYTES:,} bytes", hint="write data into files")
        raise self._ended("in the middle of a message" if line else "without an answer")

    def _message(self, line: bytes) -> Mapping[str, Any]:
        try:
            message = orjson.loads(line)
        except orjson.JSONDecodeError:
            message = None
        if not isinstance(message, dict):
            shown = _shown(line.decode(errors="replace").rstrip("\n"))
            raise self._broken(f"a line that is no message: {shown}", hint="what it prints belongs on standard error")
        return message

    def _raised(self, request: _ChildRequest, error: Any) -> HostcoreError:
        """An error that the child has answered with, as the contract's own error of that kind."""
        message = error.get("message") if isinstance(error, Mapping) else None
        if not isinstance(message, str):
            return self._broken(f"an error without `message` as its answer to `{request.method}`")
        data = error.get("data")
        data = data if isinstance(data, Mapping) else {}
        kind, hint, pointer = (data.get(key) for key in ("kind", "hint", "pointer"))
        hint = hint if isinstance(hint, str) else None
        if kind == "InvalidSettings":
            return InvalidSettings(f"/settings{pointer if isinstance(pointer, str) else ''}", message, hint=hint)
        if kind == "InvalidData":
            return InvalidData(message, hint=hint)
        return ChildRaised(f"{request.method} of {self._name}: {message}", hint=hint)

    def _raise_what_it_said(self, method: str) -> None:
        """It takes nothing more: an error that it had answered with before is why, or its end is."""
        while self._open:
            self._answer()
        raise self._broken(f"no answer: its standard input is closed, in `{method}`")

    def _broken(self, told: str, *, hint: str | None = None) -> ChildFailed:
        self.is_lost = True
        return ChildFailed(f"{self._name} does not keep to {PROTOCOL}: it wrote {told}", hint=hint)

    def _ended(self, how: str) -> ChildFailed:
        """Its standard output has ended: how the process has."""
        self.is_lost = True
        during = self._open[0].method if self._open else "nothing"
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return ChildFailed(f"{self._name} closed its standard output {how}, in `{during}`")
        self._listener.join(_END_SECONDS)
        said = f"; it said: {' | '.join(self._last_lines)}" if self._last_lines else ""
        died = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        return ChildFailed(f"{self._name} {died} {how}, in `{during}`{said}")

    def _pass_on(self, stream: IO[bytes]) -> None:
        """Copy what the child writes on its standard error to that of this process."""
        with stream:
            while part := stream.readline(_LONGEST_LINE):
                with suppress(OSError):  # the child writes on, and must be read on, whatever becomes of its words
                    os.write(_STANDARD_ERROR, part)
                if text := part.decode(errors="replace").strip():
                    self._last_lines.append(text)


def _wait_for(pipe: IO[bytes], event: int, due: float | None) -> None:
    """Wait until a pipe can be read or written.

    :param due: Until when, by the monotonic clock; None: as long as it takes.
    :raises _Late: It could not.
    """
    if due is not None:
        poll = select.poll()
        poll.register(pipe, event)
        if not poll.poll(max(0.0, due - time.monotonic()) * 1000):
            raise _Late


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
