"""The callback ``replay-check``: makes forward and backward of a step twice, and compares all that they compute.

The same batch, the same weights and the same random numbers have to give the same bits. A machine that now and then
computes something else, and reports no error, is found that way before it spoils the weights.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from itertools import zip_longest
from typing import Annotated, Any, Final

import attrs
from annotated_types import Ge

from hostcore_debug.named import named_buffers, named_modules, named_parameters
from hostcore_hookspecs import HostcoreError, InvalidSettings, KeepsStep, StepContext, hookimpl

NAME: Final = "replay-check"


class SilentCorruption(HostcoreError):
    """A step that was made twice from the same state has given two results."""

    code = "step.silent_corruption"


class ReplayCheck:
    """Makes every so-many-th step twice up to its update, and ends the run when the two differ by a bit."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Settings of the callback ``replay-check``."""

        every: Annotated[int, Ge(1)] = attrs.field(
            default=100, metadata={"help": "Check every so-many-th step; such a step takes about twice as long."}
        )
        retry: bool = attrs.field(
            default=True,
            metadata={
                "help": "Make a step that differs a third time: when two of the three are equal, warn and go on "
                "with them. Else the first difference ends the run."
            },
        )

    def __init__(self, *, settings: Settings) -> None:
        self._settings = settings
        #: Of the present step, if it is checked.
        self._check: _CheckedStep | None = None
        #: Steps of this attempt that were to be checked, and those that were.
        self._due = self._compared = 0
        #: Parameters that steps change before their update; found at the first step that is checked.
        self._changing: set[str] = set()

    def on_train_begin(self, ctx: StepContext) -> None:
        """Begin to check.

        :raises InvalidSettings: When the trainer's steps cannot be made again before their update.
        """
        if not ctx.repeats_steps:
            raise InvalidSettings(
                "",
                f"{NAME} makes steps twice, and the trainer does not declare that this can be done",
                hint="a trainer whose train_step changes nothing but gradients, buffers and random generators before"
                " optimizer.step() declares Capabilities(repeatable=True); for another, remove"
                f" {NAME} from the job's callbacks",
            )
        if ctx.scaler is not None:
            message = f"{NAME} cannot make a step again once its gradients are unscaled, as fp16 needs it"
            raise InvalidSettings("", message, hint='use "precision": "bf16" or "fp32"')

    def on_train_end(self, ctx: StepContext) -> None:
        """Warn when nothing could be checked."""
        if self._due and not self._compared:
            why = "weights were changed before the update" if self._changing else "no optimizer of torch made an update"
            ctx.warn(f"{NAME} has compared nothing: {why} in the steps that were due")

    @hookimpl(wrapper=True, specname="configure")
    def around_configure(self) -> Generator[None, Any, Any]:
        """Let a state that keeps what its steps change refuse it here, before the first step."""
        state = yield
        _keep(state, None)
        return state

    @hookimpl(wrapper=True)
    def train_step(self, prepared_batch: Any, state: Any, ctx: StepContext) -> Generator[None, Any, Any]:
        """Record what a step computes if it is to be checked. Entered again each time that the step is made again."""
        if (ctx.run_state.step + 1) % self._settings.every:
            return (yield)
        if self._check is None:
            put_back = _keep(state, prepared_batch)
            self._check = _CheckedStep(state, ctx, put_back, self._changing, retry=self._settings.retry)
        try:
            with self._check.recording():
                result = yield
        except Exception:
            self._check = None  # a step for which memory runs out begins anew, with other batches
            raise
        if self._check.warning and ctx.rank == 0:
            ctx.warn(self._check.warning)
        self._due, self._compared = self._due + 1, self._compared + self._check.was_compared
        self._check = None
        return result


@attrs.frozen
class _Computed:
    """A tensor that a step has computed."""

    #: ``output``, ``gradient``, ``gradient of all ranks`` or ``buffer``.
    kind: str
    name: str
    #: The sum of its bits as integers: one element of int64. A bit that flips changes it.
    digest: Any

    @property
    def place(self) -> tuple[str, str]:
        return self.kind, self.name


class _CheckedStep:
    """The passes of a step, from the same state to the same place before its update.

    :param state: The trainer's.
    :param put_back: Puts back what else the trainer's steps change.
    :param changing: Names of the parameters that steps change before their update; those that are found are added.
    :param retry: Whether a third pass decides.
    """

    def __init__(
        self, state: Any, ctx: StepContext, put_back: Callable[[], None], changing: set[str], *, retry: bool
    ) -> None:
        from hostcore.worker import randomness

        self._ctx, self._put_back, self._changing, self._retry = ctx, put_back, changing, retry
        self._parameters = dict(named_parameters(state))
        self._modules = dict(named_modules(state))
        self._buffers = dict(named_buffers(state))
        self._buffers_before = {name: one.detach().clone() for name, one in self._buffers.items()}
        everything = dict(named_parameters(state, trained=False))
        self._weights = {name: (one, _digest(one)) for name, one in everything.items()}
        self._weights_before = {name: everything[name].detach().clone() for name in changing}
        self._had_gradients = {name for name, one in self._parameters.items() if one.grad is not None}
        self._global = randomness.capture()
        self._own = ctx.rng.bit_generator.state
        self._passes: list[list[_Computed]] = []
        #: A difference that did not last; empty: there was none.
        self.warning = ""
        #: Whether the update is made, and whether passes have been compared before it.
        self.is_decided = self.was_compared = False

    def recording(self) -> AbstractContextManager[Any]:
        """Record outputs and gradients in the order in which they are computed, and compare them before the update."""
        from hostcore_toolkit import before_updates

        self._passes.append([])
        hooks = ExitStack()
        hooks.enter_context(before_updates(lambda _: self._compare()))
        for name, module in self._modules.items():
            handle = module.register_forward_hook(partial(self._record_output, name))
            hooks.callback(handle.remove)
        for name, parameter in self._parameters.items():
            handle = parameter.register_hook(partial(self._record, "gradient", name))
            hooks.callback(handle.remove)
        return hooks

    def _compare(self) -> None:
        """All gradients of a pass are there: make another, or return for the update to be made.

        :raises SilentCorruption: The passes differ.
        """
        if self.is_decided:  # by the first of the step's updates
            return
        for name, parameter in self._parameters.items():
            if parameter.grad is not None:
                self._record("gradient of all ranks", name, parameter.grad)
        for name, buffer in self._buffers.items():
            self._record("buffer", name, buffer)
        if len(self._passes) == 1:
            if self._ctx.any_rank(self._changes_weights()):  # the next step that is due has copies of them
                self.is_decided = True
                return
            self._make_again()
        *_, before, last = self._passes
        differs = self._ctx.any_rank(_first_difference(before, last) is not None)
        if len(self._passes) == 3:
            differs = differs and self._ctx.any_rank(_first_difference(self._passes[0], last) is not None)
        elif differs and self._retry:
            self._make_again()
        self.is_decided = self.was_compared = True
        if differs or len(self._passes) == 3:
            self._report(lasts=differs)

    def _changes_weights(self) -> bool:
        """Return whether the step has changed parameters that are not kept, and note them."""
        names = list(self._weights)
        now = [_digest(one) for one, _ in self._weights.values()]
        changed = {names[place] for place in _differing([before for _, before in self._weights.values()], now)}
        is_new = not changed <= self._changing
        self._changing |= changed
        return is_new

    def _make_again(self) -> None:
        from hostcore.worker import randomness

        randomness.restore(self._global)
        self._ctx.rng.bit_generator.state = self._own
        for name, buffer in self._buffers.items():
            buffer.copy_(self._buffers_before[name])
        for name, parameter in self._parameters.items():
            if name not in self._had_gradients:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()
        for name, before in self._weights_before.items():
            self._weights[name][0].detach().copy_(before)
        self._put_back()
        self._ctx.repeat_step()

    def _report(self, *, lasts: bool) -> None:
        found = _first_difference(self._passes[0], self._passes[1])
        places = _of_all_ranks(self._ctx, None if found is None else found.place)
        # A difference in what the ranks have exchanged is there on all of them; before, on the rank that made it.
        origins = [(rank, place) for rank, place in places if place[0] in ("output", "gradient")] or places
        where = "; ".join(f"{kind} of {name}, rank {rank}" for rank, (kind, name) in origins)
        step = self._ctx.run_state.step + 1
        if lasts:
            times = len(self._passes)
            raise SilentCorruption(
                f"step {step} was computed {times} times from the same state, with {times} results; first different:"
                f" {where}",
                hint="kernels that are not deterministic do that, too: see whether it goes away with"
                ' "deterministic": true. If it stays, do not trust the machine: go on elsewhere with `hostcore resume`',
            )
        self.warning = (
            f"step {step} was computed 3 times from the same state, and one result is not the other two; first"
            f" different: {where}. The run goes on with the two; watch this machine"
        )

    def _record_output(self, name: str, _module: Any, _inputs: Any, output: Any) -> None:
        for one in _tensors(output):
            self._record("output", name or "the model", one)

    def _record(self, kind: str, name: str, tensor: Any) -> None:
        if not self.is_decided:
            self._passes[-1].append(_Computed(kind, name, _digest(tensor)))


def _keep(state: Any, prepared_batch: Any) -> Callable[[], None]:
    """Return what puts back the changes of a step of which the trainer's state knows alone."""
    return state.keep_step(prepared_batch) if isinstance(state, KeepsStep) else lambda: None


def _first_difference(before: list[_Computed], last: list[_Computed]) -> _Computed | None:
    """Return what is first to differ, in the order in which the first of two passes has computed it."""
    for one, other in zip_longest(before, last):
        if one is None or other is None or one.place != other.place:
            return one or other  # not even the same is computed
    different = _differing([one.digest for one in before], [one.digest for one in last])
    return before[different[0]] if different else None


def _differing(before: list[Any], now: list[Any]) -> list[int]:
    """Return the places at which two lists of digests differ; a GPU is waited for once."""
    import torch

    if not before:
        return []
    first, second = (torch.stack([one.to(before[0].device) for one in each]) for each in (before, now))
    return [int(one) for one in (first != second).nonzero()[:, 0]]


def _digest(tensor: Any) -> Any:
    import torch

    whole = tensor.detach()
    whole = whole.to_local() if hasattr(whole, "to_local") else whole
    whole = whole.coalesce().values() if whole.is_sparse else whole
    whole = torch.view_as_real(whole) if whole.is_complex() else whole
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[whole.element_size()]
    return whole.contiguous().view(integers).sum(dtype=torch.int64)


def _tensors(output: Any) -> Iterator[Any]:
    """Yield the tensors of what a module returns."""
    if hasattr(output, "element_size"):
        yield output
    elif isinstance(output, Mapping):
        for one in output.values():
            yield from _tensors(one)
    elif isinstance(output, list | tuple):
        for one in output:
            yield from _tensors(one)


def _of_all_ranks(ctx: StepContext, place: tuple[str, str] | None) -> list[tuple[int, tuple[str, str]]]:
    """Return the places that the ranks have, each with its rank. A collective."""
    places = [place]
    if ctx.world_size > 1:
        import torch.distributed as dist

        places = [None] * ctx.world_size
        dist.all_gather_object(places, place)
    return [(rank, one) for rank, one in enumerate(places) if one is not None]
