"""The answering side of a probe."""

import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Protocol

import orjson


class Say(Protocol):
    """Tells the asking process something at once."""

    def __call__(self, **content: Any) -> None:
        """One JSON object, on a line of its own."""


def answer(examine: Callable[[Say], None]) -> None:
    """Let a probe tell what it finds on standard output, and end the process. Other output goes to stderr.

    :param examine: What to do. An exception of it is told as ``{"error": …}``, and the exit code is 1.
    """
    told, asking = os.dup(1), os.dup(0)
    os.dup2(2, 1)
    with open(os.devnull) as nothing:  # noqa: PTH123 - what asks for input gets none
        os.dup2(nothing.fileno(), 0)
    threading.Thread(target=_end_with, args=(asking,), daemon=True).start()

    def say(**content: Any) -> None:
        os.write(told, orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE))

    try:
        examine(say)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever is wrong with this machine is the answer
        traceback.print_exc()
        say(error=f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}")
        _leave(1)
    _leave(0)


def _end_with(asking: int) -> None:
    """End this process when the one that asked has gone, however it went: its end of standard input is closed then."""
    while os.read(asking, 1):
        pass
    os._exit(1)


def _leave(code: int) -> None:
    sys.stderr.flush()
    # Not sys.exit: a driver's exit handlers and threads must not change the exit code of an answered probe.
    os._exit(code)
