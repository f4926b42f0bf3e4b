"""Several texts in a row of a batch: cut into blocks, or whole with attention that ends where each text does."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from hostcore_transformers.loss import IGNORED

#: Completes the inputs of packed texts, so that none of them attends to another.
Separation = Callable[[Mapping[str, Tensor]], Mapping[str, Any]]


class Packer:
    """Puts texts one after the other and cuts blocks; what is left over is the beginning of the next ones.

    The blocks are a pure function of the texts and their order, whatever the batches; a checkpoint keeps the remainder.
    """

    def __init__(self, block: int) -> None:
        self._block = block
        #: The tokens that are no whole block yet, int64.
        self.remainder: Tensor = torch.empty(0, dtype=torch.int64)

    def take(self, texts: Sequence[Sequence[int]]) -> Mapping[str, Tensor]:
        """The blocks that these texts complete: shape (blocks, block), perhaps no block at all."""
        new = [torch.tensor(text, dtype=torch.int64) for text in texts]
        tokens = torch.cat([self.remainder, *new])
        whole = len(tokens) // self._block * self._block
        self.remainder = tokens[whole:].clone()
        return _blocks(tokens[:whole].view(-1, self._block))

    def take_all(self, texts: Sequence[Sequence[int]]) -> Mapping[str, Tensor]:
        """The blocks of these texts alone, the last one filled up with what does not count. For evaluations."""
        tokens = torch.cat([torch.tensor(text, dtype=torch.int64) for text in texts])
        missing = -len(tokens) % self._block
        labels = torch.nn.functional.pad(tokens, (0, missing), value=IGNORED).view(-1, self._block)
        return {**_blocks(labels.clamp(min=0)), "labels": labels}


def _blocks(input_ids: Tensor) -> Mapping[str, Tensor]:
    return {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids), "labels": input_ids.clone()}


def pack_texts(
    texts: Sequence[Sequence[int]], labels: Sequence[Sequence[int]], block: int, pad: int
) -> Mapping[str, Tensor]:
    """Lay whole texts into few rows, the longest first, each into the fullest row that has room for it.

    :param texts: Token ids, at most ``block`` of each.
    :param labels: Of each token; the first of a text is never predicted, since nothing is before it.
    :param pad: The token behind the last text of a row.
    :return: ``input_ids``, ``labels`` and ``position_ids``, int64 of shape (rows, longest row). Positions begin at 0
        with each text, and with the padding.
    """
    rows = _arranged([len(text) for text in texts], block)
    lengths = [sum(len(texts[one]) for one in row) for row in rows]
    shape = (len(rows), max(2, *lengths))  # also where there is no token: each rank has a loss, and gradients
    input_ids, learned = torch.full(shape, pad), torch.full(shape, IGNORED)
    positions = torch.arange(shape[1]).repeat(shape[0], 1)
    for at, row in enumerate(rows):
        begin = 0
        for one in row:
            end = begin + len(texts[one])
            input_ids[at, begin:end] = torch.tensor(texts[one])
            learned[at, begin + 1 : end] = torch.tensor(labels[one][1:], dtype=torch.int64)
            begin = end
            positions[at, begin:] = torch.arange(shape[1] - begin)
    return {"input_ids": input_ids, "position_ids": positions, "labels": learned}


def _arranged(lengths: Sequence[int], block: int) -> list[list[int]]:
    """Choose the texts of each row (best fit decreasing: Johnson 1973); at least one row."""
    rows: list[list[int]] = [[]]
    free = [block]
    for one in sorted(range(len(lengths)), key=lambda at: -lengths[at]):
        fitting = [row for row, left in enumerate(free) if left >= lengths[one]]
        row = min(fitting, key=free.__getitem__, default=len(rows))
        if row == len(rows):
            rows.append([])
            free.append(block)
        if lengths[one]:
            rows[row].append(one)
            free[row] -= lengths[one]
    return rows


def _by_positions(_: Any, inputs: Mapping[str, Tensor]) -> Mapping[str, Any]:
    """Leave it to the model: most make a mask in which attention ends where positions begin again."""
    return inputs


def _by_masks(model: Any, inputs: Mapping[str, Tensor]) -> Mapping[str, Any]:
    """Add the masks that transformers makes of the positions, one for each kind of layer: windows stay windows."""
    from transformers.masking_utils import create_masks_for_generate

    positions = inputs["position_ids"]
    like = torch.empty((*positions.shape, 1), dtype=model.dtype, device=positions.device)
    masks = create_masks_for_generate(
        config=model.config, inputs_embeds=like, attention_mask=None, past_key_values=None, position_ids=positions
    )
    return {**inputs, "attention_mask": masks}


_WAYS: Final = (_by_positions, _by_masks)
#: Tokens of the texts that a model is tried with, in the order in which they are packed.
_TRIED: Final = (7, 6, 4)


def find_separation(model: Any) -> Separation | None:
    """Find the way in which a model computes the same of packed texts as of each alone, by trying it on three texts.

    :param model: On the CPU, in float32.
    :return: None if there is none: texts would read those before them.
    """
    size = model.get_input_embeddings().num_embeddings
    texts = [[(31 * at + 7 * length + 3) % size for at in range(length)] for length in _TRIED]
    packed = pack_texts(texts, texts, sum(_TRIED), 0)
    inputs = {name: packed[name] for name in ("input_ids", "position_ids")}
    with _evaluated(model):
        alone = torch.cat([_logits(model, {"input_ids": torch.tensor([one])}) for one in texts], 1)
        for way in _WAYS:
            try:
                found = _logits(model, way(model, inputs))
            except (TypeError, ValueError, RuntimeError, IndexError, KeyError, AttributeError, NotImplementedError):
                continue  # it takes no such mask, or no positions
            if found.shape == alone.shape and bool((found - alone).abs().max() <= 1e-4 * alone.abs().max()):
                return partial(way, model)
    return None


def _logits(model: Any, inputs: Mapping[str, Any]) -> Tensor:
    logits: Tensor = model(**inputs, use_cache=False).logits  # with a cache, transformers looks for no packed texts
    return logits


@contextmanager
def _evaluated(model: Any) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)
