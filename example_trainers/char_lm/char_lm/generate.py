"""Writing text with a trained model."""

from collections.abc import Callable

import torch
from torch import Tensor


@torch.no_grad()
def generate(
    predict: Callable[[Tensor], Tensor],
    prompt: bytes,
    *,
    length: int,
    context: int,
    temperature: float,
    top_k: int,
    seed: int,
    device: torch.device | str = "cpu",
) -> bytes:
    """Continue a text, one byte after the other.

    :param predict: A model in evaluation mode; see :meth:`char_lm.model.CharLm.forward`.
    :param prompt: At least one byte.
    :param length: How many bytes to add.
    :param context: How many of the last bytes the model may look at.
    :param temperature: Below 1 the likely bytes become likelier; near 0 only the likeliest is left.
    :param top_k: Only so many of the likeliest bytes are drawn from; 0: all.
    :param seed: The same model and seed give the same text.
    :param device: Where the model is.
    :return: The prompt and what follows.
    """
    # Drawn on the CPU: the same numbers for every kind of device, and for every rank.
    generator = torch.Generator().manual_seed(seed)
    text = torch.tensor([list(prompt)], device=device)
    for _ in range(length):
        logits = predict(text[:, -context:])[0, -1].float().cpu() / temperature
        if top_k:
            logits[logits < logits.topk(top_k).values[-1]] = -torch.inf
        following = torch.multinomial(logits.softmax(0), 1, generator=generator)
        text = torch.cat([text, following[None].to(device)], dim=1)
    return bytes(text[0].tolist())
