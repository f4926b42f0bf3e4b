"""Tasks of which the rows have audio."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from hostcore_hookspecs import InvalidData, InvalidSettings
from hostcore_transformers.audio import AUDIO, waveforms_of
from hostcore_transformers.columns import TEXT, Column, values_of
from hostcore_transformers.loss import IGNORED
from hostcore_transformers.tasks.labels import Classification
from hostcore_transformers.tasks.task import Batch, Task
from hostcore_transformers.tasks.text import SequenceToSequence
from hostcore_transformers.text import Texts


class ReadsAudio(Task):
    """A task of which the model takes ``input_values`` or ``input_features``."""

    reads: ClassVar[tuple[str, ...]] = ("audio",)
    #: Whether what is longer than ``max_seconds`` is cut.
    cuts: ClassVar[bool] = False

    def columns(self) -> Mapping[str, Column]:
        return {"audio_column": AUDIO, **super().columns()}

    def check_model(self, model: Any, pointer: str) -> None:
        extractor, config = self.processors.audio, model.config
        if config.model_type != "whisper":
            return
        for name, needed in (("feature_size", config.num_mel_bins), ("nb_max_frames", 2 * config.max_source_positions)):
            if (own := getattr(extractor, name, None)) != needed:
                raise InvalidSettings(
                    "/processor" if self.hyperparams.processor else pointer,
                    f'the "{name}" of the processor is {own}, and the model takes {needed}',
                    hint="use the model's own processor",
                )

    def sounds(self, rows: pa.RecordBatch) -> Mapping[str, Tensor]:
        """Return what the model takes of the audio: float32 of shape (rows, samples) or (rows, features, frames).

        :raises InvalidData: When a value is no audio, or too long.
        """
        extractor, column = self.processors.audio, self.hyperparams.audio_column
        rate = extractor.sampling_rate
        waveforms = waveforms_of(rows, column, rate)
        seconds = min(self.hyperparams.max_seconds, getattr(extractor, "chunk_length", None) or float("inf"))
        longest = int(seconds * rate)
        if self.cuts:
            waveforms = [one[:longest] for one in waveforms]
        for row, one in enumerate(waveforms):
            if len(one) > longest:
                raise InvalidData(
                    f'row {row} of a batch has {len(one) / rate:.1f} seconds in "{column}", and {seconds:g} are taken',
                    hint='raise "max_seconds" as far as the model goes, or cut the data, with its text',
                )
        # Whisper takes features of one length alone, and makes them by itself.
        padding = {} if hasattr(extractor, "nb_max_frames") else {"padding": True}
        found = extractor(waveforms, sampling_rate=rate, return_tensors="pt", **padding)
        return dict(found)


class AudioClassification(ReadsAudio, Classification):
    """Classify audio."""

    name = "audio-classification"
    auto = "AutoModelForAudioClassification"
    head = ("projector", "classifier")
    cuts = True

    def encode(self, rows: pa.RecordBatch, rng: np.random.Generator) -> Mapping[str, Tensor]:
        return {**self.sounds(rows), "labels": self.labels(rows)}


class Ctc(ReadsAudio):
    """Transcribe speech with a token or nothing for each frame (Graves et al., ICML 2006)."""

    name = "ctc"
    auto = "AutoModelForCTC"
    reads = ("tokenizer", "audio")
    head = ("lm_head",)
    unsmoothed = "paths through frames are not smoothed"

    def columns(self) -> Mapping[str, Column]:
        return {"audio_column": AUDIO, "text_column": TEXT}

    def check_model(self, model: Any, pointer: str) -> None:
        super().check_model(model, pointer)
        if not hasattr(model, "_get_feat_extract_output_lengths"):
            message = f"{type(model).__name__} does not count the frames of its audio"
            raise InvalidSettings(pointer, message, hint="use one that does, such as Wav2Vec2, HuBERT or WavLM")

    def encode(self, rows: pa.RecordBatch, rng: np.random.Generator) -> Mapping[str, Tensor]:
        tokenizer, column = self.processors.tokenizer, self.hyperparams.text_column
        texts = values_of(rows, column)
        ids = tokenizer(texts)["input_ids"]
        unknown = {tokenizer.unk_token_id, getattr(tokenizer, "word_delimiter_token_id", None)}
        for text, one in zip(texts, ids, strict=True):
            if tokenizer.unk_token_id in one and unknown.issuperset(one):
                raise InvalidData(
                    f'the tokenizer knows none of the characters of {text!r} in "{column}"',
                    hint="write the texts as its vocabulary has them, for instance in capitals",
                )
        padded = Texts(tokenizer, self.hyperparams).padded(ids)
        labels = padded["input_ids"].masked_fill(padded["attention_mask"] == 0, IGNORED)
        return {**self.sounds(rows), "labels": labels}

    def inputs(self, model: Any, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        labels = tensors["labels"]
        there = labels >= 0
        repeated = (labels[:, 1:] == labels[:, :-1]) & there[:, 1:]  # between two that are alike, a frame has nothing
        needed = there.sum(-1) + repeated.sum(-1)
        frames = _frames(model, {name: one for name, one in tensors.items() if name != "labels"})
        short = (frames < needed.clamp(min=1)) & (not model.config.ctc_zero_infinity or frames < 1)
        if bool(short.any()):
            row = int(short.nonzero()[0])
            raise InvalidData(
                f"the audio of row {row} of a batch has {max(int(frames[row]), 0)} frames, and its text needs "
                f"{int(needed[row])}",
                hint='leave such rows out, or set "ctc_zero_infinity" in the configuration of the model',
            )
        return tensors

    def predicted(self, labels: Tensor) -> int:
        return len(labels)

    def loss(self, outputs: Any, batch: Batch, model: Any, *, smoothing: float = 0.0) -> Tensor:
        """Sum over the rows, each divided by its tokens: ``ctc_loss_reduction: mean`` of transformers."""
        labels = batch.labels
        there = labels >= 0
        lengths = there.sum(-1)
        frames = _frames(model, batch.inputs)
        with torch.backends.cudnn.flags(enabled=False):
            losses = nn.functional.ctc_loss(
                nn.functional.log_softmax(outputs.logits, dim=-1, dtype=torch.float32).transpose(0, 1),
                labels.masked_fill(~there, 0),
                frames,
                lengths,
                blank=model.config.pad_token_id,
                reduction="none",
                zero_infinity=model.config.ctc_zero_infinity,
            )
        return (losses / lengths.clamp(min=1)).sum()

    def metrics(self, loss: float, predicted: int, sums: Mapping[str, float]) -> Mapping[str, float]:
        return {}


class SpeechToText(ReadsAudio, SequenceToSequence):
    """Transcribe speech, token after token."""

    name = "speech-to-text"
    auto = "AutoModelForSpeechSeq2Seq"
    adapters = None
    reads = ("tokenizer", "audio")
    generates = False

    def columns(self) -> Mapping[str, Column]:
        return {"audio_column": AUDIO, "text_column": TEXT}

    def encode(self, rows: pa.RecordBatch, rng: np.random.Generator) -> Mapping[str, Tensor]:
        texts = Texts(self.processors.tokenizer, self.hyperparams)
        return {**self.sounds(rows), "labels": texts.learned(rows, self.hyperparams.text_column)}

    def inputs(self, model: Any, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        labels = tensors["labels"]
        start = getattr(model.config, "decoder_start_token_id", None)
        if start is not None and bool((labels[:, 0] == start).all()):
            labels = labels[:, 1:]  # the tokenizer has written what a target begins with
        return super().inputs(model, {**tensors, "labels": labels})


def _frames(model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the frames that a model makes of each row, int64 of shape (rows,)."""
    mask = inputs.get("attention_mask")
    if mask is None:
        mask = torch.ones_like(next(iter(inputs.values())), dtype=torch.int64)
        mask = mask if mask.dim() == 2 else mask[..., 0]
    frames: Tensor = model._get_feat_extract_output_lengths(mask.sum(-1)).long()
    return frames
