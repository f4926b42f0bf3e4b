"""From questions and texts to token ids, and to the places of answers among them."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from hostcore_hookspecs import InvalidData
from hostcore_transformers.columns import values_of
from hostcore_transformers.hyperparams import Hyperparams


class Questions:
    """Encodes a question with its context; a long context is several parts, each with the question.

    :param tokenizer: A fast one, with a token to pad with.
    """

    def __init__(self, tokenizer: Any, hyperparams: Hyperparams) -> None:
        self._tokenizer = tokenizer
        self._hyperparams = hyperparams

    def encode(self, rows: pa.RecordBatch) -> Mapping[str, Tensor]:
        """Return what the model takes, with ``labels``: int64 of shape (parts, 2), the first and the last token.

        Where a part has no answer, or not all of it, both are the token that begins it, as in BERT (Devlin et al.,
        arXiv:1810.04805, section 4.3).

        :raises InvalidData: When a row has no text, an answer is not where it should be, or a question is too long.
        """
        settings = self._hyperparams
        questions, contexts = (values_of(rows, one) for one in (settings.question_column, settings.context_column))
        answers = rows.column(settings.answers_column).to_pylist()
        spans = [self._span(row, *both) for row, both in enumerate(zip(contexts, answers, strict=True))]
        self._check_room(questions)
        encoded = self._tokenizer(
            questions,
            contexts,
            truncation="only_second",
            max_length=settings.max_length,
            stride=settings.stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            padding=True,
            return_tensors="pt",
        )
        rows_of_parts = encoded.pop("overflow_to_sample_mapping").tolist()
        offsets = encoded.pop("offset_mapping").tolist()
        labels = [
            self._places(spans[row], offsets[part], encoded.sequence_ids(part), encoded["input_ids"][part].tolist())
            for part, row in enumerate(rows_of_parts)
        ]
        return {**encoded, "labels": torch.tensor(labels)}

    def _span(self, row: int, context: str, answers: Any) -> tuple[int, int] | None:
        """Return where the first answer begins and ends in its context; None without an answer."""
        text, start = (_first((answers or {}).get(name)) for name in ("text", "answer_start"))
        if text is None or start is None:
            return None
        if not text or context[start : start + len(text)] != text:
            raise InvalidData(
                f'the answer {text!r} of row {row} of a batch is not at {start} of "{self._hyperparams.context_column}"'
                f", which has {context[start : start + len(text)]!r} there",
                hint='correct "answer_start", which counts characters; a row without an answer has empty lists',
            )
        return start, start + len(text)

    def _check_room(self, questions: Sequence[str]) -> None:
        longest = max(len(ids) for ids in self._tokenizer(questions, add_special_tokens=False)["input_ids"])
        room = self._hyperparams.max_length - self._tokenizer.num_special_tokens_to_add(pair=True) - longest
        if room <= self._hyperparams.stride:
            raise InvalidData(
                f'a text in "{self._hyperparams.question_column}" has {longest} tokens, which leaves {max(room, 0)} of '
                f"{self._hyperparams.max_length} for a part of its context, and {self._hyperparams.stride} are shared",
                hint='raise "max_length", or lower "stride"',
            )

    def _places(
        self, span: tuple[int, int] | None, offsets: Sequence[Any], sequences: Sequence[int | None], ids: list[int]
    ) -> tuple[int, int]:
        first = self._tokenizer.cls_token_id
        nowhere = ids.index(first) if first in ids else 0
        context = [at for at, sequence in enumerate(sequences) if sequence == 1]
        if span is None or not context:
            return nowhere, nowhere
        start, end = span
        if offsets[context[0]][0] > start or offsets[context[-1]][1] < end:
            return nowhere, nowhere
        return (
            max(at for at in context if offsets[at][0] <= start),
            min(at for at in context if offsets[at][1] >= end),
        )


def _first(values: Any) -> Any:
    """Return the first of a list, or a value that is none; None where there is nothing."""
    return next(iter(values), None) if isinstance(values, list) else values
