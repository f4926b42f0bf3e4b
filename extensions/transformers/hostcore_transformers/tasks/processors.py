"""The tokenizer and the processors of images and audio, read from folders and written beside the weights."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from hostcore_transformers.hyperparams import Hyperparams
from hostcore_transformers.loading import load_processor, load_tokenizer


@attrs.frozen(kw_only=True, eq=False)
class Processors:
    """Turn data into what models take. None: the task reads nothing of the kind."""

    tokenizer: Any = None
    images: Any = None
    audio: Any = None

    def save(self, folder: str | Path) -> None:
        """Write them where ``from_pretrained`` reads them."""
        for one in attrs.astuple(self, recurse=False):
            if one is not None:
                one.save_pretrained(folder)


def load_processors(hyperparams: Hyperparams, handles: Mapping[str, Any], names: Sequence[str]) -> Processors:
    """Load those that a task needs.

    :param names: Of the fields of :class:`Processors`.
    """
    loaders: dict[str, Callable[..., Any]] = {
        "tokenizer": load_tokenizer,
        # The same on any machine, also where torchvision is installed.
        "images": partial(load_processor, auto="AutoImageProcessor", backend="pil"),
        "audio": partial(load_processor, auto="AutoFeatureExtractor"),
    }
    return Processors(**{name: loaders[name](hyperparams, handles) for name in names})
