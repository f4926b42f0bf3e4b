"""From rows to token ids, labels and blocks; and what is said of rows that are no text."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import AutoTokenizer
from transformers_workshop import texts

from hostcore_hookspecs import InvalidData
from hostcore_transformers.hyperparams import Hyperparams
from hostcore_transformers.loss import IGNORED
from hostcore_transformers.packing import Packer, pack_texts
from hostcore_transformers.tasks import Processors, check_columns, kinds_of_tasks
from hostcore_transformers.templates import set_template
from hostcore_transformers.trainer import dealt


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(tokenizer_folder)


def task_of(settings: Any, tokenizer: Any = None) -> Any:
    hyperparams = Hyperparams(**settings)
    return kinds_of_tasks()[hyperparams.task](hyperparams, Processors(tokenizer=tokenizer))


def encoded(tokenizer: Any, columns: dict[str, Any], **settings: Any) -> Any:
    rows = pa.RecordBatch.from_pydict(columns)
    return task_of(settings, tokenizer).encode(rows, np.random.default_rng(5))


def test_the_end_of_a_text_is_learned_and_padding_is_not(tokenizer: Any) -> None:
    found = encoded(tokenizer, {"text": ["the mill", "the mill turns when the wind blows"]})
    first = found["attention_mask"][0].sum()
    assert found["input_ids"][0, first - 1] == tokenizer.eos_token_id
    assert found["labels"][0, :first].tolist() == found["input_ids"][0, :first].tolist()
    assert (found["labels"][0, first:] == IGNORED).all()
    assert (found["labels"][1] == found["input_ids"][1]).all()


def test_a_long_text_is_cut_and_no_end_is_added_where_none_is_wanted(tokenizer: Any) -> None:
    long = {"text": [" ".join(texts())]}
    assert encoded(tokenizer, long, max_length=7)["input_ids"].shape == (1, 7)
    short = encoded(tokenizer, {"text": ["the mill"]}, append_eos=False)["input_ids"]
    assert tokenizer.eos_token_id not in short


def test_masks_are_a_function_of_the_generator_and_labels_are_what_was_there(tokenizer: Any) -> None:
    rows = {"text": texts(16)}
    first, second = (encoded(tokenizer, rows, task="masked-lm", mask_probability=0.4) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    predicted = first["labels"] != IGNORED
    plain = encoded(tokenizer, rows, append_eos=False)["input_ids"]
    assert torch.equal(first["labels"][predicted], plain[predicted])
    assert (first["input_ids"] == tokenizer.mask_token_id).any()
    assert torch.equal(first["input_ids"][~predicted], plain[~predicted])
    assert not predicted[first["attention_mask"] == 0].any()


def test_a_class_that_there_is_not_is_refused(tokenizer: Any) -> None:
    with pytest.raises(InvalidData, match="has 3, and the classes are 0 to 2"):
        encoded(tokenizer, {"text": ["a", "b"], "label": [0, 3]}, task="sequence-classification", num_labels=3)


CONVERSATIONS = {
    "no JSON": ('[{"role": "user"', "row 1 of a batch is not JSON"),
    "no list": ('{"role": "user", "content": "a"}', "row 1 of a batch has no conversation"),
    "nothing": (None, "row 1 of a batch has no conversation"),
    "refused by the template": ('[{"role": "judge", "content": "a"}]', "row 1 of a batch: no judges here"),
    "a content that is no text": ('[{"role": "user", "content": null}]', "does not take the conversation in row 1"),
    "no content": ('[{"role": "user"}]', "does not take the conversation in row 1"),
}


@pytest.mark.parametrize("case", CONVERSATIONS)
def test_a_conversation_that_cannot_be_written_out_is_said_with_its_row(tokenizer: Any, case: str) -> None:
    tokenizer.chat_template = (
        "{% for one in messages %}{% if one['role'] == 'judge' %}{{ raise_exception('no judges here') }}{% endif %}"
        "{{ one['role'] + ': ' + one['content'] }}{% endfor %}"
    )
    wrong, message = CONVERSATIONS[case]
    column = ['[{"role": "user", "content": "a"}]', wrong]
    with pytest.raises(InvalidData, match=message):
        encoded(tokenizer, {"messages": column}, messages_column="messages")


SAID = [
    {"role": "user", "content": "the mill"},
    {"role": "assistant", "content": "turns when"},
    {"role": "user", "content": "the oak"},
    {"role": "assistant", "content": "rests by the river"},
]
_TURN = "{{ one['role'] + ': ' }}"
_SAID = "{{ one['content'] + '</s>' }}"
_PROMPT = "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
TEMPLATES = {
    "marked": "{% for one in messages %}" + _TURN + "{% if one['role'] == 'assistant' %}{% generation %}" + _SAID
    + "{% endgeneration %}{% else %}" + _SAID + "{% endif %}{% endfor %}" + _PROMPT,
    "by its beginnings": "{% for one in messages %}" + _TURN + _SAID + "{% endfor %}" + _PROMPT,
}  # fmt: skip


@pytest.mark.parametrize("template", TEMPLATES)
def test_answers_alone_are_learned_with_their_ends(tokenizer: Any, template: str) -> None:
    tokenizer.chat_template = TEMPLATES["marked"]
    options = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": True}
    theirs = tokenizer.apply_chat_template(SAID, **options)
    tokenizer.chat_template = TEMPLATES[template]
    rows = {"messages": [SAID, SAID[:2], SAID[:1]]}
    found = encoded(tokenizer, rows, messages_column="messages", learn_from="answers")
    whole = encoded(tokenizer, rows, messages_column="messages")
    assert torch.equal(found["input_ids"], whole["input_ids"])
    assert found["input_ids"][0].tolist() == theirs["input_ids"]
    assert (found["labels"][0] != IGNORED).long().tolist() == theirs["assistant_masks"]
    learned = [tokenizer.decode(row[row != IGNORED]).strip() for row in found["labels"]]
    assert learned == ["turns when</s> rests by the river</s>", "turns when</s>", ""]
    short = encoded(tokenizer, rows, messages_column="messages", learn_from="answers", max_length=20)["labels"]
    assert torch.equal(short, found["labels"][:, :20])


WRITTEN = {
    "chatml": "<|im_start|>user\nthe mill<|im_end|>\n<|im_start|>assistant\nturns when<|im_end|>\n",
    "llama3": "<s><|start_header_id|>user<|end_header_id|>\n\nthe mill<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nturns when<|eot_id|>",
    "mistral": "<s>[INST] the mill [/INST] turns when</s>",
    "gemma": "<s><start_of_turn>user\nthe mill<end_of_turn>\n<start_of_turn>model\nturns when<end_of_turn>\n",
    "zephyr": "<|user|>\nthe mill</s>\n<|assistant|>\nturns when</s>\n",
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_template_by_name_writes_a_conversation_and_marks_the_answers(tokenizer_folder: Path, name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder, bos_token="<s>")
    marks = set(re.findall(r"<[|\w]+>", WRITTEN[name]))
    tokenizer.add_tokens(sorted(marks - {"</s>", "<|user|>", "<|assistant|>"}), special_tokens=True)
    set_template(tokenizer, name)
    assert tokenizer.apply_chat_template(SAID[:2], tokenize=False) == WRITTEN[name]
    found = encoded(tokenizer, {"messages": [SAID]}, messages_column="messages", learn_from="answers")
    learned = tokenizer.decode(found["labels"][0][found["labels"][0] != IGNORED])
    end = WRITTEN[name].rstrip()[WRITTEN[name].index("turns when") + len("turns when") :]
    assert learned.replace(" ", "") == f"turns when{end}rests by the river{end}".replace(" ", "")


def test_a_template_that_writes_the_beginning_otherwise_when_more_follows_is_refused(tokenizer: Any) -> None:
    tokenizer.chat_template = "{{ messages | length }} messages" + TEMPLATES["by its beginnings"]
    with pytest.raises(InvalidData, match="message 1 of the conversation in row 0") as refused:
        encoded(tokenizer, {"messages": [SAID]}, messages_column="messages", learn_from="answers")
    assert "{% generation %}" in (refused.value.hint or "")


WRONG = {
    "numbers": (pa.int64(), {}, '"text" of the validation data is of type int64, and texts are strings'),
    "bytes": (pa.binary(), {}, "is of type binary"),
    "nothing at all": (pa.null(), {}, "is of type null"),
    "structs": (pa.struct({"role": pa.string()}), {"messages_column": "text"}, "conversations are lists of structs"),
    "text": (pa.string(), {"task": "sequence-classification", "label_column": "text"}, "classes are integers"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_column_of_another_type_is_refused_where_the_data_is_named(case: str) -> None:
    kind, settings, message = WRONG[case]
    with pytest.raises(InvalidData, match=message) as refused:
        check_columns(pa.schema({"text": kind}), task_of(settings), "validation")
    assert refused.value.pointer == "/validation"


def test_all_kinds_of_strings_are_texts_and_a_column_that_is_missing_is_said_with_those_that_there_are() -> None:
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        check_columns(pa.schema({"text": kind}), task_of({}), "train")
    with pytest.raises(InvalidData, match='the test data has no column "text"; it has: body, title'):
        check_columns(pa.schema({"body": pa.string(), "title": pa.string()}), task_of({}), "test")


def test_a_packer_loses_no_token_and_goes_on_with_the_remainder() -> None:
    texts_ = [[*range(at, at + 1 + at % 5)] for at in range(40)]
    packer, blocks = Packer(8), []
    for at in range(0, 40, 3):
        going_on = Packer(8)
        going_on.remainder = packer.remainder  # as a run that is resumed does
        packer = going_on
        blocks.append(packer.take(texts_[at : at + 3])["input_ids"])
    taken = torch.cat([torch.cat(blocks).flatten(), packer.remainder])
    assert taken.tolist() == [token for text in texts_ for token in text]
    assert len(packer.remainder) < 8
    packer = Packer(4)
    packer.remainder = torch.tensor([7])
    found = packer.take_all([[1, 2, 3], [4, 5, 6]])  # in an evaluation, none of the padding is predicted
    assert found["labels"].tolist() == [[1, 2, 3, 4], [5, 6, IGNORED, IGNORED]]
    assert found["input_ids"].tolist() == [[1, 2, 3, 4], [5, 6, 0, 0]]
    assert packer.remainder.tolist() == [7]


def test_whole_texts_are_laid_into_few_rows_and_none_predicts_the_next_ones_beginning() -> None:
    texts_ = [[5, 5], [6] * 6, [], [7, 7, 7, 7], [8] * 3]
    found = pack_texts(texts_, texts_, 8, 0)
    assert found["input_ids"].tolist() == [[6, 6, 6, 6, 6, 6, 5, 5], [7, 7, 7, 7, 8, 8, 8, 0]]
    assert found["position_ids"].tolist() == [[0, 1, 2, 3, 4, 5, 0, 1], [0, 1, 2, 3, 0, 1, 2, 0]]
    first = found["position_ids"] == 0
    assert (found["labels"][first] == IGNORED).all()
    assert torch.equal(found["labels"][~first], found["input_ids"][~first])
    assert pack_texts([[]], [[]], 8, 0)["labels"].tolist() == [[IGNORED, IGNORED]]


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [(2, [[1, 2], [3]]), (1, [[1, 2, 3]]), (3, [[1, 2], [3], []])],
)
def test_remainders_are_dealt_to_any_number_of_ranks(
    monkeypatch: pytest.MonkeyPatch, ranks: int, expected: list[list[int]]
) -> None:
    remainders = [torch.tensor([1, 2]), torch.tensor([3])]
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: ranks)
    for rank in range(ranks):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        assert dealt(remainders).tolist() == expected[rank]
