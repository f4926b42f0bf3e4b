"""Audio of the data, decoded."""

import io
import wave
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hostcore_hookspecs import InvalidData
from hostcore_transformers.columns import Column, is_file, is_list, values_of

Waveform = npt.NDArray[np.float32]


def _is_audio(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind) and any(one.name == "array" and is_list(one.type) for one in kind):
        return True
    return is_file(kind) or (is_list(kind) and bool(pa.types.is_floating(kind.value_type)))


AUDIO: Final = Column(
    _is_audio,
    'audio is a list of floats from -1 to 1, a struct of "array" and "sampling_rate", or a WAV file as bytes',
)


def waveforms_of(rows: pa.RecordBatch, column: str, rate: int) -> list[Waveform]:
    """Return the waveforms of a column, of one channel: float32 of shape (samples,).

    :param rate: Samples in a second, as the model has learned them. Lists have no other.
    :raises InvalidData: When a value is no audio, or has another rate.
    """
    waveforms = []
    for row, value in enumerate(values_of(rows, column)):
        try:
            found, samples = _decoded(value, rate)
        except (wave.Error, EOFError, ValueError, TypeError) as error:
            raise InvalidData(
                f'row {row} of a batch has no audio in "{column}": {error}',
                hint="of files, WAV with PCM is read; decode others before, for instance by datasets' Audio",
            ) from error
        if found != rate:
            raise InvalidData(
                f'row {row} of a batch has {found:,} samples in a second in "{column}", and the processor needs '
                f"{rate:,}",
                hint=f'resample it, for instance by cast_column("{column}", Audio(sampling_rate={rate})) of datasets',
            )
        if not len(samples):
            raise InvalidData(f'row {row} of a batch has audio of no length in "{column}"', hint="leave such rows out")
        waveforms.append(samples)
    return waveforms


def _decoded(value: Any, rate: int) -> tuple[int, Waveform]:
    """Return samples in a second, and the samples."""
    if isinstance(value, dict):
        if value.get("array") is not None:
            return value.get("sampling_rate") or rate, np.asarray(value["array"], dtype=np.float32)
        value = value.get("bytes")
    if isinstance(value, list):
        return rate, np.asarray(value, dtype=np.float32)
    with wave.open(io.BytesIO(value)) as file:
        width, channels = file.getsampwidth(), file.getnchannels()
        content = np.frombuffer(file.readframes(file.getnframes()), dtype=np.uint8)
        content = content[: len(content) // (width * channels) * width * channels].reshape(-1, width)
        if width == 1:  # without a sign
            samples = content[:, 0].astype(np.int64) - 128
        else:
            whole = np.zeros((len(content), 4), dtype=np.uint8)
            whole[:, 4 - width :] = content
            samples = whole.view("<i4")[:, 0].astype(np.int64) >> 8 * (4 - width)
        one = samples.reshape(-1, channels).mean(axis=1) / 2 ** (8 * width - 1)
        return file.getframerate(), one.astype(np.float32)
