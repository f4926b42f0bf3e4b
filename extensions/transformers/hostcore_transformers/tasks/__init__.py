"""Tasks of the trainer: columns, loss and metrics of each. A new one is a class of one of these modules."""

from collections.abc import Mapping
from typing import Any

from hostcore_transformers.hyperparams import Hyperparams
from hostcore_transformers.tasks import audio as _audio
from hostcore_transformers.tasks import images as _images
from hostcore_transformers.tasks import text as _text
from hostcore_transformers.tasks.processors import Processors, load_processors
from hostcore_transformers.tasks.task import POINTERS, Batch, Task, check_columns, kinds_of_tasks

__all__ = ["POINTERS", "Batch", "Processors", "Task", "check_columns", "kinds_of_tasks", "load_task"]

_MODULES = (_text, _images, _audio)  # importing a module registers its tasks


def load_task(hyperparams: Hyperparams, handles: Mapping[str, Any]) -> Task:
    """Load the job's task, with the tokenizer and the processors that it reads with.

    :param handles: The job's inputs.
    :raises InvalidSettings: When one of them is missing, or of no use for the task.
    """
    kind = kinds_of_tasks()[hyperparams.task]
    return kind(hyperparams, load_processors(hyperparams, handles, kind.reads))
