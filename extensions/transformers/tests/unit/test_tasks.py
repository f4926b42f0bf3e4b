"""From rows to the labels of each task, and the errors of rows and settings that do not fit it."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import AutoTokenizer, BertConfig
from transformers_workshop import WORDS

from hostcore_hookspecs import InvalidData, InvalidSettings
from hostcore_transformers.hyperparams import Hyperparams
from hostcore_transformers.loss import IGNORED
from hostcore_transformers.tasks import Batch, check_columns, load_task


def encoded(tokenizer: Path, columns: dict[str, Any], **settings: Any) -> Any:
    task = load_task(Hyperparams(tokenizer=tokenizer, **settings), {})
    rows = pa.RecordBatch.from_pydict(columns)
    check_columns(rows.schema, task, "train")
    return task.encode(rows, np.random.default_rng(5))


CLASSIFICATION = {"task": "sequence-classification"}
SEVERAL = {**CLASSIFICATION, "problem_type": "multi_label_classification", "num_labels": 3}
NUMBERS = {**CLASSIFICATION, "problem_type": "regression"}
TOKENS = {"task": "token-classification", "num_labels": 3}
ANSWERS = {"task": "question-answering", "max_length": 24, "stride": 4}
FOUND = {"text": ["turns"], "answer_start": [9]}


def asked(
    answers: Any, question: str = "who turns", context: str = "the mill turns when the wind blows"
) -> dict[str, Any]:
    return {"question": [question], "context": [context], "answers": [answers]}


LABELS = {
    "classes": ({"label": [2, 0]}, {**CLASSIFICATION, "num_labels": 3}, [2, 0]),
    "names": ({"label": ["no", "yes"]}, {**CLASSIFICATION, "classes": ["yes", "no"]}, [1, 0]),
    "several": ({"label": [[1, 0, 1], [0, 0, 0]]}, SEVERAL, [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]),
    "several names": (
        {"label": [["c", "a"], []]}, {**SEVERAL, "classes": ["a", "b", "c"]}, [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    ),
    "a number": ({"label": [0.5, -100]}, NUMBERS, [[0.5], [-100.0]]),
    "numbers": ({"label": [[1, 2], [3, 4]]}, {**NUMBERS, "num_labels": 2}, [[1.0, 2.0], [3.0, 4.0]]),
}  # fmt: skip


@pytest.mark.parametrize("case", LABELS)
def test_labels_are_read_as_the_job_names_them_and_all_count(tokenizer_folder: Path, case: str) -> None:
    columns, settings, expected = LABELS[case]
    found = encoded(tokenizer_folder, {"text": ["the mill", "the oak"], **columns}, **settings)["labels"]
    assert found.tolist() == expected
    task = load_task(Hyperparams(tokenizer=tokenizer_folder, **settings), {})
    assert task.predicted(found) == found.numel()


def test_several_labels_are_scored_by_f1_and_by_rows_that_are_right(tokenizer_folder: Path) -> None:
    task = load_task(Hyperparams(tokenizer=tokenizer_folder, **SEVERAL), {})
    labels = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    outputs = BertConfig()
    outputs.logits = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.2, -3.0]])
    sums = task.scores(outputs, Batch(inputs={}, labels=labels, predicted=6))
    found = task.metrics(0.5, 6, dict(zip(task.summed, sums.tolist(), strict=True)))
    assert found == {"f1": pytest.approx(2 * 3 / (4 + 3)), "accuracy": 0.5}


def test_words_are_predicted_by_their_first_tokens(tokenizer_folder: Path) -> None:
    columns = {"tokens": [["the", "mill", "turns"], ["oak"]], "label": [[0, 1, 2], [1]]}
    found = encoded(tokenizer_folder, columns, **TOKENS)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    places = tokenizer(columns["tokens"], is_split_into_words=True).word_ids(0)
    assert len(places) > 3
    assert found["labels"][0][found["labels"][0] != IGNORED].tolist() == [0, 1, 2]
    assert [places.index(one) for one in range(3)] == (found["labels"][0] != IGNORED).nonzero().flatten().tolist()
    assert (found["labels"][1] != IGNORED).sum() == 1
    short = encoded(tokenizer_folder, columns, max_length=3, **TOKENS)
    assert torch.equal(short["labels"][:, :3], found["labels"][:, :3])


def test_a_long_context_is_several_parts_and_those_without_the_answer_point_to_their_beginning(
    tokenizer_folder: Path,
) -> None:
    context = " ".join(WORDS)
    answer = {"text": ["under an old oak"], "answer_start": [context.index("under")]}
    found = encoded(tokenizer_folder, asked(answer, context=context), **ANSWERS)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    spans = [
        tokenizer.decode(ids[start : end + 1]).strip()
        for ids, (start, end) in zip(found["input_ids"], found["labels"].tolist(), strict=True)
        if end
    ]
    assert len(found["labels"]) > 1
    assert "under an old oak" in spans
    assert len(spans) < len(found["labels"])
    nothing = encoded(tokenizer_folder, asked({"text": [], "answer_start": []}), **ANSWERS)
    assert nothing["labels"].tolist() == [[0, 0]]


WRONG = {
    "a float for a class": ({"label": [0.5]}, CLASSIFICATION, '"label" of the data is of type double'),
    "a name without names": ({"label": ["yes"]}, CLASSIFICATION, 'strings that "classes" names'),
    "an unknown name": ({"label": ["maybe"]}, {**CLASSIFICATION, "classes": ["yes", "no"]}, "the classes are yes, no"),
    "no class": ({"label": pa.array([None], pa.int64())}, CLASSIFICATION, 'row 0 of a batch has nothing in "label"'),
    "a class for several": ({"label": [1]}, SEVERAL, "several labels are a list"),
    "too few for several": ({"label": [[1, 0]]}, SEVERAL, "has a list of 2, and each row needs 3"),
    "no label for several": ({"label": [[1, 0, 2]]}, SEVERAL, "labels are 1 or 0"),
    "text for a number": ({"label": ["1.5"]}, NUMBERS, "a regression needs numbers"),
    "a list for a number": ({"label": [[1.5]]}, NUMBERS, 'set "num_labels" to n'),
    "a number for several": ({"label": [1.5]}, {**NUMBERS, "num_labels": 2}, "it has to have lists of numbers"),
    "no words": ({"label": [[1]]}, TOKENS, 'the data has no column "tokens"'),
    "text for words": ({"tokens": ["the mill"], "label": [[1]]}, TOKENS, "words are lists of strings"),
    "a class for words": ({"tokens": [["the"]], "label": [1]}, TOKENS, "the labels of words are lists"),
    "fewer labels than words": (
        {"tokens": [["the", "mill"]], "label": [[1]]}, TOKENS, '2 words in "tokens" and labels for 1 in "label"'
    ),
    "a missing word": ({"tokens": [["the", None]], "label": [[1, 1]]}, TOKENS, 'row 0 of a batch lacks words'),
    "text for an answer": ({**asked(FOUND), "answers": ["turns"]}, ANSWERS, 'structs of "text" and "answer_start"'),
    "an answer elsewhere": (
        asked({"text": ["turns"], "answer_start": [3]}), ANSWERS, "the answer 'turns' of row 0 of a batch is not at 3"
    ),
    "a long question": (asked(FOUND, " ".join(WORDS)), ANSWERS, 'a text in "question" has'),
    "no context": ({**asked(FOUND), "context": pa.array([None], pa.string())}, ANSWERS, 'has nothing in "context"'),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_row_that_does_not_fit_is_one_error_with_its_column_and_a_way_out(tokenizer_folder: Path, case: str) -> None:
    columns, settings, message = WRONG[case]
    with pytest.raises(InvalidData) as refused:
        encoded(tokenizer_folder, {"text": ["the mill"], **columns}, **settings)
    assert message in str(refused.value)
    assert refused.value.hint


SETTINGS = {
    "one class": ({**CLASSIFICATION, "num_labels": 1}, "/num_labels", "one class is nothing to choose from"),
    "another count": ({"classes": ["a", "b"], "num_labels": 3}, "/num_labels", '"classes" has 2'),
    "a name twice": ({"classes": ["a", "a"]}, "/classes", "the same name"),
    "numbers of words": ({**TOKENS, "problem_type": "regression"}, "/problem_type", "it is for sequence-class"),
    "smoothed numbers": ({**NUMBERS, "label_smoothing": 0.1}, "/label_smoothing", "it is for classes"),
    "smoothed places": ({**ANSWERS, "label_smoothing": 0.1}, "/label_smoothing", "are not smoothed"),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_settings_that_do_not_fit_the_task_are_refused(tokenizer_folder: Path, case: str) -> None:
    settings, pointer, message = SETTINGS[case]
    with pytest.raises(InvalidSettings, match=message) as refused:
        load_task(Hyperparams(tokenizer=tokenizer_folder, **settings), {})
    assert refused.value.pointer == pointer
    assert refused.value.hint
