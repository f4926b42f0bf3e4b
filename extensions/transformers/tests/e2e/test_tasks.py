"""Each task beside ``transformers.Trainer`` and the model's own loss, on rows as transformers' examples make them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from transformers_workshop import BERT, losses_with, texts

STEPS = 6
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
CLASSES = ["O", "PLACE", "PERSON"]


@attrs.frozen(kw_only=True)
class Case:
    """A task on a tiny model, and what the examples of transformers make of the same rows."""

    config: Mapping[str, Any]
    auto: str
    settings: Mapping[str, Any]
    #: From the folder and the columns to the rows of the Trainer.
    rows: Callable[[Path, Mapping[str, list[Any]]], list[dict[str, Any]]]
    #: What the configuration of the model has besides.
    extra: Mapping[str, Any] = {}
    metrics: tuple[str, ...] = ("accuracy",)


def tokenizer_in(folder: Path) -> Any:
    import transformers

    return transformers.AutoTokenizer.from_pretrained(folder / "tokenizer")


def labelled(column: str) -> Callable[[Path, Mapping[str, list[Any]]], list[dict[str, Any]]]:
    def rows(folder: Path, columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
        encoded = tokenizer_in(folder)(columns["text"])["input_ids"]
        return [{"input_ids": ids, "labels": one} for ids, one in zip(encoded, columns[column], strict=True)]

    return rows


def words(folder: Path, columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """The labels of the first tokens of words, as ``run_ner.py`` has them."""
    encoded = tokenizer_in(folder)(columns["tokens"], is_split_into_words=True)
    rows = []
    for at, labels in enumerate(columns["tags"]):
        places = encoded.word_ids(at)
        firsts = [one is not None and (k == 0 or places[k - 1] != one) for k, one in enumerate(places)]
        numbers = [CLASSES.index(labels[one]) if first else -100 for one, first in zip(places, firsts, strict=True)]
        rows.append({"input_ids": encoded["input_ids"][at], "labels": numbers})
    return rows


def questions(folder: Path, columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """One part of each row; the place of the answer by the tokens of what is before it."""
    tokenizer, rows = tokenizer_in(folder), []
    for question, context, answer in zip(*(columns[one] for one in ("question", "context", "answers")), strict=True):
        found = tokenizer(question, context)
        start = found.char_to_token(answer["answer_start"][0], sequence_index=1)
        end = found.char_to_token(answer["answer_start"][0] + len(answer["text"][0]) - 1, sequence_index=1)
        rows.append({**found, "start_positions": start, "end_positions": end})
    return rows


def padded(folder: Path, batch: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch as ``DataCollatorForTokenClassification`` and the default one make it."""
    import transformers

    tokenizer = tokenizer_in(folder)
    if isinstance(batch[0].get("labels"), list) and isinstance(batch[0]["labels"][0], int):
        return dict(transformers.DataCollatorForTokenClassification(tokenizer)(batch))
    tensors = dict(transformers.DataCollatorWithPadding(tokenizer)(batch)) if "input_ids" in batch[0] else {}
    return {**tensors, **{name: torch.stack([one[name] for one in batch]) for name in batch[0] if name not in tensors}}


CASES = {
    "tokens": Case(
        config={**BERT, **QUIET},
        auto="AutoModelForTokenClassification",
        settings={"task": "token-classification", "label_column": "tags", "classes": CLASSES},
        rows=words,
        extra={"num_labels": 3},
    ),
    "classes": Case(
        config={**BERT, **QUIET},
        auto="AutoModelForSequenceClassification",
        settings={"task": "sequence-classification", "label_column": "label", "classes": CLASSES},
        rows=labelled("label"),
        extra={"num_labels": 3},
    ),
    "regression": Case(
        config={**BERT, **QUIET},
        auto="AutoModelForSequenceClassification",
        settings={"task": "sequence-classification", "problem_type": "regression", "label_column": "score"},
        rows=labelled("score"),
        extra={"num_labels": 1},
        metrics=("rmse", "mae"),
    ),
    "numbers": Case(
        config={**BERT, **QUIET},
        auto="AutoModelForSequenceClassification",
        settings={
            "task": "sequence-classification",
            "problem_type": "regression",
            "label_column": "scores",
            "num_labels": 2,
        },
        rows=labelled("scores"),
        metrics=("rmse", "mae"),
    ),
    "several": Case(
        config={**BERT, **QUIET},
        auto="AutoModelForSequenceClassification",
        settings={
            "task": "sequence-classification",
            "problem_type": "multi_label_classification",
            "label_column": "several",
            "num_labels": 4,
        },
        rows=labelled("several"),
        extra={"num_labels": 4},
        metrics=("f1", "accuracy"),
    ),
    "answers": Case(
        config={**BERT, **QUIET},
        auto="AutoModelForQuestionAnswering",
        settings={"task": "question-answering", "max_length": 64, "stride": 8},
        rows=questions,
        metrics=("exact_match",),
    ),
}


@pytest.fixture(scope="module")
def columns(workshop: Any) -> Mapping[str, list[Any]]:
    """The rows that all tasks read, in ``tasks.parquet``."""
    rows = texts(4 * STEPS)
    split = [one.split() for one in rows]
    made: dict[str, list[Any]] = {
        "text": rows,
        "label": [len(one) % 3 for one in split],
        "score": [len(one) / 7 for one in split],
        "scores": [[len(one) / 7, at / 9] for at, one in enumerate(split)],
        "several": [[float(at % k == 0) for k in range(1, 5)] for at in range(len(rows))],
        "tokens": split,
        "tags": [[CLASSES[len(word) % 3] for word in one] for one in split],
        "question": [f"who {one[0]}" for one in split],
        "context": rows,
        "answers": [{"text": [one[1]], "answer_start": [len(one[0]) + 1]} for one in split],
    }
    pq.write_table(pa.table(made), workshop.path / "tasks.parquet")
    return made


@pytest.mark.parametrize("name", CASES)
def test_a_task_has_the_losses_of_transformers_trainer_and_from_pretrained_reads_its_model(
    workshop: Any, columns: Mapping[str, list[Any]], name: str
) -> None:
    import transformers

    torch.set_num_threads(1)
    case, auto = CASES[name], getattr(transformers, CASES[name].auto)
    folder = workshop.model(f"task-{name}", case.config, case.auto, **case.extra)
    data = {"parquet_paths": ["tasks.parquet"], "batch_size": 4}
    done = workshop.done(
        f"task-{name}",
        {"model": folder, **case.settings},
        dataset=data,
        validation=data,
        validate_every=STEPS,
        max_steps=STEPS,
    )
    problem = {"problem_type": one} if (one := case.settings.get("problem_type")) else {}
    model = auto.from_pretrained(workshop.path / folder, **problem)
    rows = case.rows(workshop.path, columns)
    theirs = losses_with(workshop.path, model, rows, lambda one: padded(workshop.path, one), max_steps=STEPS)
    assert list(done.metrics().values()) == theirs
    trained = auto.from_pretrained(done.trained(STEPS))
    assert all(torch.equal(one, other) for one, other in zip(trained.parameters(), model.parameters(), strict=True))
    assert done.validations()[-1].keys() >= {f"val/{one}" for one in case.metrics}
    if names := case.settings.get("classes"):
        assert trained.config.id2label == dict(enumerate(names))
