"""A model's weights as ``from_pretrained`` reads them, also where FSDP2 has spread them over the ranks."""

import importlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hostcore_transformers.layout import as_filed, as_in_memory


def stored_weights(model: Any) -> tuple[str, Mapping[str, Tensor]]:
    """The file and the tensors that ``from_pretrained`` wants: of adapters, these alone.

    A collective where they are spread over the ranks.
    """
    if hasattr(model, "peft_config"):
        return "adapter_model.safetensors", {name: _gathered(one) for name, one in adapter_tensors(model).items()}
    return "model.safetensors", as_filed(model, _whole(model))


def load_weights(model: Any, weights: Mapping[str, Tensor]) -> None:
    """Load what :func:`stored_weights` returned, on any number of ranks.

    :param weights: On each rank, all of them.
    """
    if hasattr(model, "peft_config"):
        with torch.no_grad():
            for name, present in adapter_tensors(model).items():
                present.copy_(_spread_like(weights[name], present))
        return
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    weights = as_in_memory(model, weights)
    whole: Any = {**weights, **{name: weights[first] for name, first in _tied(model).items()}}
    if _is_spread(model):
        set_model_state_dict(model, whole, options=StateDictOptions(full_state_dict=True))
    else:
        model.load_state_dict(whole)


def adapter_tensors(model: Any) -> Mapping[str, Tensor]:
    """Return the adapters' tensors by the names that peft stores them under; they share memory with the model's."""
    peft: Any = importlib.import_module("peft")
    # Embeddings that are trained are among the adapters' own; by itself, peft would look at the base's folder for them.
    adapters: Mapping[str, Tensor] = peft.get_peft_model_state_dict(model, save_embedding_layers=False)
    return adapters


def _gathered(tensor: Any) -> Tensor:
    whole: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole


def _spread_like(whole: Tensor, present: Any) -> Tensor:
    if not hasattr(present, "full_tensor"):
        return whole
    from torch.distributed.tensor import distribute_tensor

    on_device = whole.to(present.device_mesh.device_type)
    return distribute_tensor(on_device, present.device_mesh, present.placements, src_data_rank=None)


def _whole(model: nn.Module) -> Mapping[str, Tensor]:
    """All tensors of a model. A collective where they are spread over the ranks: the first one gets them."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    if not _is_spread(model):
        return model.state_dict()
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    whole: Any = get_model_state_dict(model, options=options)
    tied = _tied(model)  # gathered one by one, they do not share memory any more
    return {name: tensor for name, tensor in whole.items() if name not in tied}


def _is_spread(model: nn.Module) -> bool:
    """Return whether FSDP2 has spread the parameters over the ranks."""
    return any(hasattr(one, "full_tensor") for one in model.parameters())


def _tied(model: nn.Module) -> Mapping[str, str]:
    """The further names of parameters that have several, and the first name of each."""
    first: dict[int, str] = {}
    named = model.named_parameters(remove_duplicate=False)
    return {name: known for name, one in named if (known := first.setdefault(id(one), name)) != name}
