"""Spans of words, such as names, that classes B-…, I-… and O mark."""

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from hostcore_transformers.loss import IGNORED


class Spans:
    """Counts spans as ``conlleval`` does (Tjong Kim Sang and Buchholz, CoNLL 2000), and so seqeval by default.

    A span begins with B, or with an I behind a word of no or of another kind of span.

    :param classes: Their names, by their numbers: ``O``, ``B-PER``, ``I-PER``.
    """

    def __init__(self, classes: Sequence[str]) -> None:
        kinds = {name: number for number, name in enumerate(dict.fromkeys(one[2:] for one in classes if one != "O"))}
        self._begins = torch.tensor([one.startswith("B-") for one in classes])
        self._kinds = torch.tensor([-1 if one == "O" else kinds[one[2:]] for one in classes])

    @staticmethod
    def are_marked_by(classes: Sequence[str]) -> bool:
        """Return whether classes are those of spans."""
        are_named = all(one == "O" or re.fullmatch("[BI]-.+", one) for one in classes)
        return are_named and any(one.startswith("B-") for one in classes)

    def count(self, found: Tensor, labels: Tensor) -> Tensor:
        """Count the spans that are found with kind, beginning and end, those that are found, and those that there are.

        :param found: Classes, int64 of shape (rows, tokens).
        :param labels: The right ones; :data:`IGNORED` for tokens that are left out.
        :return: Three numbers, on the device of the arguments.
        """
        there = labels != IGNORED
        words = torch.argsort(
            there.long(), dim=-1, descending=True, stable=True
        )  # those that count, in their order, come first
        there = there.gather(-1, words)
        wanted, wanted_ends, kinds = self._spans(labels.gather(-1, words), there)
        given, given_ends, others = self._spans(found.gather(-1, words), there)
        both = wanted & given & (wanted_ends == given_ends) & (kinds == others)
        return torch.stack([one.sum() for one in (both, given, wanted)])

    def _spans(self, classes: Tensor, there: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of each word: whether a span begins with it, where the next end of a span is, and of which kind it is."""
        device = classes.device
        classes = classes.masked_fill(~there, 0)
        kinds = self._kinds.to(device)[classes].masked_fill(~there, -1)
        before = torch.nn.functional.pad(kinds, (1, -1), value=-1)
        begins = (kinds >= 0) & (self._begins.to(device)[classes] | (kinds != before))
        goes_on = torch.nn.functional.pad((kinds >= 0) & ~begins, (-1, 1), value=False)
        places = torch.arange(classes.shape[-1], device=device).expand_as(classes)
        ends = places.masked_fill((kinds < 0) | goes_on, classes.shape[-1])
        return begins, ends.flip(-1).cummin(-1).values.flip(-1), kinds
