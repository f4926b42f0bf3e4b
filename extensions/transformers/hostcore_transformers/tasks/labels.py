"""Labels of whole rows."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from hostcore_hookspecs import InvalidData
from hostcore_transformers.tasks.task import CLASS, Batch, Column, Task


class Classification(Task):
    """One class of each row."""

    summed = ("right",)

    def columns(self) -> Mapping[str, Column]:
        return {"label_column": CLASS}

    def model_settings(self) -> Mapping[str, Any]:
        return {"num_labels": self.hyperparams.num_labels, "problem_type": "single_label_classification"}

    def labels(self, rows: pa.RecordBatch) -> Tensor:
        """Return the classes: int64 of shape (rows,)."""
        hyperparams = self.hyperparams
        classes = rows.column(hyperparams.label_column).to_pylist()
        for one in classes:
            if one is None or not 0 <= one < hyperparams.num_labels:
                raise InvalidData(
                    f'the column "{hyperparams.label_column}" has {one!r}, and the classes are 0 to '
                    f"{hyperparams.num_labels - 1}",
                    hint='set "num_labels", or correct the data',
                )
        return torch.tensor(classes)

    def scores(self, outputs: Any, batch: Batch) -> Tensor:
        right: Tensor = (outputs.logits.argmax(-1) == batch.labels).sum()
        return right.view(1)

    def metrics(self, loss: float, predicted: int, sums: Mapping[str, float]) -> Mapping[str, float]:
        return {"accuracy": sums["right"] / predicted}
