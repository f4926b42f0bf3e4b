"""Reading one number out of whatever holds it."""

from numbers import Real

import numpy as np
import torch


def to_float_scalar(value: object) -> float:
    """The value of one number as a Python float. A non-finite one passes through.

    Reading a tensor of an accelerator waits for it; metrics in a ``StepResult`` may stay tensors instead.

    :param value: A number, a NumPy number, or a tensor or NumPy array with exactly one element.
    :raises TypeError: When it is something else. A boolean and a complex number are something else.
    :raises ValueError: When it has no element, or several.
    """
    if isinstance(value, torch.Tensor):
        if value.numel() != 1:
            raise ValueError(
                f"expected one number, got a tensor of shape {tuple(value.shape)}; reduce it, as by .mean()"
            )
        value = value.item()
    elif isinstance(value, np.ndarray):
        if value.size != 1:
            raise ValueError(f"expected one number, got an array of shape {value.shape}; reduce it, as by .mean()")
        value = value.reshape(())[()]
    if type(value) is float:  # the usual case: asking whether it is Real costs more than all the rest
        return value
    if isinstance(value, bool) or not isinstance(value, Real):  # NumPy's numbers are Real, its booleans are not
        raise TypeError(f"expected a number, got {value!r} of class {type(value).__qualname__}")
    return float(value)
