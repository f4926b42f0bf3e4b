"""The line between a supervisor and one worker: JSON messages both ways, and its end when the other side is gone.

The worker sends first ``{"ready": {…}}`` or ``{"invalid": [errors]}``, as :func:`hostcore.plugins.errors.as_content`
writes them. The supervisor answers ``{"go": {}}``, and later may send
``{"stop": {"status": …, "reason": …, "requested_by": …}}``. A worker whose log cannot be written sends
``{"failed": {error}}``; a worker that only evaluates sends that too, or ``{"evaluated": {…}}``. A worker whose line
ends has lost its supervisor: it writes a checkpoint and stops.
"""

import socket
from contextlib import suppress
from typing import Any

import orjson

from hostcore.events.strict_json import dump


class Channel:
    """One end of the line.

    :param connection: A connected stream socket, which the channel now owns.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = b""

    @classmethod
    def pair(cls) -> "tuple[Channel, Channel]":
        """Both ends of a new line."""
        left, right = socket.socketpair()
        return cls(left), cls(right)

    def fileno(self) -> int:
        """The file descriptor, for ``select`` and for handing it to a child process."""
        return self._socket.fileno()

    def send(self, kind: str, content: Any) -> None:
        """Send a message; nothing happens if the other side is gone."""
        try:
            self._socket.settimeout(None)  # that of the last `receive` is not meant
            self._socket.sendall(dump({kind: content}))
        except (BrokenPipeError, ConnectionResetError):
            return  # the reader of this end sees the end of the line

    def receive(self, timeout_seconds: float | None = None, *, longest: int | None = None) -> tuple[str, Any]:
        """Receive the next message.

        :param timeout_seconds: How long to wait for some of it; None for as long as it takes, 0 not at all.
        :param longest: How many bytes it may have, about, of one who is not known yet; None for any number.
        :return: Kind and content.
        :raises TimeoutError: When none came in time.
        :raises EOFError: When the other side is gone.
        :raises ValueError: When it is none.
        """
        self._socket.settimeout(timeout_seconds)
        while b"\n" not in self._buffer:
            if longest is not None and len(self._buffer) > longest:
                raise ValueError(f"a message of more than {longest} bytes")
            try:
                received = self._socket.recv(65536)
            except BlockingIOError:
                raise TimeoutError("nothing was said yet") from None
            except ConnectionResetError:
                received = b""
            if not received:
                raise EOFError("the other side has closed the line")
            self._buffer += received
        line, _, self._buffer = self._buffer.partition(b"\n")
        message = orjson.loads(line)
        if not isinstance(message, dict):
            raise ValueError("a message is an object with one key")
        ((kind, content),) = message.items()
        return kind, content

    def hang_up(self) -> None:
        """Send nothing more, so that the other side's line ends; its last messages can still be received."""
        with suppress(OSError):  # the other side is gone
            self._socket.shutdown(socket.SHUT_WR)

    def end(self) -> None:
        """Send and receive nothing more: a thread that waits in :meth:`receive` sees the end of the line."""
        with suppress(OSError):  # the other side is gone
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
