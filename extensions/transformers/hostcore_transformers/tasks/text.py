"""Tasks of which the rows are texts."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from hostcore_hookspecs import InvalidData, InvalidSettings
from hostcore_transformers.columns import CONVERSATION, TEXT, Column, is_list, is_text
from hostcore_transformers.hyperparams import Hyperparams
from hostcore_transformers.loss import IGNORED, summed_loss
from hostcore_transformers.packing import Separation, find_separation, pack_texts
from hostcore_transformers.questions import Questions
from hostcore_transformers.spans import Spans
from hostcore_transformers.tasks.labels import Classes, Classification
from hostcore_transformers.tasks.processors import Processors
from hostcore_transformers.tasks.task import Batch, Task, perplexity
from hostcore_transformers.text import Texts


class CausalLm(Task):
    """Predict the next token."""

    name = "causal-lm"
    auto = "AutoModelForCausalLM"
    adapters = "CAUSAL_LM"
    predicts_next = True
    generates = True

    def __init__(self, hyperparams: Hyperparams, processors: Processors) -> None:
        super().__init__(hyperparams, processors)
        #: Of packed texts, found with the model.
        self._separation: Separation | None = None

    def columns(self) -> Mapping[str, Column]:
        return {"messages_column": CONVERSATION} if self.hyperparams.messages_column else {"text_column": TEXT}

    def encode(self, rows: pa.RecordBatch, rng: np.random.Generator) -> "Mapping[str, Tensor] | list[list[int]]":
        texts, packing = Texts(self.processors.tokenizer, self.hyperparams), self.hyperparams.packing
        if self.hyperparams.learn_from == "answers":
            tokens, labels = texts.answers(rows)
        else:
            tokens = labels = texts.token_ids(rows)
        if packing is True:
            return tokens  # the trainer makes blocks of them
        if packing:
            return pack_texts(tokens, labels, self.hyperparams.max_length, self.processors.tokenizer.pad_token_id)
        # By the mask: the padding token may be the one that ends a text, and that is to be learned.
        return texts.labelled(tokens, [one for row in labels for one in row])

    def check_model(self, model: Any, pointer: str) -> None:
        if self.hyperparams.packing != "texts":
            return
        if "flash" in str(model.config._attn_implementation):
            message = 'packed "texts" are kept apart by masks, which flash attention does not take'
            raise InvalidSettings("/attention", message, hint='set "attention" to "sdpa"')
        self._separation = find_separation(model)
        if self._separation is None:
            message = f"{type(model).__name__} computes something else of packed texts than of each alone"
            hint = "remove it, or set it to true if texts may read those before them in a block"
            raise InvalidSettings("/packing", message, hint=hint)

    def outputs(self, model: Any, batch: Batch) -> Any:
        if self._separation is None:
            return super().outputs(model, batch)
        return model(**self._separation(batch.inputs), use_cache=False)


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
    head = ("classifier", "score", "classification_head")

    def columns(self) -> Mapping[str, Column]:
        return {"text_column": TEXT, **super().columns()}

    def encode(self, rows: pa.RecordBatch, rng: np.random.Generator) -> Mapping[str, Tensor]:
        texts = Texts(self.processors.tokenizer, self.hyperparams)
        return {**texts.padded(texts.token_ids(rows)), "labels": self.labels(rows)}


class TokenClassification(Task):
    """Classify words: by the first token of each; the others are not predicted."""

    name = "token-classification"
    auto = "AutoModelForTokenClassification"
    adapters = "TOKEN_CLS"
    head = ("classifier", "score")
    summed: tuple[str, ...] = ("right",)
    finds_tokens = True
    hint = "see that rows have words"

    def __init__(self, hyperparams: Hyperparams, processors: Processors) -> None:
        super().__init__(hyperparams, processors)
        self.classes = Classes(hyperparams)
        self._spans = Spans(hyperparams.classes) if Spans.are_marked_by(hyperparams.classes) else None
        if self._spans is not None:
            self.summed = ("right", "right_spans", "found_spans", "spans")

    def columns(self) -> Mapping[str, Column]:
        words = Column(lambda kind: is_list(kind) and is_text(kind.value_type), "words are lists of strings")
        labels = Column(
            lambda kind: is_list(kind) and self.classes.is_right(kind.value_type),
            'the labels of words are lists of integers, or of strings that "classes" names',
        )
        return {"words_column": words, "label_column": labels}

    def model_settings(self) -> Mapping[str, Any]:
        return self.classes.model_settings()

    def encode(self, rows: pa.RecordBatch, rng: np.random.Generator) -> Mapping[str, Tensor]:
        texts = Texts(self.processors.tokenizer, self.hyperparams)
        ids, words = texts.words(rows)
        labels = []
        for values, places in zip(self._labels(rows), words, strict=True):
            before = None
            for place in places:
                labels.append(IGNORED if place is None or place == before else values[place])
                before = place
        return texts.labelled(ids, labels)

    def _labels(self, rows: pa.RecordBatch) -> list[list[int]]:
        """Return the classes of all words of each row."""
        settings = self.hyperparams
        words, labels = (rows.column(one).to_pylist() for one in (settings.words_column, settings.label_column))
        for row, (one, other) in enumerate(zip(words, labels, strict=True)):
            if other is None or len(one) != len(other):
                count = "none" if other is None else f"{len(other)}"
                raise InvalidData(
                    f'row {row} of a batch has {len(one)} words in "{settings.words_column}" and labels for {count} '
                    f'in "{settings.label_column}"',
                    hint="correct the data: each word has a label",
                )
        return [[self.classes.number(one) for one in row] for row in labels]

    def scores(self, outputs: Any, batch: Batch) -> Tensor:
        found = outputs.logits.argmax(-1)
        right = (found == batch.labels).sum().view(1)
        return right if self._spans is None else torch.cat([right, self._spans.count(found, batch.labels)])

    def metrics(self, loss: float, predicted: int, sums: Mapping[str, float]) -> Mapping[str, float]:
        accuracy = {"accuracy": sums["right"] / predicted}
        if self._spans is None:
            return accuracy
        right, found, there = (sums[name] for name in ("right_spans", "found_spans", "spans"))
        return {
            **accuracy,
            "precision": right / max(found, 1.0),
            "recall": right / max(there, 1.0),
            "f1": 2 * right / max(found + there, 1.0),
        }


class QuestionAnswering(Task):
    """Find the answer to a question in a text: its first and its last token."""

    name = "question-answering"
    auto = "AutoModelForQuestionAnswering"
    adapters = "QUESTION_ANS"
    head = ("qa_outputs",)
    summed = ("right",)
    finds_tokens = True
    unsmoothed = "places in a text are not smoothed"

    def columns(self) -> Mapping[str, Column]:
        answers = Column(
            lambda kind: pa.types.is_struct(kind) and {"text", "answer_start"} <= {one.name for one in kind},
            'answers are structs of "text" and "answer_start", lists as in SQuAD',
        )
        return {"question_column": TEXT, "context_column": TEXT, "answers_column": answers}

    def model_settings(self) -> Mapping[str, Any]:
        return {"num_labels": 2}  # a first and a last token

    def encode(self, rows: pa.RecordBatch, rng: np.random.Generator) -> Mapping[str, Tensor]:
        return Questions(self.processors.tokenizer, self.hyperparams).encode(rows)

    def predicted(self, labels: Tensor) -> int:
        return len(labels)

    def loss(self, outputs: Any, batch: Batch, model: Any, *, smoothing: float = 0.0) -> Tensor:
        both = zip((outputs.start_logits, outputs.end_logits), batch.labels.unbind(-1), strict=True)
        start, end = (summed_loss(logits, labels, predicts_next=False) for logits, labels in both)
        return (start + end) / 2

    def scores(self, outputs: Any, batch: Batch) -> Tensor:
        found = torch.stack([outputs.start_logits.argmax(-1), outputs.end_logits.argmax(-1)], -1)
        return (found == batch.labels).all(-1).sum().view(1)

    def metrics(self, loss: float, predicted: int, sums: Mapping[str, float]) -> Mapping[str, float]:
        return {"exact_match": sums["right"] / predicted}


class SequenceToSequence(Task):
    """Write a text after another one was read."""

    name = "seq2seq"
    auto = "AutoModelForSeq2SeqLM"
    adapters: ClassVar[str | None] = "SEQ_2_SEQ_LM"
    summed = ("right",)
    generates = True

    def columns(self) -> Mapping[str, Column]:
        return {"text_column": TEXT, "target_column": TEXT}

    def encode(self, rows: pa.RecordBatch, rng: np.random.Generator) -> Mapping[str, Tensor]:
        texts = Texts(self.processors.tokenizer, self.hyperparams)
        labels = texts.learned(rows, self.hyperparams.target_column)
        return {**texts.padded(texts.token_ids(rows)), "labels": labels}

    def inputs(self, model: Any, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        start = getattr(model.config, "decoder_start_token_id", None)
        if start is None:
            message = 'the model\'s configuration has no "decoder_start_token_id", with which a target begins'
            pointer = "/config" if self.hyperparams.config else "/model"
            raise InvalidSettings(pointer, message, hint="set it; of T5 it is the token to pad with")
        labels = tensors["labels"]
        if hasattr(model, "prepare_decoder_input_ids_from_labels"):
            before = model.prepare_decoder_input_ids_from_labels(labels=labels)
        else:
            before = nn.functional.pad(labels, (1, -1), value=start)
            before = before.masked_fill(before == IGNORED, model.config.pad_token_id)
        return {**tensors, "decoder_input_ids": before}

    def scores(self, outputs: Any, batch: Batch) -> Tensor:
        right: Tensor = (outputs.logits.argmax(-1) == batch.labels).sum()
        return right.view(1)

    def metrics(self, loss: float, predicted: int, sums: Mapping[str, float]) -> Mapping[str, float]:
        return {"perplexity": perplexity(loss), "token_accuracy": sums["right"] / predicted}
