"""Labels of whole rows, whatever the rows are: a class of each, several, or numbers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import pyarrow as pa
import torch
from torch import Tensor, nn

from hostcore_hookspecs import InvalidData
from hostcore_transformers.columns import Column, is_list, is_text, values_of
from hostcore_transformers.hyperparams import Hyperparams
from hostcore_transformers.loss import summed_loss
from hostcore_transformers.tasks.processors import Processors
from hostcore_transformers.tasks.task import Batch, Task


class Classes:
    """The classes of a job, by their numbers and, where the job names them, by these."""

    def __init__(self, hyperparams: Hyperparams) -> None:
        self.column = hyperparams.label_column
        self.count = hyperparams.label_count
        self._names = {name: number for number, name in enumerate(hyperparams.classes)}

    def model_settings(self) -> Mapping[str, Any]:
        """Return the count and the names, as a model's configuration has them."""
        if not self._names:
            return {"num_labels": self.count}
        names = {number: name for name, number in self._names.items()}
        return {"num_labels": self.count, "id2label": names, "label2id": dict(self._names)}

    def is_right(self, kind: pa.DataType) -> bool:
        """Return whether values of a type are classes."""
        return bool(pa.types.is_integer(kind) or (self._names and is_text(kind)))

    def number(self, value: Any) -> int:
        """Return the number of a class.

        :raises InvalidData: When it is none of the job's.
        """
        if isinstance(value, str) and value in self._names:
            return self._names[value]
        if isinstance(value, int) and 0 <= value < self.count:
            return value
        known = f"0 to {self.count - 1}"
        if isinstance(value, str):
            known = ", ".join(self._names) or f"{known}, without names"
        hint = 'correct the data, or "classes"' if self._names else 'set "num_labels", or correct the data'
        raise InvalidData(f'the column "{self.column}" has {value!r}, and the classes are {known}', hint=hint)


class LabelKind:
    """A kind of label, with its loss; named as ``problem_type`` of transformers' configurations.

    :param hyperparams: The job's.
    """

    #: As in :class:`Task`.
    summed: ClassVar[tuple[str, ...]]

    def __init__(self, hyperparams: Hyperparams) -> None:
        self.classes = Classes(hyperparams)

    def column(self) -> Column:
        """Return the types that the column of labels may have."""
        raise NotImplementedError

    def tensor(self, values: Sequence[Any]) -> Tensor:
        """Convert the column of a batch: of shape (rows,) or (rows, labels).

        :raises InvalidData: When a value is no label.
        """
        raise NotImplementedError

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        """Sum the losses of all labels, zero-dimensional, float32."""
        raise NotImplementedError

    def scores(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Compute :attr:`summed`."""
        raise NotImplementedError

    def metrics(self, loss: float, predicted: int, sums: Mapping[str, float]) -> Mapping[str, float]:
        """Compute the metrics of a whole split, as :meth:`Task.metrics`."""
        raise NotImplementedError

    def _row(self, values: Any) -> list[float]:
        """Return the numbers of one row's list.

        :raises InvalidData: When there are others than one for each label.
        """
        column, count = self.classes.column, self.classes.count
        if not isinstance(values, list) or len(values) != count or None in values:
            found = f"a list of {len(values)}" if isinstance(values, list) and None not in values else repr(values)
            raise InvalidData(
                f'the column "{column}" has {found}, and each row needs {count} numbers',
                hint='set "num_labels", or correct the data',
            )
        return [float(one) for one in values]


class SingleLabel(LabelKind):
    """One class of each row."""

    summed = ("right",)

    def column(self) -> Column:
        return Column(
            self.classes.is_right,
            'classes are integers, or strings that "classes" names (numbers are learned with "problem_type": '
            '"regression", lists with "multi_label_classification")',
        )

    def tensor(self, values: Sequence[Any]) -> Tensor:
        return torch.tensor([self.classes.number(one) for one in values])

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        return summed_loss(logits, labels, predicts_next=False, smoothing=smoothing)

    def scores(self, logits: Tensor, labels: Tensor) -> Tensor:
        return (logits.argmax(-1) == labels).sum().view(1)

    def metrics(self, loss: float, predicted: int, sums: Mapping[str, float]) -> Mapping[str, float]:
        return {"accuracy": sums["right"] / predicted}


class MultiLabel(LabelKind):
    """Any number of classes of each row: a 1 or a 0 for each, or the names of those that it has."""

    summed = ("whole", "found", "chosen", "there")

    def column(self) -> Column:
        def is_right(kind: pa.DataType) -> bool:
            if not is_list(kind):
                return False
            inner = kind.value_type
            return self.classes.is_right(inner) or pa.types.is_floating(inner) or pa.types.is_boolean(inner)

        return Column(is_right, 'several labels are a list of a 1 or a 0 for each class, or of names in "classes"')

    def tensor(self, values: Sequence[Any]) -> Tensor:
        return torch.tensor([self._labels(one) for one in values])

    def _labels(self, values: Any) -> list[float]:
        if isinstance(values, list) and all(isinstance(one, str) for one in values):
            there = {self.classes.number(one) for one in values}
            return [float(number in there) for number in range(self.classes.count)]
        labels = self._row(values)
        if not set(labels) <= {0.0, 1.0}:
            message = f'the column "{self.classes.column}" has {values!r}, and labels are 1 or 0'
            raise InvalidData(message, hint='for numbers, set "problem_type" to "regression"')
        return labels

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(logits.float(), labels, reduction="sum")

    def scores(self, logits: Tensor, labels: Tensor) -> Tensor:
        chosen, there = logits > 0, labels > 0
        whole = (chosen == there).all(-1)
        return torch.stack([one.sum() for one in (whole, chosen & there, chosen, there)])

    def metrics(self, loss: float, predicted: int, sums: Mapping[str, float]) -> Mapping[str, float]:
        f1 = 2 * sums["found"] / max(sums["chosen"] + sums["there"], 1)
        return {"f1": f1, "accuracy": sums["whole"] * self.classes.count / predicted}


class Regression(LabelKind):
    """A number of each row, or several."""

    summed = ("distance",)

    def column(self) -> Column:
        def is_number(kind: pa.DataType) -> bool:
            return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))

        if self.classes.count == 1:
            return Column(is_number, 'a regression needs numbers (of lists of n numbers, set "num_labels" to n)')
        return Column(lambda kind: is_list(kind) and is_number(kind.value_type), "it has to have lists of numbers")

    def tensor(self, values: Sequence[Any]) -> Tensor:
        if self.classes.count == 1:
            values = [[one] for one in values]
        return torch.tensor([self._row(one) for one in values])

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        return nn.functional.mse_loss(logits.float(), labels, reduction="sum")

    def scores(self, logits: Tensor, labels: Tensor) -> Tensor:
        return (logits - labels).abs().sum().view(1)

    def metrics(self, loss: float, predicted: int, sums: Mapping[str, float]) -> Mapping[str, float]:
        return {"rmse": math.sqrt(loss), "mae": sums["distance"] / predicted}


_KINDS: Final[dict[str, type[LabelKind]]] = {
    "single_label_classification": SingleLabel,
    "multi_label_classification": MultiLabel,
    "regression": Regression,
}


class Classification(Task):
    """Labels of each row, of the kind that ``problem_type`` names. A subclass encodes the rest of it."""

    def __init__(self, hyperparams: Hyperparams, processors: Processors) -> None:
        self.kind = _KINDS[hyperparams.problem_type](hyperparams)
        self.summed = self.kind.summed
        if not isinstance(self.kind, SingleLabel):
            self.unsmoothed = f'it is for classes, and "problem_type" is "{hyperparams.problem_type}"'
        super().__init__(hyperparams, processors)

    def columns(self) -> Mapping[str, Column]:
        return {"label_column": self.kind.column()}

    def model_settings(self) -> Mapping[str, Any]:
        return {**self.kind.classes.model_settings(), "problem_type": self.hyperparams.problem_type}

    def labels(self, rows: pa.RecordBatch) -> Tensor:
        """Return the labels: int64 of shape (rows,), or float32 of shape (rows, labels)."""
        return self.kind.tensor(values_of(rows, self.hyperparams.label_column))

    def predicted(self, labels: Tensor) -> int:
        return labels.numel()

    def loss(self, outputs: Any, batch: Batch, model: Any, *, smoothing: float = 0.0) -> Tensor:
        return self.kind.loss(outputs.logits, batch.labels, smoothing)

    def scores(self, outputs: Any, batch: Batch) -> Tensor:
        return self.kind.scores(outputs.logits, batch.labels)

    def metrics(self, loss: float, predicted: int, sums: Mapping[str, float]) -> Mapping[str, float]:
        return self.kind.metrics(loss, predicted, sums)
