"""Times as people read them."""

import time


def moment(time_ms: int) -> str:
    """``2026-07-31 12:03:44``, in local time.

    :param time_ms: Milliseconds since 1970.
    """
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ms / 1000))
