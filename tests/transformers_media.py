"""Images and audio made on the spot, and the processors that read them."""

import io
import json
import wave
from pathlib import Path
from typing import Any

import PIL.Image


def save_processors(folder: Path) -> None:
    """Processors for images of 16x16 and for a second of audio; a tokenizer of characters."""
    import transformers

    transformers.ViTImageProcessorPil(size={"height": 16, "width": 16}).save_pretrained(folder / "images")
    transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(folder / "audio")
    transformers.WhisperFeatureExtractor(chunk_length=1).save_pretrained(folder / "mel")
    signs = ["<pad>", "<s>", "</s>", "<unk>", "|", *"abcdefghijklmnopqrstuvw"]
    (folder / "vocab.json").write_text(json.dumps({sign: number for number, sign in enumerate(signs)}))
    transformers.Wav2Vec2CTCTokenizer(str(folder / "vocab.json")).save_pretrained(folder / "characters")


def png(pixels: Any) -> bytes:
    content = io.BytesIO()
    PIL.Image.fromarray(pixels).save(content, format="PNG")
    return content.getvalue()


def wav(samples: bytes, *, width: int = 2, channels: int = 1, rate: int = 16000) -> bytes:
    """Return the content of a WAV file."""
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setsampwidth(width)
        file.setnchannels(channels)
        file.setframerate(rate)
        file.writeframes(samples)
    return content.getvalue()
