"""A process of ``dataset.workers``: ``python -m hostcore.worker.feed.transform_process FD``, started by the worker.

It receives over the inherited socket what to load, and then one batch after the other. It ends when the line does, and
when the worker does, however that dies. A scheduler that ends a job signals all its processes; when these end is the
worker's decision, so they take no notice. The worker starts them with those signals blocked.

Imports little before that is settled, and torch never: a plugin that needs it does.
"""

import os
import select
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from hostcore.interruption import handle

if TYPE_CHECKING:
    from hostcore.worker.feed.transform_call import Assignment
    from hostcore.worker.feed.transport import ValueStream

#: What this process does not react to.
DEAF_TO: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)

#: How long a batch may still take when the line has ended.
_LAST_SECONDS: Final = 1.0


def main() -> int:
    """Transform batches over the inherited socket FD."""
    for number in DEAF_TO:
        # A handler, not SIG_IGN: programs that a plugin starts would inherit that.
        handle(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, DEAF_TO)
    _die_with_the_worker()

    import faulthandler

    faulthandler.enable()  # a segmentation fault leaves a traceback in the worker's output
    connection = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=_end_with, args=(connection.fileno(),), daemon=True, name="end of the line").start()

    from hostcore.worker.feed.transport import ValueStream

    line = ValueStream(connection)
    try:
        _serve(line)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return 0  # the worker wants no more
    return 0


def _die_with_the_worker() -> None:
    """Let the kernel kill this process when the thread that started it ends; Linux alone can do that.

    :func:`_end_with` does nearly the same, except while native code holds Python's lock.
    """
    if sys.platform == "linux":
        import ctypes

        set_death_signal = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>
        ctypes.CDLL(None, use_errno=True).prctl(set_death_signal, signal.SIGKILL)


def _end_with(descriptor: int) -> None:
    """End this process when the other side of the line is gone, even in the middle of a batch."""
    gone = select.poll()
    gone.register(descriptor, 0)  # nothing but the end is reported
    gone.poll()
    time.sleep(_LAST_SECONDS)
    os._exit(1)


def _serve(line: "ValueStream") -> None:
    from hostcore.worker.feed.transform_failure import TransformError
    from hostcore.worker.feed.transport import decode

    sys.path[:] = line.receive()
    assignment: Assignment = line.receive()
    components: list[Any] = []
    try:
        transform = assignment.load(components)
    except BaseException as error:  # noqa: BLE001 - also SystemExit: it is the plugin's, and the worker is to report it
        line.send(TransformError.of(error, components, assignment.selected))
        return
    line.send(None)
    while True:
        epoch, position, index, batch = line.receive()
        try:
            answer = _sendable(transform(decode(batch), epoch, position, index), transform.plugin)
        except BaseException as error:  # noqa: BLE001
            answer = TransformError.of(error, components, assignment.selected)
        line.send(answer)


def _sendable(result: Any, plugin: str) -> Any:
    from hostcore.plugins.errors import one_line
    from hostcore.worker.feed.transform_failure import UnsendableResult
    from hostcore.worker.feed.transport import encode

    try:
        return encode(result)
    except Exception as error:  # noqa: BLE001 - also what the value's own methods raise
        kind = type(result).__name__
        raise UnsendableResult(
            f"transform_batch returned a {kind} that cannot be sent to the loop's process: {one_line(error)}",
            hint="return arrays, tensors, record batches, plain values, or containers of these",
            plugin=plugin,
        ) from None


if __name__ == "__main__":
    raise SystemExit(main())
