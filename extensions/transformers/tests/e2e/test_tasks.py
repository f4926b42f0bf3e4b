"""Each task beside ``transformers.Trainer`` and the model's own loss, on rows as transformers' examples make them."""

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from transformers_media import png, save_processors
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


def pictures(folder: Path, columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    import transformers

    processor = transformers.AutoImageProcessor.from_pretrained(folder / "images", backend="pil")
    images = [PIL.Image.open(io.BytesIO(one["bytes"])) for one in columns["image"]]
    pixels = [processor(one, return_tensors="pt")["pixel_values"][0] for one in images]
    return [{"pixel_values": one, "labels": label} for one, label in zip(pixels, columns["label"], strict=True)]


def captions(folder: Path, columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    tokenizer = tokenizer_in(folder)
    ids = [[*one, tokenizer.eos_token_id] for one in tokenizer(columns["text"])["input_ids"]]
    pixels = [one["pixel_values"] for one in pictures(folder, columns)]
    return [
        {"input_ids": one, "pixel_values": pixel, "return_loss": True} for one, pixel in zip(ids, pixels, strict=True)
    ]


def sounds(folder: Path, columns: Mapping[str, list[Any]], labels: list[Any]) -> list[dict[str, Any]]:
    import transformers

    extractor = transformers.AutoFeatureExtractor.from_pretrained(folder / "audio")
    rate = extractor.sampling_rate
    found = [extractor(one, sampling_rate=rate)["input_values"][0] for one in columns["audio"]]
    return [{"input_values": one, "labels": label} for one, label in zip(found, labels, strict=True)]


def spoken(folder: Path, columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    import transformers

    characters = transformers.AutoTokenizer.from_pretrained(folder / "characters")
    return sounds(folder, columns, characters(columns["said"])["input_ids"])


def heard(folder: Path, columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    import transformers

    extractor, tokenizer = transformers.AutoFeatureExtractor.from_pretrained(folder / "mel"), tokenizer_in(folder)
    options = {"sampling_rate": extractor.sampling_rate, "return_tensors": "pt"}
    features = [extractor(one, **options)["input_features"][0] for one in columns["audio"]]
    labels = [[*one, tokenizer.eos_token_id] for one in tokenizer(columns["said"])["input_ids"]]
    return [{"input_features": one, "labels": label} for one, label in zip(features, labels, strict=True)]


def collated(folder: Path, batch: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch as the collators of the examples make it: labels of tokens are padded with -100."""
    import transformers

    made: dict[str, Any] = {}
    columns = {name: [one[name] for one in batch] for name in batch[0]}
    if tokens := {name: columns.pop(name) for name in ("input_ids", "token_type_ids") if name in columns}:
        made |= tokenizer_in(folder).pad(tokens, return_tensors="pt")
        columns.pop("attention_mask", None)
    if "input_values" in columns:
        extractor = transformers.AutoFeatureExtractor.from_pretrained(folder / "audio")
        made |= extractor.pad({"input_values": columns.pop("input_values")}, return_tensors="pt", padding=True)
    for name, values in columns.items():
        if name == "return_loss":
            made[name] = True
        elif isinstance(values[0], torch.Tensor):
            made[name] = torch.stack(values)
        elif isinstance(values[0], list) and isinstance(values[0][0], int):
            longest = max(len(one) for one in values)
            made[name] = torch.tensor([[*one, *[-100] * (longest - len(one))] for one in values])
        else:
            made[name] = torch.tensor(values)
    return made


VIT = {
    "model_type": "vit", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "image_size": 16, "patch_size": 8, **QUIET,
}  # fmt: skip
CONVNEXT = {"model_type": "convnext", "hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "image_size": 16}
WAV2VEC2 = {
    "model_type": "wav2vec2", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "conv_dim": [16, 16], "conv_kernel": [10, 3], "conv_stride": [5, 2],
    "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2,
    "feat_proj_dropout": 0.0, "final_dropout": 0.0, "hidden_dropout": 0.0, "attention_dropout": 0.0,
    "activation_dropout": 0.0, "layerdrop": 0.0, "apply_spec_augment": False, "classifier_proj_size": 16,
    "vocab_size": 30, "ctc_loss_reduction": "mean", "pad_token_id": 0,
}  # fmt: skip
WHISPER = {
    "model_type": "whisper", "vocab_size": 320, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    "max_source_positions": 50, "max_target_positions": 64, "dropout": 0.0, "decoder_start_token_id": 2,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1,
}  # fmt: skip
_SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
CLIP = {
    "model_type": "clip", "projection_dim": 16,
    "text_config": {**_SMALL, "vocab_size": 320, "max_position_embeddings": 64, "eos_token_id": 1, "pad_token_id": 0},
    "vision_config": {**_SMALL, "image_size": 16, "patch_size": 8},
}  # fmt: skip
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
    "vit": Case(
        config=VIT,
        auto="AutoModelForImageClassification",
        settings={"task": "image-classification", "processor": "images", "classes": CLASSES},
        rows=pictures,
        extra={"num_labels": 3},
    ),
    "convnext": Case(
        config=CONVNEXT,
        auto="AutoModelForImageClassification",
        settings={"task": "image-classification", "processor": "images", "image_column": "pixels", "num_labels": 3},
        rows=pictures,
        extra={"num_labels": 3},
    ),
    "clip": Case(
        config=CLIP,
        auto="AutoModelForZeroShotImageClassification",
        settings={"task": "contrastive", "processor": "images"},
        rows=captions,
    ),
    "audio": Case(
        config=WAV2VEC2,
        auto="AutoModelForAudioClassification",
        settings={"task": "audio-classification", "processor": "audio", "classes": CLASSES},
        rows=lambda folder, columns: sounds(folder, columns, columns["label"]),
        extra={"num_labels": 3},
    ),
    "ctc": Case(
        config=WAV2VEC2,
        auto="AutoModelForCTC",
        settings={"task": "ctc", "processor": "audio", "tokenizer": "characters", "text_column": "said"},
        rows=spoken,
        metrics=("loss",),
    ),
    "whisper": Case(
        config=WHISPER,
        auto="AutoModelForSpeechSeq2Seq",
        settings={"task": "speech-to-text", "processor": "mel", "text_column": "said"},
        rows=heard,
        metrics=("perplexity", "token_accuracy"),
    ),
}


@pytest.fixture(scope="module")
def columns(workshop: Any) -> Mapping[str, list[Any]]:
    """The rows that all tasks read, in ``tasks.parquet``."""
    rows = texts(4 * STEPS)
    split = [one.split() for one in rows]
    drawn = np.random.default_rng(1)
    pixels = [drawn.integers(256, size=(10, 12, 3), dtype=np.uint8) for _ in rows]
    save_processors(workshop.path)
    made: dict[str, list[Any]] = {
        "text": rows,
        "label": [len(one) % 3 for one in split],
        "score": [len(one) / 7 for one in split],
        "scores": [[len(one) / 7, at / 9] for at, one in enumerate(split)],
        "several": [[float(at % k == 0) for k in range(1, 5)] for at in range(len(rows))],
        "image": [{"bytes": png(one), "path": None} for one in pixels],
        "pixels": [one.tolist() for one in pixels],
        "audio": [drawn.standard_normal(800 + 100 * (at % 5)).tolist() for at in range(len(rows))],
        "said": [" ".join(one[:2]) for one in split],
        "tokens": split,
        "tags": [[CLASSES[len(word) % 3] for word in one] for one in split],
        "question": [f"who {one[0]}" for one in split],
        "context": rows,
        "answers": [{"text": [one[1]], "answer_start": [len(one[0]) + 1]} for one in split],
    }
    pq.write_table(pa.table(made), workshop.path / "tasks.parquet")
    return made


def test_two_classes_are_read_again_where_the_architecture_has_three_by_default(
    workshop: Any, columns: Mapping[str, list[Any]]
) -> None:
    import transformers

    bart = {"model_type": "bart", "vocab_size": 320, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1,
            "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16,
            "max_position_embeddings": 64}  # fmt: skip
    rows = [{"text": f"{one} </s>", "label": len(one) % 2} for one in columns["text"]]
    pq.write_table(pa.Table.from_pylist(rows), workshop.path / "two.parquet")
    data = {"parquet_paths": ["two.parquet"], "batch_size": 4}
    settings = {"config": bart, "task": "sequence-classification"}
    done = workshop.done("two-classes-of-bart", settings, dataset=data, max_steps=2)
    model, found = transformers.AutoModelForSequenceClassification.from_pretrained(
        done.trained(2), output_loading_info=True
    )
    assert model.config.num_labels == 2
    assert not found["missing_keys"]


def test_a_new_head_is_begun_anew_and_trained_with_the_adapters(
    workshop: Any, columns: Mapping[str, list[Any]]
) -> None:
    folder = workshop.model("five-classes", VIT, "AutoModelForImageClassification", num_labels=5)
    settings = {"model": folder, "new_head": True, "lora": {"rank": 2, "target_modules": ["q_proj"]}}
    data = {"parquet_paths": ["tasks.parquet"], "batch_size": 4}
    done = workshop.done("new-head", {**CASES["vit"].settings, **settings}, dataset=data, max_steps=2)
    stored = load_file(done.trained(2) / "adapter_model.safetensors")
    assert stored["base_model.model.classifier.weight"].shape == (len(CLASSES), 32)


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
    theirs = losses_with(workshop.path, model, rows, lambda one: collated(workshop.path, one), max_steps=STEPS)
    assert list(done.metrics().values()) == theirs
    trained = auto.from_pretrained(done.trained(STEPS))
    assert all(torch.equal(one, other) for one, other in zip(trained.parameters(), model.parameters(), strict=True))
    assert json.loads((done.trained(STEPS) / "config.json").read_text())["architectures"] == [type(model).__name__]
    assert done.validations()[-1].keys() >= {f"val/{one}" for one in case.metrics}
    if "processor" in case.settings:
        kind = transformers.AutoImageProcessor if "pixel_values" in rows[0] else transformers.AutoFeatureExtractor
        stored, given = (
            kind.from_pretrained(one) for one in (done.trained(STEPS), workshop.path / case.settings["processor"])
        )
        assert stored.to_dict() == given.to_dict()
    if names := case.settings.get("classes"):
        assert trained.config.id2label == dict(enumerate(names))
