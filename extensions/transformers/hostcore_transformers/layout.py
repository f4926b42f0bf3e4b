"""Weights as a file has them, for architectures that lay them out differently in memory.

Of mixtures of experts, a file has one matrix for each expert, and the model one tensor of all; other architectures have
other names. The conversion is that of ``save_pretrained`` and ``from_pretrained``; it moves numbers, and changes none.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import convert_and_load_state_dict_in_model, revert_weight_conversion
from transformers.modeling_utils import LoadStateDictConfig


class LayoutNotKept(ValueError):
    """Weights that do not come back from a file as they were in memory."""


def as_filed(model: Any, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Convert the tensors of a model to what ``save_pretrained`` writes.

    :param weights: All tensors of the model, whole, by their names in memory; on other ranks than the first, none.
    """
    return weights if _is_filed_alike(model) else _filed(model, _twin(model), weights)


def as_in_memory(model: Any, filed: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Convert what :func:`as_filed` returned back, bit for bit: on the CPU, for the model's ``load_state_dict``.

    :raises LayoutNotKept: When a tensor is missing, or has another shape.
    """
    return filed if _is_filed_alike(model) else _loaded(_twin(model), filed, "cpu")


def check_layout(model: Any) -> None:
    """See that the model's weights come back from a file, by their names and shapes. Takes no memory.

    :raises LayoutNotKept: When they do not.
    """
    if _is_filed_alike(model):
        return
    twin = _twin(model)
    shapes = {name: tensor.to("meta") for name, tensor in twin.state_dict().items()}
    found = _loaded(_twin(model), _filed(model, twin, shapes), "meta")
    if {name: one.shape for name, one in found.items()} != {name: one.shape for name, one in shapes.items()}:
        raise LayoutNotKept("other tensors come back from a file than were in memory")


def _twin(model: Any) -> Any:
    """The model without memory, of transformers' own classes: FSDP2 gives others, and conversions go by the class."""
    kind: Any = next(one for one in type(model).__mro__ if not issubclass(one, FSDPModule))
    with torch.device("meta"):
        return kind(model.config)


def _is_filed_alike(model: Any) -> bool:
    plain = _twin(model) if isinstance(model, FSDPModule) else model
    return not get_model_conversion_mapping(plain, add_legacy=False)


def _filed(model: Any, twin: Any, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    # Those with which the model was read: they know whether its file had a prefix.
    conversions = getattr(model, "_weight_conversions", None)
    if conversions is not None:
        twin._weight_conversions = conversions
    tied = set(twin.all_tied_weights_keys)
    converted = revert_weight_conversion(twin, {name: one for name, one in weights.items() if name not in tied})
    return {name: tensor.contiguous() for name, tensor in converted.items()}


def _loaded(twin: Any, filed: Mapping[str, Tensor], device: str) -> Mapping[str, Tensor]:
    mapping: Any = get_model_conversion_mapping(twin)
    settings = LoadStateDictConfig(device_map={"": device}, dtype=twin.dtype, weight_mapping=mapping)
    info, _ = convert_and_load_state_dict_in_model(twin, dict(filed), settings)
    tied = twin.all_tied_weights_keys
    if lost := info.missing_keys - set(tied):
        raise LayoutNotKept(f"{len(lost)} tensors do not come back from a file, for instance {min(lost)}")
    if info.mismatched_keys or info.conversion_errors:
        raise LayoutNotKept("tensors come back from a file in other shapes")
    found = twin.state_dict()
    return {name: found[tied.get(name, name)] for name in found}
