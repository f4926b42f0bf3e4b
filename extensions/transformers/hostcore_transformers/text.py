"""From rows of the data to token ids, labels and masks."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from jinja2 import TemplateError
from torch import Tensor

from hostcore_hookspecs import InvalidData
from hostcore_transformers.answers import answer_labels
from hostcore_transformers.columns import values_of
from hostcore_transformers.hyperparams import Hyperparams
from hostcore_transformers.loss import IGNORED


class Texts:
    """Turns the texts of record batches into token ids; pure functions of the rows and of the random generator.

    :param tokenizer: One with a token to pad with.
    """

    def __init__(self, tokenizer: Any, hyperparams: Hyperparams) -> None:
        self._tokenizer = tokenizer
        self._hyperparams = hyperparams

    def answers(self, rows: pa.RecordBatch) -> tuple[list[list[int]], list[list[int]]]:
        """Return ids and labels of conversations in which the assistant's tokens alone are predicted.

        :raises InvalidData: When a conversation is none, or the template does not take it.
        """
        longest = self._hyperparams.max_length
        texts, labels = [], []
        for row, conversation in enumerate(rows.column(self._hyperparams.messages_column).to_pylist()):
            ids, learned = answer_labels(
                self._tokenizer, _messages(conversation, row), partial(self._by_template, row=row), row
            )
            texts.append(ids[:longest])
            labels.append(learned[:longest])
        return texts, labels

    def words(self, rows: pa.RecordBatch) -> tuple[list[list[int]], list[list[int | None]]]:
        """Tokenize lists of words; cut to ``max_length``.

        :return: Of each row, the ids and, for each, the number of the word that it is of; None: of none.
        :raises InvalidData: When a row has none, or other things than words.
        """
        column = self._hyperparams.words_column
        words = rows.column(column).to_pylist()
        for row, one in enumerate(words):
            if one is None or None in one:
                raise InvalidData(f'row {row} of a batch lacks words in "{column}"', hint="leave such rows out")
        encoded = self._tokenizer(
            words, is_split_into_words=True, truncation=True, max_length=self._hyperparams.max_length
        )
        return encoded["input_ids"], [encoded.word_ids(row) for row in range(len(words))]

    def labelled(self, texts: Sequence[list[int]], labels: Sequence[int]) -> Mapping[str, Tensor]:
        """Return ids, mask and labels, int64 of shape (texts, longest).

        :param labels: Of all tokens of all texts, one after the other.
        """
        padded = self.padded(texts)
        there = padded["attention_mask"] == 1
        ignored = torch.full_like(padded["input_ids"], IGNORED)
        return {**padded, "labels": ignored.masked_scatter(there, torch.tensor(labels, dtype=torch.int64))}

    def learned(self, rows: pa.RecordBatch, column: str) -> Tensor:
        """Return the labels of texts to be written, int64 of shape (texts, longest).

        Each has the end token where ``append_eos`` is on, and is cut to ``max_length``.

        :raises InvalidData: When a row has no text.
        """
        texts, eos = rows.column(column).to_pylist(), self._tokenizer.eos_token_id
        if None in texts:
            raise InvalidData(f'row {texts.index(None)} of a batch has no text in "{column}"')
        end = [eos] if self._hyperparams.append_eos and eos is not None else []
        encoded = self._tokenizer(text_target=texts)["input_ids"]
        longest = self._hyperparams.max_length
        padded = self.padded([(ids if ids[-1:] == end else [*ids, *end])[:longest] for ids in encoded])
        return padded["input_ids"].masked_fill(padded["attention_mask"] == 0, IGNORED)

    def captions(self, rows: pa.RecordBatch) -> list[list[int]]:
        """Tokenize texts; cut to ``max_length`` before the end token, which models like CLIP read them from.

        :raises InvalidData: When a row has no text.
        """
        tokenizer, longest = self._tokenizer, self._hyperparams.max_length
        texts = values_of(rows, self._hyperparams.text_column)
        encoded: list[list[int]] = tokenizer(texts, truncation=True, max_length=longest)["input_ids"]
        end = tokenizer.eos_token_id
        return [ids if end is None or end in ids else [*ids[: longest - 1], end] for ids in encoded]

    def token_ids(self, rows: pa.RecordBatch) -> list[list[int]]:
        """Tokenize the text or the conversation of each row; cut to ``max_length`` unless blocks are made of them.

        :raises InvalidData: When a value is none that can be used.
        """
        hyperparams, tokenizer = self._hyperparams, self._tokenizer
        longest = None if hyperparams.packing is True else hyperparams.max_length
        if hyperparams.messages_column:
            conversations = enumerate(rows.column(hyperparams.messages_column).to_pylist())
            texts = [self._written_out(one, row) for row, one in conversations]
            encoded = tokenizer(texts, add_special_tokens=False)["input_ids"]  # the template has written them
            return [ids[:longest] for ids in encoded]
        texts = rows.column(hyperparams.text_column).to_pylist()
        if None in texts:
            raise InvalidData(f'row {texts.index(None)} of a batch has no text in "{hyperparams.text_column}"')
        ends = hyperparams.task == "causal-lm" and hyperparams.append_eos and tokenizer.eos_token_id is not None
        if longest is not None and not ends:
            return list(tokenizer(texts, truncation=True, max_length=longest)["input_ids"])
        encoded = tokenizer(texts)["input_ids"]
        end = [tokenizer.eos_token_id] if ends else []
        return [(ids if ids[-1:] == end else [*ids, *end])[:longest] for ids in encoded]

    def _written_out(self, conversation: Any, row: int) -> str:
        """A conversation as the chat template writes it."""
        return self._by_template(_messages(conversation, row), row=row)

    def _by_template(self, messages: Any, *, row: int, add_generation_prompt: bool = False) -> str:
        try:
            text: str = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=add_generation_prompt
            )
        except (TemplateError, TypeError) as error:  # the template's own refusal, or a value that it cannot use
            raise InvalidData(
                f"the chat template does not take the conversation in row {row} of a batch: {error}",
                hint=f"its roles are: {', '.join(str(one['role']) for one in messages)}; correct the data, or the "
                "template of the tokenizer",
            ) from error
        return text

    def padded(self, texts: Sequence[list[int]]) -> Mapping[str, Tensor]:
        """Return ``input_ids`` and ``attention_mask``, int64 of shape (texts, longest)."""
        padded = self._tokenizer.pad({"input_ids": texts}, padding=True, return_tensors="pt")
        return {name: padded[name] for name in ("input_ids", "attention_mask")}

    def masked(self, batch: Mapping[str, Tensor], rng: np.random.Generator) -> Mapping[str, Tensor]:
        """Mask tokens as BERT does (arXiv:1810.04805, section 3.1): 80 % of the predicted ones masked, 10 % random.

        :return: With ``labels``: the ids of the predicted tokens, and ``IGNORED``.
        """
        from transformers import DataCollatorForLanguageModeling

        collator = DataCollatorForLanguageModeling(
            self._tokenizer, mlm=True, mlm_probability=self._hyperparams.mask_probability
        )
        with torch.random.fork_rng(devices=[]):  # it draws from the global generator
            torch.manual_seed(int(rng.integers(2**63)))
            input_ids, labels = collator.torch_mask_tokens(batch["input_ids"].clone())
        return {**batch, "input_ids": input_ids, "labels": labels.masked_fill(batch["attention_mask"] == 0, IGNORED)}


def _messages(conversation: Any, row: int) -> Any:
    """A list of ``{"role": ..., "content": ...}``: structs of the data, or JSON."""
    try:
        messages = json.loads(conversation) if isinstance(conversation, str) else conversation
    except ValueError as error:
        raise InvalidData(f"the conversation in row {row} of a batch is not JSON: {error}") from error
    if not isinstance(messages, list) or not all(isinstance(one, dict) and "role" in one for one in messages):
        raise InvalidData(
            f'row {row} of a batch has no conversation: that is a list of {{"role": ..., "content": ...}}',
            hint="as structs, or as JSON text",
        )
    return messages
