"""Reading ``events.jsonl`` back, and while it grows."""

from collections.abc import Iterator
from pathlib import Path

from hostcore.events.codec import CorruptLog, decode_event
from hostcore_hookspecs.events import Event


def read_events(path: Path) -> Iterator[tuple[Event, int]]:
    """All events of a log, each with the offset behind its line.

    A torn last line, left by a writer that died, is passed over. A log that does not exist has no events.

    :raises CorruptLog: When a whole line is no event.
    """
    try:
        with path.open("rb") as log:
            offset = 0
            for line in log:
                if not line.endswith(b"\n"):
                    return
                offset += len(line)
                yield decode_event(line), offset
    except CorruptLog as error:
        error.file = str(path)
        raise
    except FileNotFoundError:
        return


_NAME = b'"event":"'


def name_of(line: bytes) -> str:
    """The name of the event in a line, without decoding it: that tells the few lines that matter from all others.

    Empty for a line that has none.
    """
    return line.partition(_NAME)[2].partition(b'"')[0].decode(errors="replace")


class GrowingLog:
    """Reads the lines that a log has gained since the last time.

    :param path: The log; it may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def read(self) -> Iterator[bytes]:
        """The whole lines since the last time, with their ends. One that is still being written waits."""
        try:
            with self.path.open("rb") as log:
                log.seek(self._offset)
                for line in log:
                    if not line.endswith(b"\n"):
                        return
                    self._offset += len(line)
                    yield line
        except FileNotFoundError:
            return

    def rest(self) -> bytes:
        """What stands behind the last whole line; empty if nothing does. Does not count as read."""
        try:
            with self.path.open("rb") as log:
                log.seek(self._offset)
                return log.read()
        except FileNotFoundError:
            return b""
