"""The callback ``step-debugger``: looks at some steps of a replay, and ends it behind them."""

import bdb
import math
import os
import pdb
import resource
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import attrs
import orjson
from annotated_types import Ge, Le

from hostcore_debug.named import named_parameters
from hostcore_debug.replaced_rows import ReplacedRows
from hostcore_hookspecs import InvalidSettings, StepContext, hookimpl

#: Environment variable of a replay: its folder. A job alone cannot use the callback.
FOLDER_VARIABLE: Final = "HOSTCORE_DEBUG_FOLDER"
#: Exit code of a replay whose debugger was left.
LEFT: Final = 3


class StepDebugger:
    """Writes ``step-N.json`` for each step that is looked at: gradient and update norms by module, time and memory.

    :param settings: The job's settings of the callback.
    """

    CHANGES_TRAINING = True

    @attrs.frozen(kw_only=True)
    class Settings:
        """Settings of the callback ``step-debugger``."""

        first: Annotated[int, Ge(1)] = attrs.field(metadata={"help": "The first step that is looked at."})
        last: Annotated[int, Ge(1)] = attrs.field(metadata={"help": "The last one; the run ends behind it."})
        pdb: bool = attrs.field(default=False, metadata={"help": "Stop in pdb before the first of these steps."})
        debugpy: Annotated[int, Ge(0), Le(65535)] = attrs.field(
            default=0, metadata={"help": "Wait there for an editor at this port; 0: do not."}
        )
        without: tuple[int, ...] = attrs.field(
            default=(), metadata={"help": "Rows, by number, that others of their step take the place of."}
        )
        measures: bool = attrs.field(default=True, metadata={"help": "Measure gradients and updates."})

    def __init__(self, settings: Settings) -> None:
        folder = os.environ.get(FOLDER_VARIABLE)
        if folder is None:
            message = "only `hostcore debug` uses this callback: it writes where it is told to, and opens debuggers"
            raise InvalidSettings("", message, hint="leave it out of the job: hostcore debug RUN --step N")
        self._settings, self._folder = settings, Path(folder)

    @hookimpl(wrapper=True, specname="open_dataset")
    def around_open_dataset(self, ctx: Any) -> Generator[None, Any, Any]:
        """Replace rows of the training data."""
        opened = yield
        return (
            ReplacedRows(opened, self._settings.without) if self._settings.without and ctx.split == "train" else opened
        )

    @hookimpl(wrapper=True, specname="train_step")
    def around_train_step(self, prepared_batch: Any, state: Any, ctx: StepContext) -> Generator[None, Any, Any]:
        """Look at a step, and ask for the end of the run behind the last one.

        Leaving the debugger ends the process: it trains a copy, which nobody goes on with.
        """
        try:
            return (yield from self._around(prepared_batch, state, ctx))
        except bdb.BdbQuit:
            os._exit(LEFT)

    def _around(self, prepared_batch: Any, state: Any, ctx: StepContext) -> Generator[None, Any, Any]:
        step = ctx.run_state.step + 1
        settings = self._settings
        if step < settings.first:
            return (yield)
        if step == settings.first:
            self._stop_here(prepared_batch, state, ctx)
        if step >= settings.last:
            ctx.request_stop(f"step {settings.last:,} was replayed")
        if not settings.measures:
            return (yield)
        measure = _Measure(state)
        started = time.perf_counter()
        with measure.gradients():
            result = yield
        seconds = time.perf_counter() - started
        found = {"step": step, "seconds": seconds, "peak_memory_bytes": _peak(ctx.device), **measure.norms()}
        if ctx.rank == 0:
            (self._folder / f"step-{step:09}.json").write_bytes(orjson.dumps(found))
        return result

    def _stop_here(self, prepared_batch: Any, state: Any, ctx: StepContext) -> None:  # noqa: ARG002 - for the debugger
        """Stop in the debugger that is asked for, with these arguments of the step at hand."""
        if self._settings.debugpy and ctx.rank == 0:
            import debugpy

            debugpy.listen(("127.0.0.1", self._settings.debugpy))
            debugpy.wait_for_client()
            debugpy.breakpoint()
        if self._settings.pdb:
            pdb.set_trace()


class _Measure:
    """Norms of the gradients and the updates of a step, by module.

    :param state: What the trainer's ``configure`` returned.
    """

    def __init__(self, state: Any) -> None:
        self._parameters = dict(named_parameters(state))
        self._before = {name: one.detach().clone() for name, one in self._parameters.items()}
        self._gradients: dict[str, float] = {}

    @contextmanager
    def gradients(self) -> Iterator[None]:
        """Read the gradients when an optimizer is about to use them; of a step without an update, behind it."""
        if not self._parameters:
            yield
            return
        from hostcore_toolkit import before_updates

        with before_updates(lambda _: self._read()):
            yield
        if not self._gradients:
            self._read()

    def norms(self) -> Mapping[str, Mapping[str, float] | None]:
        """Return the norms; None for each where the state of the trainer has no module of torch."""
        if not self._parameters:
            return {"gradients": None, "updates": None}
        changed = {name: _norm(one.detach() - self._before[name]) for name, one in self._parameters.items()}
        return {"gradients": _by_module(self._gradients), "updates": _by_module(changed)}

    def _read(self) -> None:
        self._gradients = {name: _norm(one.grad) for name, one in self._parameters.items() if one.grad is not None}


def _norm(tensor: Any) -> float:
    whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor  # with FSDP2: on all ranks alike
    return float(whole.detach().to_dense().float().norm() if whole.is_sparse else whole.detach().float().norm())


def _by_module(norms: Mapping[str, float]) -> Mapping[str, float]:
    squares: dict[str, float] = {}
    for name, one in norms.items():
        module = name.rpartition(".")[0] or name
        squares[module] = squares.get(module, 0.0) + one * one
    return {name: math.sqrt(one) for name, one in squares.items()}


def _peak(device: Any) -> int:
    """Return the most memory that the process has held: of its GPU, or else of the machine."""
    if str(device).startswith("cuda"):
        import torch

        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
