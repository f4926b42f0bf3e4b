"""Reading ``events.jsonl`` back."""

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
