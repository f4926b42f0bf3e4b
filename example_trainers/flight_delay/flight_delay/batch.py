"""Rows of the prepared data as tensors."""

import attrs
import pyarrow as pa
import torch
from torch import Tensor

from flight_delay.features import ARRIVAL_DELAY, CATEGORY_NAMES, COLUMN_NAMES, NUMBER_NAMES
from hostcore_toolkit import to_tensors


@attrs.frozen(kw_only=True, eq=False)
class Batch:
    """Model inputs and target of some flights."""

    #: (flights, categories), int32: the ids in the order of ``features.CATEGORIES``.
    ids: Tensor
    #: (flights, numbers), float32: in the order of ``features.NUMBERS``, each in its own unit.
    numbers: Tensor
    #: (flights,), float32: the target, in minutes.
    arrival_delay: Tensor

    @classmethod
    def from_arrow(cls, rows: pa.RecordBatch, device: torch.device | str = "cpu") -> "Batch":
        """Copy rows to a device.

        :raises InvalidData: When a column is not there or cannot become a tensor.
        """
        columns = to_tensors(rows, COLUMN_NAMES)
        return cls(
            # Stacked first: one transfer to the device instead of one for each column.
            ids=torch.stack([columns[name] for name in CATEGORY_NAMES], dim=1).to(device),
            numbers=torch.stack([columns[name] for name in NUMBER_NAMES], dim=1).to(device),
            arrival_delay=columns[ARRIVAL_DELAY].to(device),
        )
