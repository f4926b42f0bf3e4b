"""A small client of the Debug Adapter Protocol, as editors speak it: JSON messages with a length, over a socket."""

import json
import socket
import time
from typing import Any


class DapClient:
    """Attaches to a debug adapter that listens on the loopback interface.

    :param port: It may begin to listen later.
    """

    def __init__(self, port: int, *, seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while True:
            try:
                self._socket = socket.create_connection(("127.0.0.1", port), timeout=seconds)
                break
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        self._stream = self._socket.makefile("rb")
        self._number = 0
        self._events: list[dict[str, Any]] = []

    def send(self, command: str, **arguments: Any) -> int:
        """Send a request, and return its number."""
        self._number += 1
        message = {"seq": self._number, "type": "request", "command": command, "arguments": arguments}
        content = json.dumps(message).encode()
        self._socket.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(content), content))
        return self._number

    def answer(self, number: int) -> dict[str, Any]:
        """Return the body of the response to a request."""
        while True:
            message = self._message()
            if message["type"] == "response" and message["request_seq"] == number:
                assert message["success"], message
                return message.get("body") or {}
            if message["type"] == "event":
                self._events.append(message)

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Return the body of the response to a new request."""
        return self.answer(self.send(command, **arguments))

    def event(self, name: str) -> dict[str, Any]:
        """Wait for an event, and return its body."""
        while True:
            for one in self._events:
                if one["event"] == name:
                    self._events.remove(one)
                    return one.get("body") or {}
            message = self._message()
            if message["type"] == "event":
                self._events.append(message)

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._socket.close()

    def _message(self) -> dict[str, Any]:
        length = 0
        while line := self._stream.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if not length:
            raise EOFError("the adapter has closed the connection")
        return json.loads(self._stream.read(length))
