"""The loss of a batch: a sum over all that is predicted in it, so that a step can divide by the global batch's count.

transformers' models compute a loss of their own, and few agree on it: some divide by ``num_items_in_batch``, most take
the mean over the batch that they see, without documenting it. This one is the same for all of them.
"""

from typing import Any, Final

import torch
from torch import Tensor, nn

#: What a label is where nothing is to be predicted, as transformers has it.
IGNORED: Final = -100


def summed_loss(logits: Tensor, labels: Tensor, *, predicts_next: bool, smoothing: float = 0.0) -> Tensor:
    """The sum of the cross entropies of a batch, in nats: zero-dimensional, float32; 0 where nothing is predicted.

    Divided by :func:`predictions`, it is what transformers' ``ForCausalLMLoss``, ``ForMaskedLMLoss`` and
    ``ForSequenceClassificationLoss`` return, to the last bit.

    :param logits: Of shape (rows, tokens, vocabulary), or (rows, classes).
    :param labels: int64, of the shape of ``logits`` without the last dimension; :data:`IGNORED` where nothing is
        predicted.
    :param predicts_next: Whether each token predicts the one after it.
    :param smoothing: The part of each target that is spread over all classes (Szegedy et al., arXiv:1512.00567), as in
        transformers' ``LabelSmoother``.
    """
    if predicts_next:
        labels = nn.functional.pad(labels, (0, 1), value=IGNORED)[..., 1:].contiguous()
    logits = logits.float().view(-1, logits.shape[-1])
    return nn.functional.cross_entropy(
        logits, labels.view(-1), ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing
    )


def router_loss(model: Any, output: Any) -> tuple[Tensor, float] | None:
    """The loss that a mixture of experts has of its router, zero-dimensional, and what it is multiplied by.

    None where the model has none, or its configuration has no ``output_router_logits``.
    """
    found = getattr(output, "aux_loss", None)
    if not isinstance(found, Tensor):
        return None
    of_text = model.config.get_text_config()
    places = ((model, "router_aux_loss_coef"), (model, "aux_loss_coef"), (of_text, "router_aux_loss_coef"))
    return found, next((getattr(place, name) for place, name in places if hasattr(place, name)), 0.0)


def predictions(labels: Tensor, *, predicts_next: bool) -> int:
    """Count the predictions that the loss of a batch sums over."""
    return int((labels[..., 1:] if predicts_next else labels).ne(IGNORED).sum())


def nothing_predicted() -> dict[str, Tensor]:
    """A batch for a rank that has none yet: its loss is 0, and so are all gradients, of which each rank has some."""
    two = torch.zeros((1, 2), dtype=torch.int64)
    return {"input_ids": two, "attention_mask": torch.ones_like(two), "labels": torch.full_like(two, IGNORED)}
