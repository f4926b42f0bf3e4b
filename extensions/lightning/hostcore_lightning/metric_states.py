"""The states of metrics in the middle of an epoch: torchmetrics' own, and the sums of ``self.log``.

torchmetrics leaves them out of ``state_dict`` unless a metric is persistent, and Lightning does not store its results
since 2.0: a run of its own that is resumed inside of an epoch begins them anew.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.trainer.connectors.logger_connector.result import (
    _Metadata,
    _ResultCollection,
    _ResultMetric,
    _Sync,
)
from torchmetrics import Metric

#: Of a logged value, beside ``reduce_fx`` and how it is reduced over the ranks.
_META: Final = (
    "fx", "name", "prog_bar", "logger", "on_step", "on_epoch", "enable_graph", "add_dataloader_idx", "dataloader_idx",
    "metric_attribute",
)  # fmt: skip


def metric_states(module: torch.nn.Module) -> dict[str, Any]:
    """The states of all metrics of a module, by name."""
    return {name: _state(one) for name, one in module.named_modules() if isinstance(one, Metric)}


def load_metric_states(module: torch.nn.Module, states: Mapping[str, Any]) -> None:
    """Give the metrics of a module what :func:`metric_states` returned."""
    metrics = {name: one for name, one in module.named_modules() if isinstance(one, Metric)}
    for name, state in states.items():
        if name in metrics:
            _load(metrics[name], state)


def result_states(results: _ResultCollection) -> list[dict[str, Any]]:
    """Return the sums of ``self.log``."""
    return [
        {
            "key": key,
            "meta": {name: getattr(one.meta, name) for name in _META},
            "reduce": one.meta.reduce_fx.__name__,
            "sync": one.meta.sync.should,
            "rank_zero_only": one.meta.sync.rank_zero_only,
            "is_tensor": one.is_tensor,
            "has_reset": one.has_reset,
            "state": _state(one) if one.is_tensor else {"forward": one._forward_cache},
        }
        for key, one in results.items()
    ]


def load_result_states(
    results: _ResultCollection, states: list[dict[str, Any]], module: LightningModule, strategy: Any
) -> None:
    """Give results what :func:`result_states` returned."""
    results.clear()
    for state in states:
        meta = _Metadata(**state["meta"], reduce_fx=getattr(torch, state["reduce"]))
        meta.sync = _Sync(fn=strategy.reduce, _should=state["sync"], rank_zero_only=state["rank_zero_only"])
        one = _ResultMetric(meta, state["is_tensor"])
        if one.is_tensor:
            _load(one, state["state"])
        else:
            one.value = module.get_submodule(state["meta"]["metric_attribute"])
            one._forward_cache = state["state"]["forward"]
        one.has_reset = state["has_reset"]
        results[state["key"]] = one.to(module.device)


@contextmanager
def kept(module: torch.nn.Module, results: _ResultCollection) -> Iterator[None]:
    """Behind it, the metrics and the results are as they were before."""
    metrics, values = copied(metric_states(module)), {key: copied(_state(one)) for key, one in results.items()}
    before = {key: one.has_reset for key, one in results.items()}
    try:
        yield
    finally:
        load_metric_states(module, metrics)
        for key in [*results]:
            if key not in values:
                del results[key]
            elif results[key].is_tensor:
                _load(results[key], values[key])
                results[key].has_reset = before[key]


def copied_metric_states(module: torch.nn.Module) -> dict[str, Any]:
    """As :func:`metric_states`, in memory of their own."""
    return {name: copied(one) for name, one in metric_states(module).items()}


def _state(metric: Metric) -> dict[str, Any]:
    return {
        "values": {name: getattr(metric, name) for name in metric._defaults},
        "updates": metric._update_count,
        "computed": metric._computed,
        "forward": metric._forward_cache,
    }


def _load(metric: Metric, state: Mapping[str, Any]) -> None:
    for name, value in state["values"].items():
        setattr(metric, name, on_device(metric.device, value))
    metric._update_count = state["updates"]
    metric._computed = on_device(metric.device, state["computed"])
    metric._forward_cache = on_device(metric.device, state["forward"])


def on_device(device: Any, value: Any) -> Any:
    """A value with its tensors on a device, also within lists and dictionaries."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: on_device(device, one) for key, one in value.items()}
    return type(value)(on_device(device, one) for one in value) if type(value) in (list, tuple) else value


def copied(value: Any) -> Any:
    """A value with its tensors in memory of their own, also within lists and dictionaries."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: copied(one) for key, one in value.items()}
    return [copied(one) for one in value] if isinstance(value, list) else value
