"""The text of data files, unpacked, with the errors about it."""

import io
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from hostcore_builtin_plugins.sources.file_dataset import looks_like, not_of_format
from hostcore_builtin_plugins.sources.files import DataFile
from hostcore_builtin_plugins.stores.errors import data_errors
from hostcore_hookspecs import InvalidData

#: Files whose name ends like this are unpacked while they are read.
CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
#: Text that is read and parsed at once, about.
BLOCK_BYTES = 2 << 20
#: A single record, at most.
RECORD_BYTES = 64 << 20
#: The byte order mark of UTF-8, which means nothing.
MARK = b"\xef\xbb\xbf"

_PACKED = {b"\x1f\x8b": ".gz", b"(\xb5/\xfd": ".zst"}
_OTHER_MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


@contextmanager
def open_text(file: DataFile, format_name: str) -> Iterator[io.BufferedReader]:
    """Open a file of text, from its beginning.

    :param format_name: Name of a file of the format in messages.
    :raises InvalidData: It cannot be read, or is no text in UTF-8 at all.
    """
    codec = next((codec for ending, codec in CODECS.items() if file.path.endswith(ending)), None)
    with data_errors(file.name), file.open() as opened:
        source = pa.CompressedInputStream(opened, codec) if codec else opened
        with io.BufferedReader(source, BLOCK_BYTES) as text:
            _require_text(file, text.peek(16), format_name)
            yield text


def _require_text(file: DataFile, head: bytes, format_name: str) -> None:
    packed = next((ending for magic, ending in _PACKED.items() if head.startswith(magic)), None)
    if packed:
        hint = f"it looks packed: give its name the ending {packed}, and it is unpacked while it is read"
        raise InvalidData(f"{file.name} is not {format_name}", file=file.name, hint=hint)
    if looks_like(head):
        raise not_of_format(file, format_name)
    encoding = next((name for mark, name in _OTHER_MARKS.items() if head.startswith(mark)), None)
    if encoding:
        hint = f"write it as UTF-8: iconv -f {encoding} -t UTF-8"
        raise InvalidData(f"{file.name} is {encoding}, not UTF-8", file=file.name, hint=hint)


def text_error(file: DataFile, place: str, message: str, hint: str) -> InvalidData:
    """Return the error about a place in a file.

    :param place: Such as ``line 3``; lines count from 1.
    """
    return InvalidData(f"{file.name}, {place}: {message}", file=file.name, hint=hint)


def require_utf8(file: DataFile, line: int, text: bytes) -> None:
    """Raise the error about a text that is not UTF-8.

    :param line: The line where the text begins.
    """
    try:
        text.decode()
    except UnicodeDecodeError as error:
        begin = text.rfind(b"\n", 0, error.start) + 1
        line += text.count(b"\n", 0, begin)
        message = f"byte {error.start - begin + 1} of the line (0x{text[error.start]:02x}) is not UTF-8"
        hint = "write the file as UTF-8: iconv -f ISO-8859-1 -t UTF-8, if that is what it is"
        raise text_error(file, f"line {line}", message, hint) from error


def too_long(file: DataFile, line: int) -> InvalidData:
    """Return the error about a record that is larger than the limit."""
    message = f"a record does not end within {RECORD_BYTES >> 20} MiB, which is the limit"
    hint = "a quote that is never closed does that; else keep such large values in files of their own"
    return text_error(file, f"line {line}", message, hint)
