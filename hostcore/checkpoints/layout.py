"""Layout of tensors in a safetensors file, so that a copy of them in memory can be written as it is.

The format is that of https://github.com/huggingface/safetensors: the length of the header (8 bytes, little-endian), the
header (JSON, padded with spaces), and the content of the tensors, one after the other, without a gap.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs
import orjson

#: Of the largest item; the data begin at a multiple of it.
ALIGNMENT: Final = 8


@attrs.frozen(kw_only=True)
class TensorEntry:
    """A tensor of a safetensors file."""

    key: str
    #: As safetensors names it: ``F32``.
    dtype: str
    #: In items; of ``F4``, two of them are in a byte.
    shape: Sequence[int]
    #: What its place must be a multiple of, in bytes: 1, 2, 4 or 8.
    alignment: int
    #: In bytes; a multiple of the alignment.
    size: int


@attrs.frozen(kw_only=True)
class Layout:
    """The places of all tensors."""

    #: All that comes before the data.
    header: bytes
    #: In the data, in bytes, by key.
    begins: Mapping[str, int]
    #: Of the data, in bytes.
    size: int


def lay_out(entries: Iterable[TensorEntry], metadata: Mapping[str, str]) -> Layout:
    """Find a place for every tensor: those with the largest items first, so that all are aligned without a gap.

    :param metadata: For the header, beside the format.
    """
    fields: dict[str, object] = {"__metadata__": {"format": "pt", **metadata}}
    begins: dict[str, int] = {}
    end = 0
    for entry in sorted(entries, key=lambda entry: -entry.alignment):
        begin, end = end, end + entry.size
        begins[entry.key] = begin
        fields[entry.key] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [begin, end]}
    text = orjson.dumps(fields)
    text += b" " * (-len(text) % ALIGNMENT)
    return Layout(header=len(text).to_bytes(8, "little") + text, begins=begins, size=end)
