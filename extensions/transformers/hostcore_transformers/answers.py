"""The tokens of a conversation that an assistant writes, so that they alone are learned from."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from hostcore_hookspecs import InvalidData
from hostcore_transformers.loss import IGNORED


def answer_labels(
    tokenizer: Any, messages: Sequence[Any], written_out: Callable[..., str], row: int
) -> tuple[list[int], list[int]]:
    """Token ids of a conversation, and what is to be predicted: :data:`IGNORED` but for the assistant's tokens.

    :param tokenizer: A fast one, with a chat template.
    :param written_out: The template's text of some messages; takes ``add_generation_prompt``.
    :raises InvalidData: When the template writes the beginning of a conversation otherwise if more follows.
    """
    if _marks_answers(tokenizer):
        found = tokenizer.apply_chat_template(
            messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        return found["input_ids"], _labels(found["input_ids"], found["assistant_masks"])
    text = written_out(messages)
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids = encoded["input_ids"]
    spans = [_span(messages, at, text, written_out, row) for at, one in enumerate(messages) if _is_answer(one)]
    places = encoded["offset_mapping"]
    # As transformers' own mask: a token that begins before an answer, with the space between, belongs to it.
    return ids, _labels(ids, [any(begin < end and start < stop for start, end in spans) for begin, stop in places])


def _marks_answers(tokenizer: Any) -> bool:
    return re.search(r"\{%-?\s*generation\s*-?%\}", str(tokenizer.chat_template)) is not None


def _is_answer(message: Any) -> bool:
    return bool(message["role"] == "assistant")


def _labels(ids: Sequence[int], learned: Sequence[Any]) -> list[int]:
    return [one if is_learned else IGNORED for one, is_learned in zip(ids, learned, strict=True)]


def _span(messages: Sequence[Any], at: int, text: str, written_out: Callable[..., str], row: int) -> tuple[int, int]:
    """The beginning and the end of an answer in the text."""
    before = written_out(messages[:at], add_generation_prompt=True) if at else ""
    until = written_out(messages[: at + 1])
    if not (until.startswith(before) and text.startswith(until)):
        raise InvalidData(
            f"the answer that is message {at} of the conversation in row {row} of a batch cannot be found: the chat "
            "template writes what is before it otherwise when it goes on",
            hint="put {% generation %} and {% endgeneration %} around answers in the template of the tokenizer, or "
            'set "learn_from" to "all"',
        )
    return len(before), len(until)
