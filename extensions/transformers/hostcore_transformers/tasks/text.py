"""Tasks of which the rows are texts."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor

from hostcore_hookspecs import InvalidSettings
from hostcore_transformers.hyperparams import Hyperparams
from hostcore_transformers.loss import IGNORED
from hostcore_transformers.tasks.labels import Classification
from hostcore_transformers.tasks.processors import Processors
from hostcore_transformers.tasks.task import CONVERSATION, TEXT, Batch, Column, Task, perplexity
from hostcore_transformers.text import Texts


class CausalLm(Task):
    """Predict the next token."""

    name = "causal-lm"
    auto = "AutoModelForCausalLM"
    adapters = "CAUSAL_LM"
    predicts_next = True
    generates = True

    def columns(self) -> Mapping[str, Column]:
        return {"messages_column": CONVERSATION} if self.hyperparams.messages_column else {"text_column": TEXT}

    def encode(self, rows: pa.RecordBatch, rng: np.random.Generator) -> "Mapping[str, Tensor] | list[list[int]]":
        texts = Texts(self.processors.tokenizer, self.hyperparams)
        if self.hyperparams.learn_from == "answers":
            return texts.answers(rows)
        tokens = texts.token_ids(rows)
        if self.hyperparams.packing:
            return tokens  # the trainer makes blocks of them
        batch = texts.padded(tokens)
        # By the mask: the padding token may be the one that ends a text, and that is to be learned.
        return {**batch, "labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, IGNORED)}


class MaskedLm(Task):
    """Predict tokens that are masked."""

    name = "masked-lm"
    auto = "AutoModelForMaskedLM"
    hint = 'raise "mask_probability"'

    def __init__(self, hyperparams: Hyperparams, processors: Processors) -> None:
        super().__init__(hyperparams, processors)
        if processors.tokenizer.mask_token_id is None:
            message = f"the tokenizer in {processors.tokenizer.name_or_path} has no mask token, which masked-lm needs"
            pointer = "/tokenizer" if hyperparams.tokenizer else "/model"
            raise InvalidSettings(pointer, message, hint="set its mask_token, or choose another task")

    def columns(self) -> Mapping[str, Column]:
        return {"text_column": TEXT}

    def encode(self, rows: pa.RecordBatch, rng: np.random.Generator) -> Mapping[str, Tensor]:
        texts = Texts(self.processors.tokenizer, self.hyperparams)
        return texts.masked(texts.padded(texts.token_ids(rows)), rng)


class SequenceClassification(Classification):
    """Classify texts."""

    name = "sequence-classification"
    auto = "AutoModelForSequenceClassification"
    adapters = "SEQ_CLS"

    def columns(self) -> Mapping[str, Column]:
        return {"text_column": TEXT, **super().columns()}

    def encode(self, rows: pa.RecordBatch, rng: np.random.Generator) -> Mapping[str, Tensor]:
        texts = Texts(self.processors.tokenizer, self.hyperparams)
        return {**texts.padded(texts.token_ids(rows)), "labels": self.labels(rows)}


class SequenceToSequence(Task):
    """Write a text after another one was read."""

    name = "seq2seq"
    auto = "AutoModelForSeq2SeqLM"
    adapters = "SEQ_2_SEQ_LM"
    summed = ("right",)
    generates = True

    def columns(self) -> Mapping[str, Column]:
        return {"text_column": TEXT, "target_column": TEXT}

    def encode(self, rows: pa.RecordBatch, rng: np.random.Generator) -> Mapping[str, Tensor]:
        texts = Texts(self.processors.tokenizer, self.hyperparams)
        targets = texts.padded(texts.targets(rows))
        labels = targets["input_ids"].masked_fill(targets["attention_mask"] == 0, IGNORED)
        return {**texts.padded(texts.token_ids(rows)), "labels": labels}

    def inputs(self, model: Any, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if model.config.decoder_start_token_id is None:
            message = 'the model\'s configuration has no "decoder_start_token_id", with which a target begins'
            pointer = "/config" if self.hyperparams.config else "/model"
            raise InvalidSettings(pointer, message, hint="set it; of T5 it is the token to pad with")
        return {**tensors, "decoder_input_ids": model.prepare_decoder_input_ids_from_labels(labels=tensors["labels"])}

    def scores(self, outputs: Any, batch: Batch) -> Tensor:
        right: Tensor = (outputs.logits.argmax(-1) == batch.labels).sum()
        return right.view(1)

    def metrics(self, loss: float, predicted: int, sums: Mapping[str, float]) -> Mapping[str, float]:
        return {"perplexity": perplexity(loss), "token_accuracy": sums["right"] / predicted}
