"""``transform_batch`` in processes of their own, ahead of the loop; see :mod:`hostcore.worker.feed.transform_process`.

Each process has a thread here that hands it one batch after the other. Batches are taken from the stream, and results
given, on the loop's thread and in order; about two batches for each process are on their way at a time.

The processes are started like the worker itself. ``multiprocessing`` would import the user's script in each of them
and start one more to look after them; its pools wait without end for a process that was killed, or that does not listen
to SIGTERM. loky does neither, but its queues copy what they carry: 200 batches of 20 MB took 19 s of processor time,
and 4.3 by this module, at 175 and at 990 MB/s (loky 3.7, two processes on two cores).
"""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import count
from queue import SimpleQueue
from typing import Any, Final

import attrs

from hostcore.interruption import is_by_signal, signal_name
from hostcore.worker.feed import transform_process
from hostcore.worker.feed.feed import Cursor
from hostcore.worker.feed.transform_call import EVALUATION, Assignment
from hostcore.worker.feed.transform_failure import ChildDied, TransformError, UnsendableResult
from hostcore.worker.feed.transport import ValueStream, decode, encode

#: How often a wait for a result looks whether the run is to stop.
_POLL_SECONDS: Final = 0.05
#: How long processes may take to end by themselves.
_CLOSE_SECONDS: Final = 0.5

_HINTS: Final[Mapping[int, str]] = {
    signal.SIGKILL: "something killed it, usually the system for taking too much memory: try fewer dataset.workers or "
    "a smaller dataset.batch_size",
    signal.SIGSEGV: "a segmentation fault in native code; the worker's output shows where it was called",
    signal.SIGABRT: "native code gave up; the worker's output shows why",
}
_END: Final = object()


@attrs.frozen(eq=False)
class _TransformTask:
    """One batch on its way."""

    batch: Any
    epoch: int
    position: int
    index: int
    result: "Future[Any]" = attrs.field(factory=Future)


class TransformPool:
    """Transforms batches in a fixed number of processes, which start with it.

    :param stride: Global rows from the first row of a batch to that of the next.
    :param first: Global rows from the cursor to the first row of this rank's first batch.
    :param stopping: Whether the run is to stop.
    """

    def __init__(
        self, assignment: Assignment, processes: int, *, stride: int, first: int, stopping: Callable[[], bool]
    ) -> None:
        self._stride = stride
        self._first = first
        self._stopping = stopping
        self._limit = 2 * processes
        self._tasks: SimpleQueue[_TransformTask | None] = SimpleQueue()
        self._children: Sequence[_PoolProcess] = ()
        try:
            for _ in range(processes):
                self._children = [*self._children, _PoolProcess(assignment, self._tasks)]
        except BaseException:
            self.close()
            raise

    def apply(self, batches: Iterator[Any], cursor: Cursor) -> Iterator[Any]:
        """Yield the results of ``transform_batch``; see :class:`hostcore.worker.feed.transform.Transformer`."""
        positions, indices = count(cursor.rows + self._first, self._stride), count(cursor.rows // self._stride)
        ahead: deque[Future[Any]] = deque()
        try:
            while True:
                # A result that is there does not wait for a source that is slow.
                while len(ahead) < self._limit and not (ahead and ahead[0].done() and len(ahead) > self._limit // 2):
                    if (batch := _next(batches)) is _END:
                        break
                    ahead.append(self._submit(batch, cursor.epoch, next(positions), next(indices)))
                if not ahead or not self._wait_for(ahead[0]):
                    return
                yield ahead.popleft().result()
        finally:
            for result in ahead:
                result.cancel()

    def _submit(self, batch: Any, epoch: int, position: int, index: int) -> "Future[Any]":
        if isinstance(batch, _UnreadableBatch):
            return batch.result
        task = _TransformTask(batch, epoch, position, index)
        self._tasks.put(task)
        return task.result

    def _wait_for(self, result: "Future[Any]") -> bool:
        """Wait for a result; False if the run is to stop before it is there."""
        while not result.done():
            if self._stopping():
                return False
            try:
                result.exception(timeout=_POLL_SECONDS)
            except TimeoutError:
                continue
        return True

    def close(self) -> None:
        """End the processes: those that do not end by themselves are killed."""
        for child in self._children:
            child.hang_up()
            self._tasks.put(None)
        deadline = time.monotonic() + _CLOSE_SECONDS
        for child in self._children:
            child.close(deadline)
        self._children = ()


@attrs.frozen(eq=False)
class _UnreadableBatch:
    """In place of the batch at which the stream failed: the batches before it come first."""

    result: "Future[Any]"


def _next(batches: Iterator[Any]) -> Any:
    try:
        return next(batches, _END)
    except BaseException as error:
        if is_by_signal(error):
            raise
        broken = _UnreadableBatch(Future())
        broken.result.set_exception(error)
        return broken


class _PoolProcess:
    """One process, and the thread that talks to it."""

    def __init__(self, assignment: Assignment, tasks: "SimpleQueue[_TransformTask | None]") -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = _start(theirs)
        self._line = ValueStream(ours)
        self._assignment = assignment
        self._tasks = tasks
        self._thread = threading.Thread(target=self._work, daemon=True, name=f"transform {self._process.pid}")
        self._thread.start()

    def _work(self) -> None:
        problem: Exception | None = None
        try:
            self._load()
        except Exception as error:  # noqa: BLE001 - raised where a batch is waited for
            problem = error
        while (task := self._tasks.get()) is not None:
            if task.result.set_running_or_notify_cancel():
                try:
                    if problem is not None:
                        raise problem
                    task.result.set_result(self._transform(task))
                except BaseException as error:  # noqa: BLE001
                    task.result.set_exception(error)
            del task  # its batch and its result can be large

    def _load(self) -> None:
        try:
            self._line.send(sys.path)
            self._line.send(self._assignment)
            answer = self._line.receive()
        except (EOFError, OSError):
            raise self._died("before its first batch") from None
        if isinstance(answer, TransformError):
            raise answer.as_error()

    def _transform(self, task: _TransformTask) -> Any:
        try:
            self._line.send((task.epoch, task.position, task.index, encode(task.batch)))
            answer = self._line.receive()
        except (EOFError, OSError):
            where = "an evaluation" if task.epoch == EVALUATION else f"epoch {task.epoch + 1}"
            raise self._died(f"on the batch from row {task.position:,} of {where} on") from None
        if isinstance(answer, TransformError):
            raise answer.as_error()
        try:
            return decode(answer)
        except Exception as error:
            raise UnsendableResult(
                f"what transform_batch returned cannot be read in the loop's process: {type(error).__name__}: {error}",
                hint="return arrays, tensors, record batches, plain values, or containers of these",
            ) from error

    def _died(self, when: str) -> ChildDied:
        """Error for a process that has ended, or is about to."""
        try:
            code = self._process.wait(timeout=_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        how = f"exited with code {code}" if code >= 0 else f"was killed by {signal_name(-code)}"
        return ChildDied(
            f"a process of dataset.workers {how} {when}",
            pointer="/dataset/workers",
            hint=_HINTS.get(-code),
        )

    def hang_up(self) -> None:
        """Let it know that there is no more to do."""
        self._line.hang_up()

    def close(self, deadline: float) -> None:
        """End it.

        :param deadline: When it is killed, by the monotonic clock.
        """
        try:
            self._process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join()
        self._line.close()


def _start(connection: socket.socket) -> "subprocess.Popen[bytes]":
    # Inherited, so that no signal can end it before it ignores them.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, transform_process.DEAF_TO)
    try:
        return subprocess.Popen(
            [sys.executable, "-u", "-P", "-m", transform_process.__name__, str(connection.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[connection.fileno()],
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
