"""Reading one number."""

import math

import numpy as np
import pytest
import torch

from hostcore.toolkit import to_float_scalar


@pytest.mark.parametrize(
    "value",
    [
        2,
        2.0,
        np.float32(2),
        np.float64(2),
        np.int8(2),
        np.uint64(2),
        np.array(2.0),
        np.array([[2]]),
        torch.tensor(2),
        torch.tensor([[2.0]]),
        torch.tensor(2.0, dtype=torch.bfloat16),
        torch.tensor(2.0, requires_grad=True),
        torch.nn.Parameter(torch.tensor([2.0])),
    ],
    ids=repr,
)
def test_one_number_in_any_wrapping_is_a_float(value):
    found = to_float_scalar(value)
    assert type(found) is float
    assert found == 2.0


def test_numbers_that_are_not_finite_pass_through():
    assert math.isnan(to_float_scalar(torch.tensor(float("nan"))))
    assert to_float_scalar(np.float32("inf")) == math.inf


@pytest.mark.parametrize("value", [torch.zeros(2), torch.zeros(0), np.zeros((2, 2)), np.zeros(0)], ids=repr)
def test_several_numbers_or_none_are_refused_with_the_shape(value):
    with pytest.raises(ValueError, match="shape") as caught:
        to_float_scalar(value)
    assert str(tuple(value.shape)) in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [True, np.bool_(True), torch.tensor(True), "2.0", None, 2j, torch.tensor(2j), [2.0], np.array(["2"])],
    ids=repr,
)
def test_what_is_not_a_number_is_refused(value):
    with pytest.raises(TypeError, match="expected a number"):
        to_float_scalar(value)
