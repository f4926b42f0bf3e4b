"""The contract of a task."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import attrs
import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from hostcore_hookspecs import InvalidData, InvalidSettings
from hostcore_transformers.columns import Column
from hostcore_transformers.hyperparams import Hyperparams
from hostcore_transformers.loss import predictions, summed_loss
from hostcore_transformers.tasks.processors import Processors

#: By split: where its data is named in the job.
POINTERS: Final = {"train": "/dataset", "validation": "/validation", "test": "/test"}
_KINDS: Final[dict[str, "type[Task]"]] = {}


@attrs.frozen(kw_only=True, eq=False)
class Batch:
    """A prepared batch, on the device."""

    #: What the model takes, without labels: the loss is not its own.
    inputs: Mapping[str, Tensor]
    labels: Tensor
    #: How many predictions its loss is of.
    predicted: int


class Task:
    """From rows to a loss. A subclass with a ``name`` is a task that jobs can have.

    :param hyperparams: The job's.
    :param processors: Those that :attr:`reads` names.
    """

    #: As the job names it.
    name: ClassVar[str] = ""
    #: The class of transformers that finds the architecture's.
    auto: ClassVar[str]
    #: Fields of :class:`Processors` that are needed.
    reads: ClassVar[tuple[str, ...]] = ("tokenizer",)
    #: What peft calls the task, if it knows it.
    adapters: ClassVar[str | None] = None
    #: Names of sums over an evaluation, beside the loss and the count of predictions; :meth:`scores` gives a batch's.
    summed: tuple[str, ...] = ()
    #: Whether each token is to predict the next, so that the first of a row is never predicted.
    predicts_next: ClassVar[bool] = False
    #: Whether tokens are found in their text, which slow tokenizers cannot.
    finds_tokens: ClassVar[bool] = False
    #: The reason why targets cannot be smoothed, if they cannot.
    unsmoothed: str = ""
    #: Layers that are new on a model without this head; adapters are trained and stored with those that there are.
    head: ClassVar[tuple[str, ...]] = ()
    #: Whether the model writes text, which samples are of.
    generates: ClassVar[bool] = False
    #: Advice where nothing is predicted in a whole evaluation.
    hint: ClassVar[str] = "see that the texts are longer than one token"

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):
            _KINDS[cls.name] = cls

    def __init__(self, hyperparams: Hyperparams, processors: Processors) -> None:
        self.hyperparams = hyperparams
        self.processors = processors
        if hyperparams.label_smoothing and self.unsmoothed:
            raise InvalidSettings("/label_smoothing", self.unsmoothed, hint="remove it")
        tokenizer = processors.tokenizer
        if tokenizer is None and hyperparams.special_tokens:
            raise InvalidSettings("/special_tokens", f'"{self.name}" reads no text', hint="remove them")
        if self.finds_tokens and tokenizer is not None and not tokenizer.is_fast:
            message = f"the tokenizer in {tokenizer.name_or_path} does not know where in a text its tokens are"
            pointer = "/tokenizer" if hyperparams.tokenizer else "/model"
            raise InvalidSettings(pointer, message, hint="save it as tokenizer.json (a fast one)")

    def columns(self) -> Mapping[str, Column]:
        """Return the settings that name the columns to read, and the types of these."""
        raise NotImplementedError

    def model_settings(self) -> Mapping[str, Any]:
        """Return keys of the model's configuration that the task decides."""
        return {}

    def check_model(self, model: Any, pointer: str) -> None:
        """See that the task can train a model.

        :param pointer: The setting that names it.
        :raises InvalidSettings: When it cannot.
        """

    def fitting(self, config: Any) -> list[str]:
        """Return the tasks that transformers has a model for, of this configuration's architecture."""
        import transformers

        autos = {name: getattr(transformers, kind.auto) for name, kind in _KINDS.items()}
        return [name for name, auto in autos.items() if type(config) in auto._model_mapping]

    def encode(self, rows: pa.RecordBatch, rng: np.random.Generator) -> "Mapping[str, Tensor] | list[list[int]]":
        """Convert rows to tensors: a pure function of the arguments, on the CPU, ahead of the loop.

        :param rng: The only source of randomness.
        :return: What the model takes, by name, and ``labels``. With packing, the ids of each text.
        :raises InvalidData: When a value is none that can be used.
        """
        raise NotImplementedError

    def outputs(self, model: Any, batch: Batch) -> Any:
        """Return what the model makes of a batch."""
        return model(**batch.inputs)

    def inputs(self, model: Any, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Complete a batch with what depends on the model."""
        return tensors

    def predicted(self, labels: Tensor) -> int:
        """Count the predictions that the loss of a batch sums over."""
        return predictions(labels, predicts_next=self.predicts_next)

    def loss(self, outputs: Any, batch: Batch, model: Any, *, smoothing: float = 0.0) -> Tensor:
        """Sum the losses of all predictions of a batch: zero-dimensional, float32; 0 where nothing is predicted.

        :param outputs: What the model returned for ``batch.inputs``.
        :param smoothing: The part of each target that is spread over all classes.
        """
        return summed_loss(outputs.logits, batch.labels, predicts_next=self.predicts_next, smoothing=smoothing)

    def scores(self, outputs: Any, batch: Batch) -> Tensor:
        """Compute :attr:`summed` for a batch, on its device, of shape (names,)."""
        return torch.zeros(len(self.summed), device=batch.labels.device)

    def metrics(self, loss: float, predicted: int, sums: Mapping[str, float]) -> Mapping[str, float]:
        """Compute the metrics of a whole split.

        :param loss: The mean over all predictions.
        :param predicted: How many there are, at least 1.
        :param sums: By the names in :attr:`summed`.
        """
        return {"perplexity": perplexity(loss)}


def kinds_of_tasks() -> Mapping[str, type[Task]]:
    """Return the tasks by the names that jobs give them."""
    return _KINDS


def perplexity(loss: float) -> float:
    """Return the exponential of a mean loss in nats, at most the largest that a float holds."""
    return math.exp(min(loss, 700.0))


def check_columns(schema: pa.Schema, task: Task, split: str) -> None:
    """See that data has the columns that the task needs, of types that it can use.

    :param split: ``train``, ``validation`` or ``test``.
    :raises InvalidData: When one is missing, or of another type.
    """
    data = "the data" if split == "train" else f"the {split} data"
    for setting, wanted in task.columns().items():
        column = getattr(task.hyperparams, setting)
        if column not in schema.names:
            raise InvalidData(
                f'{data} has no column "{column}"; it has: {", ".join(schema.names)}',
                pointer=POINTERS[split],
                hint=f'set "{setting}" to the column that is meant',
            )
        kind = schema.field(column).type
        if not wanted.is_right(kind):
            raise InvalidData(
                f'the column "{column}" of {data} is of type {kind}, and {wanted.expected}',
                pointer=POINTERS[split],
                hint=f'set "{setting}" to the column that is meant, or convert the data',
            )
