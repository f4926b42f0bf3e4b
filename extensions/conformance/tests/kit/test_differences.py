"""States are compared to the bit, and a difference is told with its place."""

from __future__ import annotations

import copy
import math
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest
import torch

from hostcore_conformance.differences import first_difference, in_words


@attrs.define(eq=False)
class Batch:
    """What a trainer may prepare."""

    numbers: Any
    place: object = attrs.field(factory=object)


EQUAL = [
    {"a": [1, (2.0, None)], "b": "x"},
    math.nan,
    torch.tensor([math.nan, 1.0]),
    np.array([1, 2], np.int32),
    {"scalar": torch.tensor(3), "empty": torch.zeros(0, 2)},
    torch.zeros(2, dtype=torch.bfloat16),
    np.array(["a", None], object),
    pa.record_batch({"x": [1.0, None, math.nan]}),
]

DIFFERENT = [
    ({"a": {"b": 1}}, {"a": {"b": 2}}, "/a/b is 1 and 2"),
    ({"a": 1}, {}, "/a is there and is not"),
    ({}, {"a": 1}, "/a is not there and is"),
    ([1], [1, 2], "/1 is not there and is"),
    (0.0, -0.0, "the value is 0.0 and -0.0"),
    (1, True, "the value is 1 and True"),
    (1, 1.0, "the value is 1 and 1.0"),
    (torch.zeros(2), torch.zeros(2, dtype=torch.float64), "the value is torch.float32[2] and torch.float64[2]"),
    (torch.zeros(2), torch.zeros(3), "the value is torch.float32[2] and torch.float32[3]"),
    (torch.zeros(2), torch.tensor([0.0, 1.0]), "the value differs in 1 of its 2 numbers"),
    (torch.zeros(1), -torch.zeros(1), "the value differs in the bits of some of its 1 numbers"),
    (np.zeros(2), np.zeros(2, np.float32), "the value is float64[2] and float32[2]"),
]


@pytest.mark.parametrize("value", EQUAL)
def test_equal_states_have_no_difference(value: Any) -> None:
    assert in_words(value, copy.deepcopy(value)) is None


@pytest.mark.parametrize(("one", "other", "told"), DIFFERENT)
def test_a_difference_is_told_with_its_place(one: Any, other: Any, told: str) -> None:
    assert in_words(one, other) == told


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (
            {"image": torch.zeros(2)},
            {"image": torch.ones(2)},
            "image is 0.0 at [0], then 1.0, and 2 of its 2 numbers differ",
        ),
        (pa.record_batch({"x": [1, 2]}), pa.record_batch({"x": [1, 3]}), "column 'x', row 1 is 2, then 3"),
        (Batch(numbers=[1]), Batch(numbers=[2]), "numbers.0 is 1, then 2"),
        (1, 2, "it is 1, then 2"),
    ],
    ids=["tensors", "rows", "attributes", "numbers"],
)
def test_what_has_changed_is_told_with_both_values(before: Any, after: Any, told: str) -> None:
    found = first_difference(before, after)
    assert found is not None
    assert found.then == told


def test_keys_may_be_left_out_and_objects_that_cannot_be_compared_count_as_equal() -> None:
    assert first_difference({"a": 1, "b": 2}, {"a": 2, "b": 2}, but={"a"}) is None
    assert first_difference(Batch(numbers=[1]), Batch(numbers=[1])) is None


def test_rows_without_a_value_are_compared_by_the_bytes_below_them() -> None:
    def column(below: int) -> pa.Array:
        return pa.Array.from_buffers(pa.int64(), 1, [pa.py_buffer(b"\0"), pa.py_buffer(below.to_bytes(8, "little"))])

    found = first_difference(column(1), column(2))
    assert found is not None
    assert found.path == "bytes"
