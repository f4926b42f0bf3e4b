"""Spans of words are counted as conlleval and seqeval count them."""

import pytest
import torch

from hostcore_transformers.loss import IGNORED
from hostcore_transformers.spans import Spans

CLASSES = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def spans_of(names: list[str]) -> set[tuple[int, int, str]]:
    """Kind, beginning and end of each, word by word."""
    found, begun = set(), None
    for place, name in enumerate([*names, "O"]):
        kind = name[2:]
        if begun is not None and (name == "O" or name.startswith("B-") or kind != names[begun][2:]):
            found.add((begun, place, names[begun][2:]))
            begun = None
        if name != "O" and begun is None:
            begun = place
    return found


def test_spans_are_counted_by_kind_beginning_and_end() -> None:
    drawn = torch.Generator().manual_seed(2)
    labels = torch.randint(0, 5, (64, 12), generator=drawn)
    found = torch.where(torch.rand(64, 12, generator=drawn) < 0.7, labels, labels.flip(0))
    labels = labels.masked_fill(torch.rand(64, 12, generator=drawn) < 0.3, IGNORED)
    right = given = wanted = 0
    for row, other in zip(labels.tolist(), found.tolist(), strict=True):
        words = [at for at, one in enumerate(row) if one != IGNORED]
        one, two = (spans_of([CLASSES[some[at]] for at in words]) for some in (row, other))
        right, given, wanted = right + len(one & two), given + len(two), wanted + len(one)
    assert Spans(CLASSES).count(found, labels).tolist() == [right, given, wanted]
    assert 0 < right < given


@pytest.mark.parametrize(
    ("classes", "are"), [(CLASSES, True), (("O", "PER"), False), (("O", "I-PER"), False), ((), False)]
)
def test_other_classes_mark_no_spans(classes: tuple[str, ...], are: bool) -> None:
    assert Spans.are_marked_by(classes) == are
