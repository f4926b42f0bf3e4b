"""Callbacks of the kit's own, which stand beside the one that is checked. The jobs of the checks import them by path.

The runs of the kit are in its own process, so what they see and what they are to do is kept in this module.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from hostcore_hookspecs import RunState, StepContext, hookimpl
from hostcore_hookspecs.kinds import KINDS


class Sabotage(Exception):
    """Failure that the kit causes on purpose."""


class Saboteur:
    """Fails a step, as an error of the trainer would. Last in the list, and so the innermost."""

    #: Which; 0: none.
    fails_at: ClassVar[int] = 0

    @hookimpl(wrapper=True)
    def train_step(self, ctx: StepContext) -> Generator[None, Any, Any]:
        """Let the step be made, and then fail."""
        result = yield
        if ctx.run_state.step + 1 == self.fails_at:
            raise Sabotage(f"step {self.fails_at} was made to fail by the kit")
        return result


@contextmanager
def failing_at(step: int) -> Iterator[None]:
    """Let the saboteur strike."""
    Saboteur.fails_at = step
    try:
        yield
    finally:
        Saboteur.fails_at = 0


class EarlyStopper:
    """Asks the run to stop in its third step."""

    def on_batch_end(self, run_state: RunState, ctx: StepContext) -> None:
        """Ask."""
        if run_state.step == 3:
            ctx.request_stop("the kit asked for it")


class OtherRank:
    """Lets the callbacks after it believe that they are on the second rank.

    The world still has one rank: a callback that calls a collective would wait for the other.
    """

    def on_train_begin(self, ctx: StepContext) -> None:
        """Change the context, which all of them share."""
        ctx.rank = ctx.local_rank = 1


class Witness:
    """Notes which hooks the host has called; its methods are made below."""

    called: ClassVar[set[str]] = set()


def _noting(hook: str) -> Callable[[Witness], None]:
    def note(self: Witness) -> None:
        self.called.add(hook)

    return note


for _hook in KINDS["callback"].hooks:
    if _hook.startswith("on_"):
        setattr(Witness, _hook, _noting(_hook))
