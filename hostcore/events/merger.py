"""Rank logs become one log: the supervisor numbers the events of all ranks and adds its own."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs
import orjson

from hostcore.events.codec import CorruptLog, decode_event, decode_payload, encode_event, parse_line
from hostcore.events.folder_sync import sync_folder
from hostcore.events.reader import GrowingLog, read_events
from hostcore.events.writer import append_lines, now_ms
from hostcore.secrets.scrub import HIDDEN
from hostcore_hookspecs.events import ENDS, Event, Payload

_HIDDEN: Final = HIDDEN.encode()

Source = tuple[int, int]
"""A rank and an attempt: together they name a rank log."""


@attrs.define(kw_only=True)
class Entry:
    """An event before the supervisor has numbered it."""

    payload: Payload
    #: Finished steps when it happened.
    step: int | None
    epoch: int | None
    #: When it happened; None for now.
    time_ms: int | None = None
    #: Rank, attempt and offset in the rank's log; None for the supervisor's own events.
    src: tuple[int, int, int] | None = None


@attrs.define
class LogLine:
    """One line of the log."""

    #: None if the line is no event.
    event: Event | None
    #: Where it begins and ends, in bytes.
    begin: int
    end: int


class EventLog:
    """``logs/events.jsonl``, written by the supervisor alone. ``seq`` continues where the attempt before ended.

    :param path: The log; made if it does not exist. A torn last line of a dead supervisor is cut off.
    :param see: Called with every event of the log, those of earlier attempts first.
    """

    def __init__(
        self,
        path: Path,
        *,
        run_id: str,
        attempt: int,
        see: Callable[[Event], object] = lambda _: None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self.run_id = run_id
        self.attempt = attempt
        self.last_seq = 0
        #: The offset of the newest event merged from each rank log.
        self.merged: dict[Source, int] = {}
        #: The attempts that have ended.
        self.ended: set[int] = set()
        self._see = see
        self._clock = clock
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        sync_folder(path.parent)
        whole = 0
        for event, end in read_events(path):
            self.last_seq, whole = event.seq, end
            self._note(event)
        os.ftruncate(self._descriptor, whole)

    def append(self, entry: Entry) -> Event:
        """Number an event and write it."""
        [line] = self.extend([entry])
        assert line.event is not None
        return line.event

    def extend(self, entries: Sequence[Entry]) -> list[LogLine]:
        """Number events and write them, all of them or none.

        :raises OSError: When they cannot be written, for instance because the disk is full.
        """
        numbered = [self._numbered(seq, entry) for seq, entry in enumerate(entries, self.last_seq + 1)]
        texts = b"".join(text for _, text in numbered)
        append_lines(self._descriptor, texts)
        self.last_seq += len(numbered)
        begin = os.lseek(self._descriptor, 0, os.SEEK_CUR) - len(texts)
        lines = []
        for event, text in numbered:
            lines.append(LogLine(event, begin, begin := begin + len(text)))
            self._note(event)
        return lines

    def _numbered(self, seq: int, entry: Entry) -> tuple[Event, bytes]:
        """An event as its line has it, and the line."""
        event = Event(
            seq=seq,
            time_ms=self._clock() if entry.time_ms is None else entry.time_ms,
            run_id=self.run_id,
            attempt=entry.src[1] if entry.src else self.attempt,
            src=entry.src,
            step=entry.step,
            epoch=entry.epoch,
            payload=entry.payload,
        )
        text = encode_event(event)
        # What a rank has written was encoded before, and comes back as it is, unless a secret is hidden only now.
        return (event if entry.src and _HIDDEN not in text else decode_event(text)), text

    def _note(self, event: Event) -> None:
        if event.src:
            rank, attempt, offset = event.src
            self.merged[rank, attempt] = offset
        if event.name in ENDS:
            self.ended.add(event.attempt)
        self._see(event)

    def sync(self) -> None:
        """Wait until everything written is on the disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Sync and close."""
        self.sync()
        os.close(self._descriptor)


class RankTail:
    """Reads what a rank has appended to its log since the last time."""

    def __init__(self, path: Path, *, rank: int, attempt: int, after: int | None = None) -> None:
        """Start reading.

        :param path: The rank's log; it may not exist yet.
        :param after: The offset of the last line read before, if any.
        """
        self.rank = rank
        self.attempt = attempt
        self._log = GrowingLog(path, offset=after or 0, follow_links=True)
        self._skip_first = after is not None

    def read(self) -> Iterator[Entry]:
        """The events since the last time. A line still being written waits for the next time."""
        for line in self._log.read():
            if self._skip_first:
                self._skip_first = False
            else:
                yield self.entry(line, self._log.offset - len(line))

    def entry(self, line: bytes, offset: int) -> Entry:
        """An event of this log.

        :param offset: Where its line begins.
        :raises CorruptLog: When it is none.
        """
        try:
            found = parse_line(line)
            return Entry(
                payload=decode_payload(found),
                step=found["step"],
                epoch=found["epoch"],
                time_ms=found["time_ms"],
                src=(self.rank, self.attempt, offset),
            )
        except (CorruptLog, KeyError, TypeError, orjson.JSONDecodeError) as error:
            raise CorruptLog(f"not an event: {line!r:.200}", file=str(self._log.path)) from error
