"""The event log of a job's run, read on from any event; see :mod:`hostcore.service.jobs.history`."""

import logging
from typing import Final

from hostcore.events.reader import GrowingLog, name_of, seq_of
from hostcore.scrubbing import scrub_bytes
from hostcore.service.jobs.streams import Look, Piece
from hostcore.service.planning import directory_of
from hostcore.service.services import Service

LOG: Final = logging.getLogger("hostcore.service")

#: What one look brings, in bytes, or a line more.
_LOOK_BYTES: Final = 1 << 18
#: Of a line, in bytes: the texts of a longer one, which an older version may have written, are cut.
_LONGEST: Final = 16 << 20


class EventLog:
    """Reads the events of a job; see :class:`hostcore.service.jobs.streams.Source`.

    :param since: Those after this number.
    :raises UnknownRun: When there is no such job.
    """

    far = False

    def __init__(self, service: Service, run_id: str, *, since: int) -> None:
        self._service = service
        self._run_id = run_id
        self._seen = since
        self._log = GrowingLog(directory_of(service.job(run_id), service.settings).events)
        if since:
            self._log.begin_behind(since)

    def look(self) -> Look:
        """The events that were added."""
        job = self._service.job(self._run_id)  # before the log: what was written before the end is read after it
        pieces: list[Piece] = []
        size = 0
        for line in self._log.records(longest=_LONGEST):
            if not line:  # a piece of one that is too long
                return Look(pieces=pieces, more=True)
            seq = seq_of(line)
            if seq is None:
                LOG.warning("%s is damaged; `hostcore verify %s` says more", self._log.path, self._run_id)
                continue
            if seq <= self._seen:
                continue
            self._seen = seq
            shown = scrub_bytes(line)
            pieces.append(Piece(id=str(seq), event=name_of(line), data=shown.rstrip(b"\n"), line=shown))
            size += len(line)
            if size >= _LOOK_BYTES:
                return Look(pieces=pieces, more=True)
        return Look(pieces=pieces, ended=job.status if job.phase == "ended" else None)
