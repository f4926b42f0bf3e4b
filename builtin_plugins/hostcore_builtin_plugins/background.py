"""Work in a thread that this process does not wait for when it ends."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_background(action: Callable[[], T], name: str) -> "Future[T]":
    """Do something in a daemon thread. Those of an executor are joined at the end, and one that hangs would keep it.

    :param name: Of the thread.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(action())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name=name).start()
    return future
