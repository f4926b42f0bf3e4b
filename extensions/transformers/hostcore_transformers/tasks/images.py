"""Tasks of which the rows have images."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from hostcore_hookspecs import InvalidData, InvalidSettings
from hostcore_transformers.columns import TEXT, Column
from hostcore_transformers.images import IMAGE, images_of
from hostcore_transformers.loss import summed_loss
from hostcore_transformers.tasks.labels import Classification
from hostcore_transformers.tasks.task import Batch, Task
from hostcore_transformers.text import Texts


class ReadsImages(Task):
    """A task of which the model takes ``pixel_values``."""

    reads: ClassVar[tuple[str, ...]] = ("images",)

    def columns(self) -> Mapping[str, Column]:
        return {"image_column": IMAGE, **super().columns()}

    def pixels(self, rows: pa.RecordBatch) -> Mapping[str, Tensor]:
        """Return ``pixel_values``, float32 of shape (rows, channels, height, width).

        :raises InvalidData: When a value is no image, or they have several sizes.
        """
        column = self.hyperparams.image_column
        images = images_of(rows, column)
        try:
            found = self.processors.images(images=images, return_tensors="pt")
        except ValueError as error:
            sizes = ", ".join(sorted({f"{one.width}x{one.height}" for one in images}))
            raise InvalidData(
                f'the processor does not make a batch of the images in "{column}" ({sizes}): {error}',
                hint='set "do_resize" and "size" in its preprocessor_config.json',
            ) from error
        return {"pixel_values": found["pixel_values"]}

    def outputs(self, model: Any, batch: Batch) -> Any:
        try:
            return super().outputs(model, batch)
        except ValueError as error:
            height, width = batch.inputs["pixel_values"].shape[-2:]
            raise InvalidData(
                f"the model does not take images of {height}x{width}, as the processor makes them: {error}",
                hint='set "size" in its preprocessor_config.json to the "image_size" of the model\'s configuration',
            ) from error


class ImageClassification(ReadsImages, Classification):
    """Classify images."""

    name = "image-classification"
    auto = "AutoModelForImageClassification"
    head = ("classifier", "head")

    def check_model(self, model: Any, pointer: str) -> None:
        if model.main_input_name != "pixel_values":
            message = f'{type(model).__name__} reads "{model.main_input_name}" in place of pixels'
            raise InvalidSettings(pointer, message, hint="use a model that reads pixels, such as ViT or ConvNeXt")

    def encode(self, rows: pa.RecordBatch, rng: np.random.Generator) -> Mapping[str, Tensor]:
        return {**self.pixels(rows), "labels": self.labels(rows)}


class Contrastive(ReadsImages):
    """Find the text of each image of a batch, and the image of each text (CLIP, arXiv:2103.00020)."""

    name = "contrastive"
    auto = "AutoModelForZeroShotImageClassification"
    reads = ("tokenizer", "images")
    summed = ("right",)
    unsmoothed = "pairs are not smoothed"

    def columns(self) -> Mapping[str, Column]:
        return {"image_column": IMAGE, "text_column": TEXT}

    def check_model(self, model: Any, pointer: str) -> None:
        kind = model.config.model_type
        if kind not in _SOFTMAX:
            message = f"the loss of {kind} is not that of CLIP, the softmax over a batch"
            raise InvalidSettings(pointer, message, hint=f"use one of {', '.join(_SOFTMAX)}")

    def encode(self, rows: pa.RecordBatch, rng: np.random.Generator) -> Mapping[str, Tensor]:
        texts = Texts(self.processors.tokenizer, self.hyperparams)
        return {**texts.padded(texts.captions(rows)), **self.pixels(rows), "labels": torch.arange(len(rows))}

    def loss(self, outputs: Any, batch: Batch, model: Any, *, smoothing: float = 0.0) -> Tensor:
        if batch.predicted == 1 and model.training:
            raise InvalidData(
                "a batch of one row has nothing that its image is told from",
                pointer="/dataset/batch_size",
                hint="take batches of several rows",
            )
        logits = outputs.logits_per_text
        both = (summed_loss(one, batch.labels, predicts_next=False) for one in (logits, logits.t()))
        return sum(both, torch.zeros((), device=logits.device)) / 2

    def scores(self, outputs: Any, batch: Batch) -> Tensor:
        right: Tensor = (outputs.logits_per_image.argmax(-1) == batch.labels).sum()
        return right.view(1)

    def metrics(self, loss: float, predicted: int, sums: Mapping[str, float]) -> Mapping[str, float]:
        return {"accuracy": sums["right"] / predicted}


#: Models with the loss of CLIP, by their ``model_type``.
_SOFTMAX = ("clip", "metaclip_2", "chinese_clip", "altclip", "clipseg", "align", "blip")
