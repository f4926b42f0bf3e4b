"""Samples: what the trainer generates for each request of the job, in a folder of its own."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from hostcore.worker.metrics import InvalidStepResult
from hostcore.worker.modes import evaluating
from hostcore.worker.ranks.protocol import Ranks
from hostcore.worker.stop import StopSwitch
from hostcore_hookspecs import events
from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.run_state import GeneratedSample, SampleRequest

Call = Callable[..., Any]


@attrs.frozen(kw_only=True, eq=False)
class Sampling:
    """Runs the trainer's ``generate_sample``. A sample appears under its name when it is complete."""

    requests: Sequence[SampleRequest]
    #: The folder of all samples of the run; absolute.
    folder: Path
    #: Whether it lies on another machine than the first rank's; then nothing in it is kept.
    is_apart: bool = False
    generate_sample: Call
    on_sample_saved: Call
    #: What the trainer's ``configure`` returned.
    state: Any
    ctx: StepContext
    ranks: Ranks
    stop: StopSwitch
    emit: Callable[[events.Payload], None]

    def run(self, first: int = 0) -> int | None:
        """Generate a sample for every request, at the present step, unless the run is interrupted.

        Called by all ranks; the first one's counts. Each sample has random generators of its own, so that an attempt
        can begin with any of them.

        :param first: The number of the request to begin with.
        :return: That of the request that comes next; None behind the last.
        """
        run_state = self.ctx.run_state
        step = f"step-{run_state.step:06d}"
        for number, request in enumerate(self.requests[first:], first):
            if self.stop.interrupted is not None:
                return number
            with evaluating(self.state, seed=self.ctx.job.seed, step=run_state.step, rank=self.ctx.rank, number=number):
                self._generate(self.folder / step / f"{number}", request)
        return None

    def _generate(self, target: Path, request: SampleRequest) -> None:
        run_state = self.ctx.run_state
        hidden = target.with_name(f".{target.name}.writing")
        if self.ctx.rank == 0:
            shutil.rmtree(hidden, ignore_errors=True)
            hidden.mkdir(parents=True)
        elif self.is_apart:
            hidden.mkdir(parents=True, exist_ok=True)  # ranks of one machine share it
        self.ranks.barrier()
        info = self.generate_sample(self.state, run_state.step, request, str(hidden), self.ctx)
        self.ranks.barrier()
        if info is not None and not isinstance(info, Mapping):
            raise InvalidStepResult(
                f"generate_sample returned {type(info).__name__} at step {run_state.step}",
                hint="return a mapping of plain values to keep with the sample, or None",
            )
        if self.ctx.rank == 0:
            shutil.rmtree(target, ignore_errors=True)  # of an attempt that got as far before
            hidden.rename(target)
            self.emit(events.SampleSaved(path=f"{self.folder.name}/{target.parent.name}/{target.name}"))
        elif self.is_apart:
            shutil.rmtree(hidden, ignore_errors=True)
        sample = GeneratedSample(step=run_state.step, path=str(target), request=request, info=dict(info or {}))
        self.on_sample_saved(sample, run_state, self.ctx)
