"""The trainable parameters of a module by their names, whatever the module is wrapped into."""

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import torch
from torch import nn

from hostcore_hookspecs.errors import HostcoreError


class ModuleCheckpointError(HostcoreError):
    """A module cannot be saved as it is, or what was saved is not there, damaged, or of another module."""

    code = "toolkit.module_checkpoint"


@attrs.frozen(kw_only=True, eq=False)
class Parameters:
    """Parameters, each under the first of its names."""

    by_name: Mapping[str, nn.Parameter]
    #: Further names of parameters that are used in several places: ``{"head.weight": "embedding.weight"}``.
    tied: Mapping[str, str]

    @classmethod
    def trainable(cls, module: nn.Module) -> "Parameters":
        """Those of a module that require a gradient.

        :raises ModuleCheckpointError: When no rank has all of them.
        """
        by_name: dict[str, nn.Parameter] = {}
        tied: dict[str, str] = {}
        first: dict[int, str] = {}
        for name, parameter in _named(_inside(module)):
            if not parameter.requires_grad:
                continue
            known = first.setdefault(id(parameter), name)
            if known == name:
                by_name[name] = parameter
            else:
                tied[name] = known
        return cls(by_name=by_name, tied=tied)

    def trained_by(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Return the class of an optimizer and the names of the parameters in each of its groups; plain JSON."""
        names = {id(parameter): name for name, parameter in self.by_name.items()}
        groups = [[names.get(id(one)) for one in group["params"]] for group in optimizer.param_groups]
        return {"class": type(optimizer).__qualname__, "groups": groups}


def _inside(module: nn.Module) -> nn.Module:
    """The module that the user wrote."""
    while True:
        if isinstance(module, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            module = module.module
        elif isinstance(compiled := getattr(module, "_orig_mod", None), nn.Module):  # of torch.compile
            module = compiled
        else:
            return module


def _named(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    flat = any(type(one).__name__ == "FullyShardedDataParallel" for one in module.modules())
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if flat or hasattr(parameter, "device_mesh"):
            raise ModuleCheckpointError(
                f"FSDP has spread the parameter {name} over the ranks",
                hint="return toolkit.training_state(model, optimizer) from state_dict: the host writes all parts of it",
            )
        yield name, parameter
