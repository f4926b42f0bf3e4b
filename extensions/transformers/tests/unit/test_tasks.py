"""From rows to the labels of each task, and the errors of rows and settings that do not fit it."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import AutoTokenizer, BertConfig, ViTImageProcessorPil
from transformers_media import png, save_processors, wav
from transformers_steps import configured
from transformers_workshop import WORDS

from hostcore_hookspecs import InvalidData, InvalidSettings
from hostcore_transformers.audio import waveforms_of
from hostcore_transformers.hyperparams import Hyperparams
from hostcore_transformers.loss import IGNORED
from hostcore_transformers.tasks import Batch, check_columns, load_task


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("media")
    save_processors(folder)
    return folder


def encoded(folder: Path, columns: dict[str, Any], **settings: Any) -> Any:
    task = load_task(Hyperparams(**{"tokenizer": folder, **settings}), {})
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


PIXELS = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
IMAGES = {"task": "image-classification", "processor": "images"}
AUDIO = {"task": "audio-classification", "processor": "audio"}
CTC = {"task": "ctc", "processor": "audio", "tokenizer": "characters"}
QUIET_WAV = wav(b"\0\1" * 400)


def made(media: Path, tokenizer: Path, columns: dict[str, Any], settings: dict[str, Any]) -> Any:
    """Encode rows with processors of the folder."""
    named = {name: media / settings[name] for name in ("processor", "tokenizer") if name in settings}
    return encoded(tokenizer, columns, **{**settings, **named})


def test_files_structs_and_pixels_are_the_same_image(media: Path, tokenizer_folder: Path) -> None:
    kinds: list[Any] = [png(PIXELS), {"bytes": png(PIXELS), "path": "a.png"}, PIXELS.tolist()]
    found = [made(media, tokenizer_folder, {"image": [one], "label": [0]}, IMAGES)["pixel_values"] for one in kinds]
    assert found[0].shape == (1, 3, 16, 16)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    grey = made(media, tokenizer_folder, {"image": [PIXELS[..., 0].tolist()], "label": [0]}, IMAGES)["pixel_values"]
    assert grey.shape == found[0].shape


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_wav_files_of_all_widths_are_read_as_the_mean_of_their_channels(width: int) -> None:
    levels = np.array([[-0.5, 0.0], [0.25, 0.75], [-1.0, -1.0]])
    numbers = np.round(levels * 2 ** (8 * width - 1)).astype(np.int64) + 128 * (width == 1)
    content = b"".join(int(one).to_bytes(width, "little", signed=width > 1) for one in numbers.flatten())
    rows = pa.RecordBatch.from_pydict({"audio": [wav(content, width=width, channels=2)]})
    (found,) = waveforms_of(rows, "audio", 16000)
    assert found.tolist() == [-0.25, 0.5, -1.0]


def test_waveforms_of_structs_are_read_and_long_ones_are_cut_for_classes(media: Path, tokenizer_folder: Path) -> None:
    columns = {"audio": [{"array": [0.5, -0.5] * 4000, "sampling_rate": 16000}], "label": [1]}
    found = made(media, tokenizer_folder, columns, {**AUDIO, "max_seconds": 0.25})
    assert found["input_values"].shape == (1, 4000)


WRONG_MEDIA = {
    "no image": ({"image": [b"GIF"], "label": [0]}, IMAGES, 'row 0 of a batch has no image in "image"'),
    "no bytes": (
        {"image": [png(PIXELS), None], "label": [0, 0]}, IMAGES, 'row 1 of a batch has nothing in "image"'
    ),
    "a path alone": (
        {"image": pa.array([{"bytes": None, "path": "a.png"}], pa.struct({"bytes": pa.binary(), "path": pa.string()})),
         "label": [0]}, IMAGES, "has no image",
    ),
    "text for an image": ({"image": ["a.png"], "label": [0]}, IMAGES, "images are files as bytes"),
    "pixels from 0 to 1": ({"image": [[[0.5]]], "label": [0]}, IMAGES, "rows of pixels from 0 to 255"),
    "large pixels": ({"image": [[[300, 2], [3, 4]]], "label": [0]}, IMAGES, "has no image"),
    "no WAV": ({"audio": [b"fLaC"], "label": [0]}, AUDIO, 'row 0 of a batch has no audio in "audio"'),
    "another rate": ({"audio": [wav(b"\0\1", rate=8000)], "label": [0]}, AUDIO, "8,000 samples in a second"),
    "no sound": ({"audio": [wav(b"")], "label": [0]}, AUDIO, "audio of no length"),
    "integers for audio": ({"audio": [[1, 2]], "label": [0]}, AUDIO, "audio is a list of floats"),
    "long speech": (
        {"audio": [[0.5] * 8000], "text": ["the mill"]}, {**CTC, "max_seconds": 0.1}, '0.5 seconds in "audio"'
    ),
    "other characters": ({"audio": [QUIET_WAV], "text": ["THE MILL"]}, CTC, "knows none of the characters of"),
    "no text": (
        {"audio": [QUIET_WAV], "text": pa.array([None], pa.string())}, CTC, 'row 0 of a batch has nothing in "text"'
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_MEDIA)
def test_images_and_audio_that_cannot_be_read_are_one_error_with_a_way_out(
    media: Path, tokenizer_folder: Path, case: str
) -> None:
    columns, settings, message = WRONG_MEDIA[case]
    with pytest.raises(InvalidData) as refused:
        made(media, tokenizer_folder, columns, settings)
    assert message in str(refused.value)
    assert refused.value.hint


def test_images_that_stay_of_several_sizes_are_refused(media: Path, tokenizer_folder: Path, tmp_path: Path) -> None:
    ViTImageProcessorPil(do_resize=False).save_pretrained(tmp_path)
    columns = {"image": [png(PIXELS), png(PIXELS[:2])], "label": [0, 1]}
    with pytest.raises(InvalidData, match="6x2, 6x4"):
        encoded(tokenizer_folder, columns, task="image-classification", processor=tmp_path)


WHISPER = {
    "model_type": "whisper", "vocab_size": 320, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8,
    "max_source_positions": 50, "max_target_positions": 64, "decoder_start_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
SPEECH = {"task": "speech-to-text", "processor": "mel", "max_length": 64}
CONTRASTIVE = {"task": "contrastive", "processor": "images"}
UNFIT = {
    "no processor": ({"task": "image-classification", "config": {"model_type": "vit"}}, "/processor", "needs a proc"),
    "a processor of images for audio": ({**AUDIO, "processor": "images"}, "/processor", "cannot be loaded by AutoFeat"),
    "a tokenizer for a processor": ({**IMAGES, "processor": "characters"}, "/processor", "no preprocessor_config.json"),
    "other bins": ({**SPEECH, "config": {**WHISPER, "num_mel_bins": 128}}, "/processor", '"feature_size" of the proc'),
    "other frames": ({**SPEECH, "config": {**WHISPER, "max_source_positions": 9}}, "/processor", "takes 18"),
    "long targets": ({**SPEECH, "config": WHISPER, "max_length": 65}, "/max_length", "takes 64 tokens"),
    "smoothed pairs": ({**CONTRASTIVE, "label_smoothing": 0.1}, "/label_smoothing", "pairs are not smoothed"),
    "smoothed paths": ({**CTC, "label_smoothing": 0.1}, "/label_smoothing", "are not smoothed"),
    "another loss": (
        {**CONTRASTIVE, "max_length": 64, "config": {"model_type": "siglip", "text_config": {"num_hidden_layers": 0},
         "vision_config": {"num_hidden_layers": 0}}}, "/config", "the loss of siglip is not that of CLIP",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNFIT)
def test_a_model_or_a_processor_that_does_not_fit_the_task_is_refused(
    media: Path, tokenizer_folder: Path, case: str
) -> None:
    settings, pointer, message = UNFIT[case]
    named = {name: media / settings[name] for name in ("processor", "tokenizer") if name in settings}
    with pytest.raises(InvalidSettings) as refused:
        configured(tokenizer_folder, {**settings, **named})
    assert message in str(refused.value)
    assert refused.value.pointer == pointer
    assert refused.value.hint


def test_a_long_text_of_an_image_keeps_its_end(media: Path, tokenizer_folder: Path) -> None:
    columns = {"image": [png(PIXELS)] * 2, "text": [" ".join(WORDS), "oak"]}
    found = made(media, tokenizer_folder, columns, {**CONTRASTIVE, "max_length": 8})
    end = AutoTokenizer.from_pretrained(tokenizer_folder).eos_token_id
    assert found["input_ids"].shape == (2, 8)
    assert (found["input_ids"] == end).sum(1).tolist() == [1, 1]
    assert found["input_ids"][0, -1] == end


def test_images_of_another_size_than_the_model_takes_are_one_error(media: Path, tokenizer_folder: Path) -> None:
    config = {"model_type": "vit", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
              "num_attention_heads": 2, "image_size": 32}  # fmt: skip
    settings = {**IMAGES, "processor": media / "images", "config": config}
    trainer, state, ctx = configured(tokenizer_folder, settings)
    rows = pa.RecordBatch.from_pydict({"image": [png(PIXELS)], "label": [0]})
    batch = trainer.prepare_batch(trainer.transform_batch(rows, np.random.default_rng(0), ctx), state, ctx)
    with pytest.raises(InvalidData, match="does not take images of 16x16"):
        trainer.train_step(batch, state, ctx)


def test_audio_that_is_too_short_for_its_text_is_one_error(media: Path, tokenizer_folder: Path) -> None:
    config = {
        "model_type": "wav2vec2", "hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 2, "conv_dim": [16], "conv_kernel": [10], "conv_stride": [5],
        "num_feat_extract_layers": 1, "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2,
    }  # fmt: skip
    settings = {**CTC, "processor": media / "audio", "tokenizer": media / "characters", "config": config}
    trainer, state, ctx = configured(tokenizer_folder, settings)
    values = {"input_values": torch.zeros(1, 25), "labels": torch.tensor([[7, 8, 9, IGNORED]])}  # of 4 frames
    assert trainer.prepare_batch(values, state, ctx).predicted == 1
    with pytest.raises(InvalidData, match="row 0 of a batch has 4 frames, and its text needs 5"):
        trainer.prepare_batch({**values, "labels": torch.tensor([[7, 7, 8, 9]])}, state, ctx)


def test_what_a_tokenizer_writes_before_a_target_is_not_learned_twice(media: Path, tokenizer_folder: Path) -> None:
    settings = {**SPEECH, "processor": media / "mel", "config": WHISPER}
    trainer, state, ctx = configured(tokenizer_folder, settings)
    labels = torch.tensor([[2, 7, 1], [2, 8, IGNORED]])
    batch = trainer.prepare_batch({"input_features": torch.zeros(2, 80, 100), "labels": labels}, state, ctx)
    assert batch.labels.tolist() == [[7, 1], [8, IGNORED]]
    assert batch.inputs["decoder_input_ids"].tolist() == [[2, 7], [2, 8]]
