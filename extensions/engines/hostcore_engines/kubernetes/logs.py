"""Reads the log of a pod on from a position.

Kubernetes has no offsets: it gives a log from some age on, in seconds, each line after the time it was printed at, and
rotates it away at 10 MiB. So a position is a second, and the number of bytes printed in it that were read already. That
stays true when the beginning of the log is gone.
"""

import codecs
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import attrs

from hostcore_engines.kubernetes.cluster import Cluster, NotFound, Object
from hostcore_hookspecs import FatalError, LogChunk

_CHUNK_BYTES: Final = 1 << 20
#: Read in addition: the server's clock has a resolution of a second, and the kubelet's may differ.
_MARGIN_SECONDS: Final = 10
_PLACE: Final = re.compile(
    r"(?P<pod>[-0-9A-Za-z]+)/(?P<restarts>[0-9]{1,9})/(?P<second>[0-9]{1,12})/(?P<read>[0-9]{1,18})"
)
#: RFC 3339 with nanoseconds, and a space: what the kubelet puts in front of each line.
_STAMP: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d) ")
_LONGEST_STAMP: Final = 40


@attrs.frozen(kw_only=True)
class LogPosition:
    """Position in the log of a pod."""

    #: Its uid: another pod of the same name has another log.
    pod: str
    #: How often its container had been started again.
    restarts: int = 0
    #: Seconds since 1970; 0 is the beginning.
    second: int = 0
    #: Bytes that were printed in that second or later and were read.
    read: int = 0

    def __str__(self) -> str:
        return f"{self.pod}/{self.restarts}/{self.second}/{self.read}"

    @classmethod
    def of(cls, text: str) -> "LogPosition | None":
        """Return the position written as ``text``; None for the empty text.

        :raises FatalError: It is none.
        """
        if not text:
            return None
        told = _PLACE.fullmatch(text)
        if told is None:
            raise FatalError(f"{text!r} is no place in the log", hint="pass what the chunk before gave as 'next'")
        return cls(pod=told["pod"], restarts=int(told["restarts"]), second=int(told["second"]), read=int(told["read"]))


def read_pod_log(cluster: Cluster, pod: Object, container: str, since: str) -> LogChunk:
    """A piece of the log of a pod's container.

    :param since: A position, as text.
    :raises FatalError: It is none.
    """
    metadata = pod["metadata"]
    restarts = _restarts(pod, container)
    position = LogPosition.of(since)
    if position is None or position.pod != metadata["uid"]:
        # Before the first start there may have been others: Kubernetes keeps the log of the last of them.
        position = LogPosition(pod=metadata["uid"], restarts=max(0, restarts - 1))
    while True:
        text, position = _read(cluster, metadata, container, position, restarts)
        if text or position.restarts >= restarts:
            return LogChunk(text=text, next=str(position))
        position = LogPosition(pod=position.pod, restarts=position.restarts + 1)


def _read(
    cluster: Cluster, metadata: Object, container: str, position: LogPosition, restarts: int
) -> tuple[str, LogPosition]:
    if position.restarts < restarts - 1:
        return "", position  # Kubernetes keeps one log back
    since_seconds = None
    if position.second and (now := cluster.server_time) is not None:
        since_seconds = max(1, int(now) - position.second + _MARGIN_SECONDS)
    try:
        previous = position.restarts < restarts
        namespace, name = metadata["namespace"], metadata["name"]
        with cluster.log(namespace, name, container, since_seconds=since_seconds, previous=previous) as stream:
            return _take(stream, position)
    except NotFound:
        return "", position


def _take(stream: Iterator[bytes], position: LogPosition) -> tuple[str, LogPosition]:
    """Return the new part of a log, at most a chunk, and the position after it."""
    skip, taken = position.read, bytearray()
    second, counted = position.second, 0  # bytes of that second, read before or now
    for printed_at, data in _lines(stream):
        if printed_at < position.second:
            continue
        if printed_at > second:
            second, counted = printed_at, 0
            skip = 0  # of what was read in the second before, something was rotated away
        skipped = min(skip, len(data))
        skip -= skipped
        part = data[skipped : skipped + _CHUNK_BYTES - len(taken)]
        taken += part
        counted += skipped + len(part)
        if len(taken) >= _CHUNK_BYTES:
            break
    if not taken:
        return "", position
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(bytes(taken))
    half_a_character = len(decoder.getstate()[0])
    return text, attrs.evolve(position, second=second, read=counted - half_a_character)


def _lines(stream: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines of a log, each with the second it was printed in. The last may have no end yet.

    Standard output and error are stamped apart, so that a line may be stamped earlier than the one before it; it counts
    as printed with that one.
    """
    rest, second = b"", 0
    for block in stream:
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            second, data = _unstamped(line + b"\n", second)
            yield second, data
    if rest:
        yield _unstamped(rest, second)


def _unstamped(line: bytes, second: int) -> tuple[int, bytes]:
    told = _STAMP.match(line[:_LONGEST_STAMP])
    if told is None:
        return second, line
    zone = "+00:00" if told[2] == b"Z" else told[2].decode()
    moment = datetime.fromisoformat(told[1].decode() + zone)
    return max(second, int(moment.timestamp())), line[told.end() :]


def _restarts(pod: Object, container: str) -> int:
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if status.get("name") == container:
            return int(status.get("restartCount") or 0)
    return 0
