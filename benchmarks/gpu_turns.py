"""hostcore's loop and a plain loop in turns, in one process: what the trainers of ``gpu_ways.py`` share.

A stretch of either takes its turn, with the device brought to rest between them; the first stretch of both warms up.
Behind the rounds come windows: the steps between two cadence steps, traced by torch's profiler, then watched by torch's
sync debug mode.
"""

import contextlib
import json
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from torch.profiler import ProfilerActivity, profile

from hostcore_hookspecs import StepContext

#: The default ``metric_every`` of jobs: at these steps both loops read their loss.
CADENCE = 10
#: What a process waits in, as CUDA's runtime calls it; and copies to main memory, which are waited for.
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy", "Memcpy DtoH")
#: What reads the content of a tensor on any device: ``.item()``, ``bool()``, ``float()``.
READ = "aten::_local_scalar_dense"

Figures = dict[str, list[float]]
#: Begin and end, in microseconds.
Span = tuple[float, float]


@attrs.frozen(kw_only=True)
class Measured:
    """Hyperparameters of them all."""

    #: The file that the figures are written into.
    result: str
    rounds: int
    #: Rounds end sooner when this is over.
    seconds: float
    #: The steps of a stretch; a multiple of :data:`CADENCE`.
    stretch: int = CADENCE


class Measuring:
    """Base of the trainers, whose runs are never resumed."""

    figures: Figures
    notes: list[str]

    def setup(self, ctx: StepContext) -> None:
        self.figures, self.notes, self.step = {}, [], 0
        self.ends = time.monotonic() + ctx.hyperparams.seconds
        self.device = torch.device(ctx.device)
        if self.device.type == "cpu":
            torch.set_num_threads(1)

    def note(self, ctx: StepContext, **figures: float) -> None:
        """Add a value to each figure, and write them all."""
        for name, value in figures.items():
            self.figures.setdefault(name, []).append(value)
        file = Path(ctx.hyperparams.result)
        file.with_suffix(".tmp").write_text(json.dumps({"figures": self.figures, "notes": self.notes}))
        file.with_suffix(".tmp").replace(file)

    def at_rest(self) -> float:
        """The time when the device has done all that it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def is_over(self, ctx: StepContext, rounds: int) -> bool:
        """Return whether so many rounds are enough."""
        return rounds >= ctx.hyperparams.rounds or (rounds > 0 and time.monotonic() > self.ends)

    def state_dict(self, state: Any) -> dict[str, object]:
        return {}

    def load_state_dict(self, state: Any, payload: dict[str, object]) -> None:
        raise NotImplementedError("this run is never resumed")


class Turns(Measuring):
    """A trainer whose steps and those of a plain loop are timed in turns."""

    def setup(self, ctx: StepContext) -> None:
        super().setup(ctx)
        self.ours: list[float] = []
        self.plain: list[float] = []
        #: The step from which on the windows are; None: there are rounds yet.
        self.window: int | None = None
        self.profile: Any = None
        self.watch = contextlib.ExitStack()
        self.seen: list[warnings.WarningMessage] = []

    def plain_step(self, number: int) -> None:
        """Make one step of the plain loop."""
        raise NotImplementedError

    def measured(self, ctx: StepContext, ours: float, plain: float) -> None:
        """Note a round: seconds of a step of either."""
        raise NotImplementedError

    def traced(self, ctx: StepContext, ours: Any, plain: Any) -> None:
        """Note what the profiler has seen between two cadence steps of either loop."""
        self.note(ctx, reads=reads_of(ours) - reads_of(plain))
        if self.device.type == "cuda" and not all(map(kernels_of, (ours, plain))):
            self.notes.append("the profiler has seen no kernel")
        elif self.device.type == "cuda":  # less those of the profiler itself, which the plain loop's trace has, too
            self.note(ctx, waits=waits_of(ours) - waits_of(plain))

    def tick(self, ctx: StepContext) -> None:
        """Called before each step."""
        step, self.step, stretch = self.step, self.step + 1, ctx.hyperparams.stretch
        if self.window is not None:
            self._look(step - self.window, ctx)
        elif step % stretch == 0:
            self._turn(step, stretch, ctx)

    def _turn(self, step: int, stretch: int, ctx: StepContext) -> None:
        if step:
            self.ours.append((self.at_rest() - self._began) / stretch)
        began = self.at_rest()
        for number in range(stretch):
            self.plain_step(number)
        self.plain.append((self.at_rest() - began) / stretch)
        rounds = len(self.ours) - 1
        if rounds == 0:  # the first stretch of both warms up, and compiles
            self.ends = time.monotonic() + ctx.hyperparams.seconds
        elif rounds > 0:
            self.measured(ctx, self.ours[-1], sum(self.plain[-2:]) / 2)
        if self.is_over(ctx, rounds):
            self.window = step
            self._look(0, ctx)
        self._began = self.at_rest()

    def _look(self, step: int, ctx: StepContext) -> None:
        """Trace the steps behind one cadence step up to the next, then watch them."""
        if step == 0:
            with tracing() as self._plain_trace:
                for number in range(CADENCE - 1):
                    self.plain_step(number)
            self.profile = tracing()
            self.profile.__enter__()
        elif step == CADENCE - 1:
            self.profile.__exit__(None, None, None)
            self.traced(ctx, self.profile, self._plain_trace)
        elif step == CADENCE and self.device.type == "cuda":
            self.seen = self.watch.enter_context(warnings.catch_warnings(record=True))
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
        elif step == 2 * CADENCE - 1:
            if self.device.type == "cuda":
                torch.cuda.set_sync_debug_mode("default")
                self.watch.close()
                found = [one for one in self.seen if "synchronizing CUDA operation" in str(one.message)]
                self.notes += sorted({f"waits in {one.filename}:{one.lineno}" for one in found})
                self.note(ctx, warned=len(found))
            ctx.request_stop("measured")


def tracing() -> Any:
    """torch's profiler, of host and device."""
    cuda = [ProfilerActivity.CUDA] * torch.cuda.is_available()
    return profile(activities=[ProfilerActivity.CPU, *cuda])


def waits_of(trace: Any) -> int:
    """Count the waits of a traced process for the device."""
    return sum(event.name.startswith(WAITS[-1]) or event.name in WAITS for event in trace.events())


def reads_of(trace: Any) -> int:
    """Count the reads of tensors in a traced process."""
    return sum(event.name == READ for event in trace.events())


def kernels_of(trace: Any) -> list[Any]:
    """Return the computations of a GPU, without copies."""
    cuda = torch.autograd.DeviceType.CUDA
    return [event for event in trace.events() if event.device_type == cuda and not event.name.startswith("Mem")]


def overlap(copies: Sequence[Span], kernels: Sequence[Span]) -> float:
    """The share of the copies' time in which a kernel ran; kernels of one stream do not overlap."""
    shared = sum(max(0.0, min(end, until) - max(begin, since)) for begin, end in copies for since, until in kernels)
    return shared / (sum(end - begin for begin, end in copies) or 1.0)
