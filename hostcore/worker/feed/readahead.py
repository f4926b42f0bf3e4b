"""Reading ahead: a thread reads blocks while the loop trains on those before them.

It hands over windows, or several megabytes of small blocks, never batches: to wake another thread costs as much as a
step of a small model.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Final, Generic, Protocol, TypeVar

from hostcore.worker.feed.reading import ReadingStopped

#: What may lie ready, in bytes, whatever the depth; a larger block may lie ready alone.
AHEAD_BYTES: Final = 32 << 20
#: Of smaller blocks, so many bytes are handed over together.
_TOGETHER_BYTES: Final = 4 << 20
#: How often a consumer that waits looks whether it should stop, in seconds.
_LOOK_SECONDS: Final = 0.05
#: How long a consumer waits for several small blocks rather than one, in seconds.
_PATIENCE_SECONDS: Final = 0.01
#: How long closing waits for a source to come back, in seconds.
_CLOSE_SECONDS: Final = 1.0


class ReadBlock(Protocol):
    """Block of data that is handed over."""

    @property
    def nbytes(self) -> int:
        """Its memory, in bytes."""

    @property
    def unit_bytes(self) -> int:
        """Memory of the unit that it is read with, in bytes."""


BlockT = TypeVar("BlockT", bound=ReadBlock)


class ReadAhead(Generic[BlockT]):
    """Reads blocks in a thread of its own.

    :param blocks: Run and closed in the thread; raises ``ReadingStopped`` soon after ``closing`` is set.
    :param depth: How many units of blocks, at least 1, may lie ready or be in the making.
    :param closing: Set by :meth:`close`.
    :param stopping: Asked now and then while a consumer waits: whether it should wait no longer.
    """

    def __init__(
        self,
        blocks: Generator[BlockT, None, None],
        *,
        depth: int,
        closing: threading.Event,
        stopping: Callable[[], bool],
    ) -> None:
        self._blocks = blocks
        self._depth = depth
        self._closing = closing
        self._stopping = stopping
        # Guards all that follows.
        self._changed = threading.Condition()
        self._ready: deque[BlockT] = deque()
        self._ready_bytes = 0
        # Of the last block read: what the next one is taken to need, and what may lie ready.
        self._next_bytes = 0
        self._most_bytes = 0
        self._waiting_since: float | None = None
        self._ended = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, daemon=True, name="feed read-ahead")
        self._thread.start()

    def take(self) -> BlockT | None:
        """The next block; None behind the last one, and when there is no point in waiting for it.

        What the source raised is raised here, once all blocks before it have been taken.
        """
        with self._changed:
            if not self._ready and not self._await_block():
                return None
            block = self._ready.popleft()
            self._ready_bytes -= block.nbytes
            if self._has_room():
                self._changed.notify_all()
        return block

    def _await_block(self) -> bool:
        self._waiting_since = time.monotonic()
        while not self._ready:
            if self._error is not None:
                try:
                    raise self._error
                finally:
                    self._error = None  # its traceback holds this object
            if self._ended or self._closing.is_set() or self._stopping():
                return False
            self._changed.wait(_LOOK_SECONDS)
        self._waiting_since = None
        return True

    def close(self) -> None:
        """End the thread and drop what it has read. A source that does not come back is left behind."""
        self._closing.set()
        with self._changed:
            self._ready.clear()
            self._changed.notify_all()
        self._thread.join(_CLOSE_SECONDS)

    def _read(self) -> None:
        """Main loop of the thread."""
        try:
            while self._await_room():
                block = next(self._blocks, None)
                if block is None:
                    break
                self._add(block)
                del block  # the consumer may be through with it long before there is room again
            self._blocks.close()
        except ReadingStopped:
            pass
        except BaseException as error:  # noqa: BLE001 - it is raised where the blocks are taken
            self._error = error
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _await_room(self) -> bool:
        with self._changed:
            while not self._closing.is_set() and not self._has_room():
                self._changed.wait()
            return not self._closing.is_set()

    def _has_room(self) -> bool:
        return not self._ready or self._ready_bytes + self._next_bytes <= self._most_bytes

    def _add(self, block: BlockT) -> None:
        with self._changed:
            if self._closing.is_set():
                return
            self._ready.append(block)
            self._ready_bytes += block.nbytes
            together_bytes = min(_TOGETHER_BYTES, block.unit_bytes)
            self._next_bytes = max(block.nbytes, together_bytes)
            self._most_bytes = min(self._depth * block.unit_bytes, AHEAD_BYTES)
            waited = time.monotonic() - self._waiting_since if self._waiting_since is not None else 0.0
            if self._ready_bytes >= together_bytes or waited > _PATIENCE_SECONDS:
                self._changed.notify_all()
