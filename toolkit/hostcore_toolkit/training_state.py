"""The state of a model and its optimizer, keyed by the names of the parameters, however the model is parallel.

On top of ``torch.distributed.checkpoint.state_dict``. Plain ``state_dict`` methods name an optimizer's state by number,
and DDP's with a prefix; what they give cannot be loaded on another number of ranks.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from hostcore_hookspecs.errors import HostcoreError


class InvalidTrainingState(HostcoreError):
    """A state cannot be taken from this model and optimizer, or is not theirs."""

    code = "toolkit.training_state"


def training_state(model: nn.Module, optimizer: Optimizer | None = None) -> dict[str, Any]:
    """Return a model and its optimizer as a value for ``state_dict``.

    Tensors that FSDP2 has spread over the ranks stay so: every rank has its part, and the host writes all of them. A
    collective with FSDP2. An optimizer that has made no step yet is made to have a state, by a step without gradients
    at a learning rate of 0.

    :param model: As it comes from ``toolkit.parallelize``, or any other.
    :return: ``model``: parameters and buffers by name, without ``module.``; ``optimizer``, if there is one: ``state``
        by the name of the parameter, and ``param_groups``.
    :raises InvalidTrainingState: When the optimizer has parameters of another model, or is of a kind that torch cannot
        name the state of.
    """
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict

    state: dict[str, Any] = {"model": _done("take", lambda: dict(get_model_state_dict(model)))}
    if optimizer is not None:
        _check_optimizer(model, optimizer)
        state["optimizer"] = _done("take", lambda: dict(get_optimizer_state_dict(model, optimizer)))
    return state


def load_training_state(model: nn.Module, optimizer: Optimizer | None, payload: Mapping[str, Any]) -> None:
    """Load what :func:`training_state` returned, on any number of ranks, parallel in any of the ways.

    :param payload: On several ranks, tensors are spread over them or whole; what was spread can be loaded on one rank
        once it is whole, as the host gives it.
    :raises InvalidTrainingState: When it is not of this model, or not of such an optimizer.
    """
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        set_model_state_dict,
        set_optimizer_state_dict,
    )

    missing = {"model", *(["optimizer"] if optimizer is not None else [])} - set(payload)
    if missing:
        raise InvalidTrainingState(f"the state has no {' and no '.join(sorted(missing))}", hint="load what was stored")
    present = get_model_state_dict(model)
    weights = {name: _placed_like(value, present.get(name)) for name, value in payload["model"].items()}
    _done("load", lambda: set_model_state_dict(model, weights))
    if optimizer is None:
        return
    _check_optimizer(model, optimizer)
    stored = payload["optimizer"]
    _check_groups(model, optimizer, stored)
    state = {
        name: {key: _placed_like(value, present.get(name)) for key, value in values.items()}
        for name, values in stored["state"].items()
    }
    groups: Any = {"state": state, "param_groups": [dict(group) for group in stored["param_groups"]]}
    # Not strict: a parameter that never had a gradient has no state. The names have been compared.
    options = StateDictOptions(strict=False)
    _done("load", lambda: set_optimizer_state_dict(model, optimizer, groups, options=options))


def _placed_like(value: Any, present: Any) -> Any:
    """A tensor of a parameter's shape, spread over the ranks as that is."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(value, torch.Tensor) or not isinstance(present, torch.Tensor) or value.shape != present.shape:
        return value
    if isinstance(present, DTensor) and not isinstance(value, DTensor):
        whole = value.to(present.device_mesh.device_type)
        return distribute_tensor(whole, present.device_mesh, present.placements, src_data_rank=None)
    if isinstance(value, DTensor) and not isinstance(present, DTensor):
        return value.full_tensor()
    return value


def _check_optimizer(model: nn.Module, optimizer: Optimizer) -> None:
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InvalidTrainingState("the state of LBFGS belongs to no parameter", hint="store its own state_dict()")
    own = {id(one) for one in model.parameters()}
    foreign = sum(id(one) not in own for group in optimizer.param_groups for one in group["params"])
    if foreign:
        hint = "make the optimizer after toolkit.parallelize, from the parameters of the model that it returns"
        raise InvalidTrainingState(f"{foreign} parameters of the optimizer are not of the model", hint=hint)


def _check_groups(model: nn.Module, optimizer: Optimizer, stored: Mapping[str, Any]) -> None:
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    present: Any = _done("compare", lambda: get_optimizer_state_dict(model, optimizer))
    now, then = ({name for group in one["param_groups"] for name in group["params"]} for one in (present, stored))
    if now != then:
        raise InvalidTrainingState(
            f"the optimizer's state is of other parameters: {', '.join(sorted(now ^ then)[:5])}",
            hint="a checkpoint can be loaded into the model and the optimizer that it was taken from",
        )


def _done(what: str, action: Callable[[], Any]) -> Any:
    try:
        return action()
    except (RuntimeError, ValueError, KeyError, AssertionError, NotImplementedError) as error:
        raise InvalidTrainingState(f"torch cannot {what} the state: {error}") from error
