"""Images of the data, decoded."""

import io
from typing import Any, Final

import numpy as np
import pyarrow as pa

from hostcore_hookspecs import InvalidData
from hostcore_transformers.columns import Column, is_file, is_list, values_of


def _is_image(kind: pa.DataType) -> bool:
    return is_file(kind) or (is_list(kind) and is_list(kind.value_type) and bool(pa.types.is_integer(_innermost(kind))))


def _innermost(kind: pa.DataType) -> pa.DataType:
    return _innermost(kind.value_type) if is_list(kind) else kind


IMAGE: Final = Column(
    _is_image, 'images are files as bytes, structs of them with "bytes", or lists of rows of pixels from 0 to 255'
)


def images_of(rows: pa.RecordBatch, column: str) -> list[Any]:
    """Return the images of a column, as RGB.

    :raises InvalidData: When a value is no image.
    """
    from PIL import Image

    images = []
    for row, value in enumerate(values_of(rows, column)):
        content: Any = value.get("bytes") if isinstance(value, dict) else value
        try:
            if isinstance(content, list):
                image = Image.fromarray(np.asarray(content, dtype=np.uint8))
            else:
                image = Image.open(io.BytesIO(content))
            images.append(image.convert("RGB"))
        except (OSError, ValueError, TypeError, OverflowError, Image.DecompressionBombError) as error:
            raise InvalidData(
                f'row {row} of a batch has no image in "{column}": {error}',
                hint="an image is the content of a file (PNG, JPEG, …), or rows of pixels from 0 to 255, each a number "
                "or three",
            ) from error
    return images
