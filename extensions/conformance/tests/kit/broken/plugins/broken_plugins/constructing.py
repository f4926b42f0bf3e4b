"""Resolvers whose constructors do more than look at settings."""

import contextlib
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from broken_plugins import sound


class Threads(sound.Resolver):
    """Starts a thread."""

    def __init__(self) -> None:
        thread = threading.Thread(target=sum, args=((),), name="warm-up")
        thread.start()
        thread.join()


class Processes(sound.Resolver):
    """Starts a program."""

    def __init__(self) -> None:
        subprocess.run([sys.executable, "-S", "-c", ""], check=True)


class Files(sound.Resolver):
    """Writes a file."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "cache").write_text("")


class Network(sound.Resolver):
    """Asks a server."""

    def __init__(self) -> None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", 9), timeout=1).close()
