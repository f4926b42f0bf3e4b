"""The callback ``nonfinite-guard``: a loss or gradients that are NaN or infinite do not pass unseen."""

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import attrs
from annotated_types import Ge

from hostcore_builtin_plugins.callbacks.nonfinite import (
    GRADIENTS,
    Finding,
    Seen,
    WatchedMetrics,
    first_nonfinite,
    largest_element,
)
from hostcore_builtin_plugins.callbacks.optimizer_hook import OptimizerHook, parameters_with_gradients, refuse_closure
from hostcore_builtin_plugins.callbacks.step_metrics import is_recorded, with_metrics
from hostcore_hookspecs import HostcoreError, InvalidSettings, StepContext, hookimpl

if TYPE_CHECKING:
    import torch

NAME = "nonfinite-guard"
SKIPPED = "train/skipped_steps"
ROLL_BACKS = "train/roll_backs"
#: Below it, a gradient that fp16 can hold at full precision is scaled to zero: the scaler has given up.
SMALLEST_SCALE = 2.0**-14


class NotFinite(HostcoreError):
    """The loss, the gradients, or another watched metric is NaN or infinite."""

    code = "training.nonfinite"


class NonfiniteGuard:
    """Watches the loss and the gradients of every step. All ranks decide alike."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """The watched values, and the action."""

        action: Literal["stop", "skip", "roll-back"] = attrs.field(
            default="stop",
            metadata={
                "help": "`stop` fails the run; `skip` leaves the update out; `roll-back` loads the trainer's state "
                "from the newest checkpoint and goes on with the next data."
            },
        )
        metrics: tuple[str, ...] = attrs.field(
            default=("train/loss",), metadata={"help": "Metrics of `train_step` to watch, as they are recorded."}
        )
        gradients: bool = attrs.field(
            default=True,
            metadata={
                "help": "Watch the gradients as well; the trainer has to call `ctx.register_optimizer`. In fp16 the "
                "gradient scaler does."
            },
        )
        check_every: Annotated[int, Ge(1)] | None = attrs.field(
            default=None,
            metadata={
                "help": "Read what was seen every so many steps, and before every checkpoint; a larger number makes a "
                "GPU wait less often and loses nothing. Default: the job's `metric_every`, where it is waited for "
                "anyway; with `skip` 1."
            },
        )
        max_in_a_row: Annotated[int, Ge(1)] = attrs.field(
            default=5, metadata={"help": "With `skip`: fail the run when so many steps in a row were not finite."}
        )
        max_roll_backs: Annotated[int, Ge(1)] = attrs.field(
            default=3, metadata={"help": "With `roll-back`: how often in all; the next time fails the run."}
        )

    def __init__(self, *, settings: Settings) -> None:
        if settings.action == "skip" and settings.check_every not in (None, 1):
            raise InvalidSettings(
                "/check_every", "to skip an update, every step has to be checked", hint="leave it out"
            )
        if settings.action == "skip" and not settings.gradients:
            raise InvalidSettings("/gradients", "only the gradients tell before the update that it is to be skipped")
        if not (settings.metrics or settings.gradients):
            raise InvalidSettings("/metrics", "neither a metric nor the gradients are watched")
        self._settings = settings
        self._check_every = settings.check_every or 1
        instead = f'set "gradients" of {NAME} to false, which works with the actions "stop" and "roll-back"'
        self._hook = OptimizerHook(self._before_step, name=NAME, instead=instead)
        self._metrics = WatchedMetrics(settings.metrics)
        self._ctx = StepContext()
        self._unread: list[Seen] = []
        #: Of the present step: the gradients, whether the optimizer was called, whether its update was left out.
        self._gradients: list[tuple[str, Any]] = []
        self._updated = False
        self._skipping = False
        self._skipped = 0
        self._in_a_row = 0
        self._roll_backs = 0
        #: The checkpoint gone back to, until a check has found everything finite; and those that did not help.
        self._gone_back_to: int | None = None
        self._useless: set[int] = set()

    def on_train_begin(self, ctx: StepContext) -> None:
        """Begin to watch."""
        self._ctx = ctx
        if self._settings.check_every is None and self._settings.action != "skip":
            self._check_every = ctx.job.metric_every or 1
        # In fp16 the scaler looks at the gradients, and skips updates in the normal course of things.
        if self._settings.gradients and (ctx.scaler is None or self._settings.action == "skip"):
            self._hook.attach(ctx)

    def on_train_end(self) -> None:
        """End."""
        self._hook.detach()

    def on_exception(self) -> None:
        """End."""
        self._hook.detach()

    @hookimpl(wrapper=True)
    def load_state_dict(self, ctx: StepContext) -> Generator[None, Any, Any]:
        """The trainer may make a new optimizer when it goes back to a checkpoint."""
        result = yield
        self._hook.follow(ctx)
        return result

    @hookimpl(wrapper=True)
    def train_step(self, ctx: StepContext) -> Generator[None, Any, Any]:
        """Watch a step."""
        self._gradients, self._updated, self._skipping = [], False, False
        result = yield
        step = ctx.run_state.step + 1
        self._unread.append(Seen(step=step, values=[*self._metrics.values(result), *self._gradients]))
        if self._is_due(step, ctx):
            self._check(ctx)
        recorded = is_recorded(ctx)
        if self._metrics.missing and (recorded or not ctx.job.metric_every):
            raise self._never_reported(result, step)
        return with_metrics(result, self._counts()) if recorded and self._settings.action != "stop" else result

    def on_validation_begin(self, ctx: StepContext) -> None:
        """Before another callback marks this state as the best."""
        self._check(ctx)

    def on_epoch_end(self, ctx: StepContext) -> None:
        """Before another callback marks this state as the best."""
        self._check(ctx)

    def on_stop_requested(self, ctx: StepContext) -> None:
        """Before the last checkpoint."""
        self._check(ctx)

    def callback_state(self) -> dict[str, Any]:
        """Return the counts."""
        return {
            "skipped": self._skipped,
            "in_a_row": self._in_a_row,
            "roll_backs": self._roll_backs,
            "gone_back_to": self._gone_back_to,
            "useless": sorted(self._useless),
        }

    def load_callback_state(self, payload: Mapping[str, Any]) -> None:
        """Go on counting."""
        self._skipped, self._in_a_row = payload["skipped"], payload["in_a_row"]
        self._roll_backs, self._gone_back_to = payload["roll_backs"], payload["gone_back_to"]
        self._useless = set(payload["useless"])

    def _before_step(self, optimizer: "torch.optim.Optimizer", args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        refuse_closure(NAME, optimizer, args, kwargs)
        if self._ctx.scaler is not None:
            self._updated = not getattr(optimizer, "found_inf", False)  # fused optimizers skip by themselves
            return
        largest = largest_element(parameters_with_gradients(optimizer))
        own = [] if largest is None else [(GRADIENTS, largest)]
        self._gradients += own
        self._updated = True
        if self._settings.action == "skip":
            seen = Seen(step=self._ctx.run_state.step + 1, values=own)
            if self._ctx.any_rank(first_nonfinite([seen]) is not None):
                self._updated, self._skipping = False, True
                for group in optimizer.param_groups:
                    for one in group["params"]:
                        one.grad = None  # which optimizers take as: leave this one alone

    def _is_due(self, step: int, ctx: StepContext) -> bool:
        checkpoint_every = ctx.job.checkpoint_every
        return (
            step % self._check_every == 0
            or (checkpoint_every > 0 and step % checkpoint_every == 0)
            or ctx.checkpoint_due
            or step == ctx.run_state.total_steps
        )

    def _check(self, ctx: StepContext) -> None:
        """Read what was seen since the last time, and act on it. A collective: all ranks have seen the same steps."""
        seen, self._unread = self._unread, []
        if not seen:
            return
        finding = first_nonfinite(seen) or _given_up(ctx, seen[-1].step)
        if not (self._skipping or ctx.any_rank(finding is not None)):
            self._in_a_row, self._gone_back_to = 0, None
            return
        if self._settings.action == "skip":
            self._skip(finding, seen, ctx)
        elif self._settings.action == "roll-back":
            self._roll_back(finding, seen, ctx)
        else:
            raise self._failure(finding, seen, ctx)

    def _skip(self, finding: Finding | None, seen: list[Seen], ctx: StepContext) -> None:
        self._in_a_row += 1
        self._skipped += not self._updated
        what = finding or f"something was not finite on another rank at step {seen[-1].step}"
        if self._in_a_row >= self._settings.max_in_a_row:
            raise self._failure(finding, seen, ctx, f", as at {self._in_a_row} steps in a row")
        if self._updated:
            self._tell(ctx, f"{what}, but the gradients were finite, so the update was made")
        else:
            self._tell(ctx, f"{what}, so the update was skipped; {self._skipped} so far")

    def _tell(self, ctx: StepContext, what: str) -> None:
        """The first rank speaks for all: they have found the same."""
        if ctx.rank == 0:
            ctx.warn(f"{NAME}: {what}")

    def _roll_back(self, finding: Finding | None, seen: list[Seen], ctx: StepContext) -> None:
        if self._gone_back_to is not None:
            self._useless.add(self._gone_back_to)
        there = [one.step for one in ctx.run_state.checkpoints if one.step not in self._useless]
        if ctx.any_rank(not there):
            raise self._failure(finding, seen, ctx, ", and there is no checkpoint to go back to")
        if self._roll_backs == self._settings.max_roll_backs:
            raise self._failure(finding, seen, ctx, f", after {self._roll_backs} roll-backs")
        self._roll_backs += 1
        self._gone_back_to = there[-1]
        reason = str(finding) if finding else f"something was not finite on another rank at step {seen[-1].step}"
        ctx.request_restore(there[-1], reason)

    def _failure(self, finding: Finding | None, seen: list[Seen], ctx: StepContext, more: str = "") -> NotFinite:
        """Return the error that ends the run. A collective: each rank names all, since one of them is shown."""
        where = ""
        if ctx.world_size > 1:
            ranks = [rank for rank in range(ctx.world_size) if ctx.any_rank(finding is not None and rank == ctx.rank)]
            where = f" (found on rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))})"
        what = str(finding) if finding else f"something watched was not finite at step {seen[-1].step} or before"
        return NotFinite(
            f"{what}{where}{more}",
            hint="lower the learning rate, clip the gradients (the callback grad-clip), or look at the data of that "
            "step; torch.autograd.set_detect_anomaly(True) finds the operation that it comes from"
            + ('; "action" can be "skip" or "roll-back"' if self._settings.action == "stop" else ""),
        )

    def _counts(self) -> dict[str, int]:
        return {SKIPPED: self._skipped} if self._settings.action == "skip" else {ROLL_BACKS: self._roll_backs}

    def _never_reported(self, result: Any, step: int) -> HostcoreError:
        missing = " and ".join(map(repr, self._metrics.missing))
        reported = ", ".join(sorted(map(str, getattr(result, "metrics", ())))) or "none"
        return InvalidSettings(
            "/metrics",
            f"{NAME} watches {missing}, which train_step has not reported up to step {step}; its metrics: {reported}",
            hint='name the metrics to watch in "metrics"; an empty list watches the gradients alone',
        )


def _given_up(ctx: StepContext, step: int) -> Finding | None:
    """In fp16: that the gradients were infinite for so long that the scaler has nothing left to lower."""
    if ctx.scaler is None or (scale := ctx.scaler.get_scale()) >= SMALLEST_SCALE:
        return None
    what = "the scale of the gradient scaler, lowered because the gradients were never finite,"
    return Finding(step=step, what=what, value=scale)
