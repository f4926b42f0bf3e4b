"""The callback ``profiler``: a trace of some steps by ``torch.profiler``, in the run directory."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import attrs
from annotated_types import Ge

from hostcore_hookspecs import InvalidSettings, RunState, StepContext

if TYPE_CHECKING:
    from torch.profiler import ProfilerActivity, profile

NAME = "profiler"
#: Rows of the table of key averages.
_ROWS = 100
_FORMAT = "%s: %s failed, so there is no trace and the run goes on: %s"

_log = logging.getLogger(__name__)


class Profiler:
    """Traces some steps of every attempt. Whatever goes wrong with the profiler, the run goes on."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Which steps, and what is recorded of them."""

        start_step: Annotated[int, Ge(0)] = attrs.field(
            default=10, metadata={"help": "Steps of this attempt to let pass before the first that is traced."}
        )
        steps: Annotated[int, Ge(1)] = attrs.field(default=5, metadata={"help": "Steps to trace."})
        warmup: Annotated[int, Ge(0)] = attrs.field(
            default=2,
            metadata={
                "help": "Steps right before the first, traced and thrown away: the profiler slows its own first."
            },
        )
        record_shapes: bool = attrs.field(default=False, metadata={"help": "Record the shapes of operators' inputs."})
        profile_memory: bool = attrs.field(default=False, metadata={"help": "Record what is allocated and freed."})
        with_stack: bool = attrs.field(
            default=False, metadata={"help": "Record the Python stack of each operator. Large and slow."}
        )

    def __init__(self, *, settings: Settings) -> None:
        if settings.warmup > settings.start_step:
            raise InvalidSettings(
                "/warmup",
                f"there are no {settings.warmup} steps for warming up before the first traced one",
                hint="make start_step at least as large as warmup",
            )
        self._settings = settings
        self._folder = Path()
        self._rank = 0
        #: Finished steps when the attempt began; when this many more are finished, warming up begins.
        self._began_at = 0
        self._device = "cpu"
        self._profile: profile | None = None
        #: Whether the steps of this attempt were traced, or cannot be.
        self._over = False

    def on_train_begin(self, run_state: RunState, ctx: StepContext) -> None:
        """Find out where the attempt begins."""
        self._folder, self._rank = Path(ctx.run_dir, NAME), ctx.rank
        self._began_at = run_state.step
        self._device = str(ctx.device).partition(":")[0]
        self._advance(run_state.step)

    def on_batch_end(self, run_state: RunState) -> None:
        """Go on to the next step."""
        if not self._over:
            self._advance(run_state.step)

    def on_train_end(self, run_state: RunState) -> None:
        """Write what there is, if the run ends in the middle of the traced steps."""
        self._end(run_state.step)

    def on_exception(self, run_state: RunState) -> None:
        """Write what there is, up to where the run failed."""
        self._end(run_state.step + 1)

    def _advance(self, step: int) -> None:
        settings, passed = self._settings, step - self._began_at
        if self._profile is not None:
            if passed == settings.start_step + settings.steps:
                self._end(step)
            else:
                self._guarded("the profiler", self._profile.step)
        elif passed == settings.start_step - settings.warmup:
            self._guarded("starting the profiler", self._start)

    def _start(self) -> None:
        import torch

        settings = self._settings
        self._profile = torch.profiler.profile(
            activities=_activities(self._device),
            schedule=torch.profiler.schedule(wait=0, warmup=settings.warmup, active=settings.steps, repeat=1),
            record_shapes=settings.record_shapes,
            profile_memory=settings.profile_memory,
            with_stack=settings.with_stack,
        )
        self._profile.start()

    def _end(self, last: int) -> None:
        """Stop, and write the trace if there is something in it.

        :param last: The last step that was traced, or begun.
        """
        traced, self._profile, self._over = self._profile, None, True
        if traced is not None:
            self._guarded("writing the trace", lambda: self._stop(traced, last))

    def _stop(self, traced: "profile", last: int) -> None:
        traced.stop()
        first = self._began_at + self._settings.start_step + 1
        if last >= first:
            self._write(traced, f"rank-{self._rank}.step-{first}-{last}")

    def _write(self, traced: "profile", stem: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._folder / f".{stem}.json.gz"  # its ending tells torch to compress
        traced.export_chrome_trace(str(unfinished))
        unfinished.replace(self._folder / f"{stem}.json.gz")
        sort_by = "self_cpu_time_total" if self._device == "cpu" else "self_device_time_total"
        table = traced.key_averages().table(sort_by=sort_by, row_limit=_ROWS)
        (self._folder / f"{stem}.txt").write_text(table + "\n", encoding="utf-8")

    def _guarded(self, what: str, action: Callable[[], Any]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - a profiler must not end a run
            self._profile, self._over = None, True
            _log.warning(_FORMAT, NAME, what, error)


def _activities(device: str) -> "list[ProfilerActivity]":
    """Return the traced activities: the CPU, and the device if the profiler knows it."""
    import torch

    known = torch.profiler.supported_activities()  # type: ignore[no-untyped-call]
    of_device = getattr(torch.profiler.ProfilerActivity, device.upper(), torch.profiler.ProfilerActivity.CPU)
    return [one for one in known if one in (torch.profiler.ProfilerActivity.CPU, of_device)]
