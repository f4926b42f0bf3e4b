"""How patient uploads are, and how eager."""

import attrs

from hostcore.supervisor.delivery.breaker import Intervals
from hostcore.supervisor.delivery.retries import QuickRetries


@attrs.frozen(kw_only=True)
class Limits:
    """How patient uploads are, and how eager."""

    #: A call may take so long, and longer for a large file: ``bytes_per_second`` is no hang.
    hang_seconds: float = 120.0
    bytes_per_second: float = 256 * 1024
    #: Uploads at once, and calls that may hang beside them; of each uploader.
    at_once: int = 4
    lost: int = 4
    quick: QuickRetries = attrs.field(factory=QuickRetries)
    intervals: Intervals = attrs.field(factory=Intervals)
    #: The least time between two snapshots of the logs that grow.
    log_seconds: float = 300.0
    #: The event log alone is copied so often while it grows, less often if it is long: it is copied as a whole.
    live_seconds: float = 60.0
    live_bytes_per_second: float = 128 * 1024
    #: How often hangs and the spool are looked at.
    tick_seconds: float = 1.0
    #: How often a ledger that another process holds is asked for.
    lock_seconds: float = 1.0

    def hang_of(self, size: int) -> float:
        """How long a call may take, in seconds.

        :param size: Of the file, in bytes.
        """
        return self.hang_seconds + size / self.bytes_per_second

    def live_of(self, size: int) -> float:
        """The least time between two copies of the event log, in seconds.

        :param size: Of the log, in bytes.
        """
        return max(self.live_seconds, size / self.live_bytes_per_second)
