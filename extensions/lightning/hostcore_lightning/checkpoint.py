"""The state of a run in the layout of Lightning's own checkpoints, with what those leave out below ``hostcore``."""

import argparse
import pickle
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Set
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from lightning.__version__ import version as lightning_version
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import BaseFinetuning
from lightning.pytorch.trainer.call import (
    _call_callbacks_load_state_dict,
    _call_callbacks_on_load_checkpoint,
    _call_callbacks_on_save_checkpoint,
    _call_callbacks_state_dict,
    _call_lightning_module_hook,
)

from hostcore_hookspecs import InvalidData
from hostcore_lightning.fit import Fit
from hostcore_lightning.metric_states import (
    copied,
    load_metric_states,
    load_result_states,
    metric_states,
    on_device,
    result_states,
)
from hostcore_toolkit.module_loading import require_safe_unpickling


def captured(fit: Fit) -> dict[str, Any]:
    """Everything that is needed to go on."""
    fit.leave_evaluation()
    if fit.is_over and not fit.ended:  # averaged weights, for instance, belong into the last checkpoint
        fit.start()
        fit.end()
    view: Any = fit.view
    checkpoint: dict[str, Any] = {
        "epoch": view.current_epoch,
        "global_step": view.global_step,
        "pytorch-lightning_version": lightning_version,
        "state_dict": dict(fit.module.state_dict()),
        "callbacks": _call_callbacks_state_dict(view),
        "optimizer_states": [one.state_dict() for one in view.optimizers],
        "lr_schedulers": [one.scheduler.state_dict() for one in view.lr_scheduler_configs],
        "hostcore": _beside(fit),
    }
    checkpoint |= _of_objects(fit)
    if view.datamodule is not None and (of_data := view.datamodule.state_dict()):
        checkpoint[type(view.datamodule).__qualname__] = of_data
    own = checkpoint.keys() - _of_objects(fit).keys()
    _call_callbacks_on_save_checkpoint(view, checkpoint)
    _call_lightning_module_hook(view, "on_save_checkpoint", checkpoint)
    _leave_objects_out(fit, checkpoint, own)
    return checkpoint


def restore(fit: Fit, checkpoint: dict[str, Any]) -> None:
    """Go on from what :func:`captured` returned.

    Within an attempt, which a component may ask for, all of it goes back, but for the data module; with the next batch,
    step, epoch and the place in it are again those that were reached, as in the host.
    """
    view: Any = fit.view
    starts, beside = not fit.started, checkpoint["hostcore"]
    fit.leave_evaluation()
    fit.go_on()
    if starts and view.datamodule is not None:
        view.datamodule.load_state_dict(checkpoint.get(type(view.datamodule).__qualname__, {}))
    reached = None if starts else copied(_place(fit))
    view.current_epoch, view.global_step = checkpoint["epoch"], checkpoint["global_step"]
    if left_out := beside.get("left_out"):
        present = {**checkpoint, **_of_objects(fit)}
        _call_lightning_module_hook(view, "on_save_checkpoint", present)
        checkpoint = {**checkpoint, **{key: present[key] for key in left_out if key in present}}
    _call_lightning_module_hook(view, "on_load_checkpoint", checkpoint)
    fit.module.load_state_dict(checkpoint["state_dict"], strict=fit.module.strict_loading)
    _call_callbacks_on_load_checkpoint(view, checkpoint)
    _call_callbacks_load_state_dict(view, checkpoint)
    fit.begin()
    if not starts:
        for callback in view.callbacks:
            if isinstance(callback, BaseFinetuning):  # its hook gives the optimizers the groups that they had
                callback.on_fit_start(view, fit.module)
    for optimizer, state in zip(view.optimizers, checkpoint["optimizer_states"], strict=True):
        optimizer.load_state_dict(state)
    for config, state in zip(view.lr_scheduler_configs, checkpoint["lr_schedulers"], strict=True):
        config.scheduler.load_state_dict(state)
    _restore_parameters(fit, beside)
    own = beside["ranks"][view.global_rank] if len(beside["ranks"]) == view.world_size else None
    fit.unsaved.restore((own or beside["ranks"][0]).get("unsaved", {}))
    if own is None and view.is_global_zero:
        fit.ctx.warn("metrics of the present epoch begin anew: they were added up on another number of ranks")
    _restore_place(fit, beside, own)
    if reached is not None:
        fit.place_reached = partial(_reach, fit, reached)
    elif beside["stopped"] and beside["stopped"] == fit.ctx.job.run_id:
        fit.ended = True  # the host makes the test that was interrupted, and trains nothing on top of what came last


def load_weights(module: LightningModule, path: str) -> None:
    """Load the weights of a Lightning checkpoint, or of a ``state_dict`` that ``torch.save`` wrote.

    :raises InvalidData: The file is neither, or the weights are not of this module.
    :raises ModuleCheckpointError: This version of torch cannot read it safely.
    """
    require_safe_unpickling(Path(path))
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):  # a common hyperparameter, which runs no code
            content = torch.load(path, map_location="cpu", weights_only=True)
        weights = content.get("state_dict", content)
        module.load_state_dict(weights, strict=module.strict_loading)
    except pickle.UnpicklingError as error:
        raise InvalidData(
            "the file holds objects beside tensors and plain values, which are not loaded: they could run code",
            pointer="/weights",
            file=path,
            hint="where the file is trusted, write its weights alone: "
            "torch.save(torch.load(path, weights_only=False)['state_dict'], 'weights.pt')",
        ) from error
    except (RuntimeError, OSError, AttributeError, TypeError, ValueError, LookupError, EOFError) as error:
        raise InvalidData(
            f"the weights cannot be loaded into {type(module).__name__}: {str(error).partition(chr(10))[0]}",
            pointer="/weights",
            file=path,
            hint="name a .ckpt of Lightning, or a state_dict, of this module",
        ) from error


def export(fit: Fit, folder: Path) -> dict[str, str]:
    """Write ``model.ckpt``, which ``load_from_checkpoint`` of the module takes; weights and hyperparameters alone."""
    content = {
        "epoch": fit.view.current_epoch,
        "global_step": fit.view.global_step,
        "pytorch-lightning_version": lightning_version,
        "state_dict": fit.module.state_dict(),
        "loops": {},
        **_hyperparameters(fit.module),
    }
    if fit.view.is_global_zero:
        torch.save(content, folder / "model.ckpt")
    return {"ckpt": "model.ckpt"}


def _hyperparameters(owner: Any) -> dict[str, Any]:
    """Return what ``save_hyperparameters`` has of a module or a data module, under Lightning's keys."""
    if owner is None or not owner.hparams:
        return {}
    return {
        owner.CHECKPOINT_HYPER_PARAMS_NAME: owner._hparams_name,
        owner.CHECKPOINT_HYPER_PARAMS_KEY: dict(owner.hparams),
    }


def _of_objects(fit: Fit) -> dict[str, Any]:
    """Return the hyperparameters of the module and the data module, in which there may be objects."""
    return _hyperparameters(fit.view.datamodule) | _hyperparameters(fit.module)


def _leave_objects_out(fit: Fit, checkpoint: dict[str, Any], own: Set[str]) -> None:
    """Remove entries that a checkpoint cannot hold: hyperparameters, and what ``on_save_checkpoint`` has added.

    A resumed run takes them from its module, which is made of the same arguments.

    :param own: The keys of everything else.
    """
    checkpoint["hostcore"]["left_out"] = left_out = []
    for key in checkpoint.keys() - own:
        if found := _object_in(checkpoint[key]):
            del checkpoint[key]
            left_out.append(key)
            if key not in _hyperparameters(fit.module) and key not in fit.left_out and fit.view.is_global_zero:
                fit.left_out.add(key)
                fit.ctx.warn(
                    f"on_save_checkpoint adds {key!r}, which holds a {found} and is in no checkpoint: a resumed run "
                    "takes it from the new module; store what changes in training as tensors and plain values"
                )
    left_out.sort()


def _object_in(value: Any) -> str:
    """Return the class of an object that a checkpoint cannot hold; empty if there is none."""
    if type(value) in (dict, OrderedDict, Counter):
        return next(filter(None, map(_object_in, value.values())), "")
    if type(value) in (list, tuple):
        return next(filter(None, map(_object_in, value)), "")
    stored = isinstance(value, (torch.Tensor, np.ndarray, np.generic, torch.dtype))
    return "" if stored or type(value) in (bool, int, float, str, bytes, type(None)) else type(value).__name__


def _beside(fit: Fit) -> dict[str, Any]:
    state, place = fit.ctx.run_state, _place(fit)
    own = place.pop("own") | {"unsaved": fit.unsaved.captured()}
    if fit.view.world_size > 1:  # each rank adds up what it has seen
        ranks: list[Any] = [None] * fit.view.world_size
        dist.all_gather_object(ranks, on_device("cpu", own))
    else:
        ranks = [own]
    del place["epoch"], place["global_step"]  # Lightning's checkpoints have them above
    return {
        "ranks": ranks,
        **place,
        "stopped": fit.ctx.job.run_id if fit.ended and state.step < state.total_steps else "",
        "frozen": [name for name, one in fit.module.named_parameters() if not one.requires_grad],
        "running": {name: one.track_running_stats for name, one in _norms(fit.module)},
        "gradients": _gradients(fit),
    }


def _place(fit: Fit) -> dict[str, Any]:
    """Return the position of the hooks, and logged values."""
    view, connector = fit.view, fit.view._logger_connector
    return {
        "own": {"metrics": metric_states(fit.module), "results": result_states(view._results)},
        "epoch": view.current_epoch,
        "global_step": view.global_step,
        "logged": {
            "callback": dict(connector._callback_metrics),
            "log": dict(connector._logged_metrics),
            "pbar": dict(connector._progress_bar_metrics),
        },
        "first_loop_iter": connector._first_loop_iter,
        "current_fx": connector._current_fx,
        "in_epoch": fit.in_epoch,
        "epoch_is_complete": fit.epoch_is_complete,
        "awaits_validation": fit.awaits_validation,
        "last_index": fit.last_index,
        "modes": dict(fit.modes) if fit.modes is not None else fit.modes_now(),
    }


def _gradients(fit: Fit) -> dict[str, torch.Tensor]:
    """Those that wait for a later step, where a module with manual optimization accumulates them itself."""
    if fit.stepped:
        return {}
    return {name: one.grad for name, one in fit.module.named_parameters() if one.grad is not None}


def _norms(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Layers whose statistics a callback may freeze."""
    return ((name, one) for name, one in module.named_modules() if hasattr(one, "track_running_stats"))


def _restore_parameters(fit: Fit, beside: Mapping[str, Any]) -> None:
    """Restore the set of trained parameters, and gradients that wait for a later step."""
    for name, one in _norms(fit.module):
        one.track_running_stats = beside["running"].get(name, one.track_running_stats)
    frozen = set(beside["frozen"])
    for name, parameter in fit.module.named_parameters():
        parameter.requires_grad_(name not in frozen)
        gradient = beside["gradients"].get(name)
        parameter.grad = None if gradient is None else gradient.to(parameter.device)
    fit.stepped = 0 if beside["gradients"] else 1


def _restore_place(fit: Fit, place: Mapping[str, Any], own: Mapping[str, Any] | None) -> None:
    """Stand where :func:`_place` was called.

    :param own: What this rank had added up; None: that is left as it is.
    """
    view, connector, logged = fit.view, fit.view._logger_connector, place["logged"]
    if own is not None:
        load_metric_states(fit.module, own["metrics"])
        load_result_states(view._results, own["results"], fit.module, view.strategy)
    connector._callback_metrics, connector._logged_metrics = dict(logged["callback"]), dict(logged["log"])
    connector._progress_bar_metrics = dict(logged["pbar"])
    connector._first_loop_iter, connector._current_fx = place["first_loop_iter"], place["current_fx"]
    fit.in_epoch, fit.epoch_is_complete = place["in_epoch"], place["epoch_is_complete"]
    fit.awaits_validation, fit.last_index = place["awaits_validation"], place["last_index"]
    fit.modes = place["modes"]


def _reach(fit: Fit, place: Mapping[str, Any]) -> None:
    """Stand again where the run has come, behind a state that went back."""
    fit.view.current_epoch, fit.view.global_step = place["epoch"], place["global_step"]
    _restore_place(fit, place, place["own"])
