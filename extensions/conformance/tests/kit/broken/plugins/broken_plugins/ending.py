"""Reporters that cannot be ended, or leave something behind."""

import threading
from pathlib import Path
from typing import Any

from broken_plugins import sound


class OnceOnly(sound.Reporter):
    """Starts a thread that it has made in its constructor."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.Thread(target=self._wait)
        self._end = threading.Event()

    def _wait(self) -> None:
        self._end.wait()

    def open(self, ctx: Any) -> None:
        """Begin."""
        super().open(ctx)
        self._thread.start()

    def close(self) -> None:
        """End."""
        super().close()
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()


class ClosedOnce(sound.Reporter):
    """Closes what is closed."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] | None = []

    def open(self, ctx: Any) -> None:
        """Begin."""
        super().open(ctx)
        self._lines = []

    def close(self) -> None:
        """End."""
        assert self._lines is not None, "closed already"
        self._lines = None


class ClosedOpen(sound.Reporter):
    """Closes what open() would have opened."""

    def open(self, ctx: Any) -> None:
        """Begin."""
        self._file = (Path(ctx.run_dir) / "events").open("w")

    def close(self) -> None:
        """End."""
        self._file.close()


class LeavingThreads(sound.Reporter):
    """Leaves a thread behind."""

    def open(self, ctx: Any) -> None:
        """Begin."""
        super().open(ctx)
        threading.Thread(target=threading.Event().wait, args=(30,), daemon=True, name="forgotten").start()


class LeavingFiles(sound.Reporter):
    """Leaves a file open."""

    kept: tuple[Any, ...] = ()

    def open(self, ctx: Any) -> None:
        """Begin."""
        super().open(ctx)
        type(self).kept += ((Path(ctx.run_dir) / "events").open("w"),)
