"""States are compared to the bit, and a difference is told with its place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from hostcore_conformance.differences import in_words

EQUAL = [
    {"a": [1, (2.0, None)], "b": "x"},
    math.nan,
    torch.tensor([math.nan, 1.0]),
    np.array([1, 2], np.int32),
    {"scalar": torch.tensor(3), "empty": torch.zeros(0, 2)},
    torch.zeros(2, dtype=torch.bfloat16),
]

DIFFERENT = [
    ({"a": {"b": 1}}, {"a": {"b": 2}}, "/a/b is 1 and 2"),
    ({"a": 1}, {}, "/a is there and is not"),
    ({}, {"a": 1}, "/a is not there and is"),
    ([1], [1, 2], "/1 is not there and is"),
    (0.0, -0.0, "the value is 0.0 and -0.0"),
    (1, True, "the value is 1 and True"),
    (torch.zeros(2), torch.zeros(3), "the value is torch.float32[2] and torch.float32[3]"),
    (torch.zeros(2), torch.tensor([0.0, 1.0]), "the value differs in 1 of its 2 numbers"),
    (torch.zeros(1), -torch.zeros(1), "the value differs in the bits of some of its 1 numbers"),
    (np.zeros(2), np.zeros(2, np.float32), "the value is float64[2] and float32[2]"),
]


@pytest.mark.parametrize("value", EQUAL)
def test_equal_states_have_no_difference(value: Any) -> None:
    copied = value.clone() if isinstance(value, torch.Tensor) else value
    assert in_words(value, copied) is None


@pytest.mark.parametrize(("one", "other", "told"), DIFFERENT)
def test_a_difference_is_told_with_its_place(one: Any, other: Any, told: str) -> None:
    assert in_words(one, other) == told
