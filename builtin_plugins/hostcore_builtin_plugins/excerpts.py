"""Parts of a remote file, fetched at once."""

import io
from collections.abc import Iterable, Mapping

#: Parts that lie closer together are fetched as one: what lies between them costs less than another request.
_GAP_BYTES = 64 << 10


def joined_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order, those that touch or nearly touch as one.

    :param ranges: Begin and end of each, in bytes.
    """
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1] + _GAP_BYTES:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


class Excerpt(io.RawIOBase):
    """A file of which only parts can be read, each where it is in the whole file.

    :param parts: Their bytes, by where they begin.
    """

    def __init__(self, parts: Mapping[int, bytes]) -> None:
        self._parts = parts
        self._position = 0

    def readable(self) -> bool:
        """See :class:`io.IOBase`."""
        return True

    def seekable(self) -> bool:
        """See :class:`io.IOBase`."""
        return True

    def tell(self) -> int:
        """See :class:`io.IOBase`."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See :class:`io.IOBase`."""
        end = max(start + len(part) for start, part in self._parts.items())
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: end}[whence]
        return self._position

    def read(self, size: int = -1) -> bytes:
        """See :class:`io.RawIOBase`.

        :raises OSError: If there is no part at this position.
        """
        for start, part in self._parts.items():
            if start <= self._position < start + len(part):
                first = self._position - start
                found = part[first : None if size < 0 else first + size]
                self._position += len(found)
                return found
        if size:
            raise OSError(f"byte {self._position} of the file was not fetched")
        return b""
