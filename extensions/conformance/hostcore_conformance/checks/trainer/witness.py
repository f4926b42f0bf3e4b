"""Callbacks that the kit puts into a rehearsal. A job names them by import path; see ``WITNESS`` and the like."""

from collections.abc import Generator
from typing import Any, Final

import attrs

from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.markers import hookimpl
from hostcore_hookspecs.run_state import RunState

_MODULE: Final = "hostcore_conformance.checks.trainer.witness"
#: What a failure of the kit's own says. A RuntimeError, as most failures in a model are.
OWN_WORDS: Final = "raised by the conformance kit, to see what becomes of an error"

#: The ends of teardown in this process, in order: None, or what it raised. Emptied by who wants to know.
teardowns: list[BaseException | None] = []


def stopper(at: int) -> dict[str, Any]:
    """The entry of a job's ``callbacks`` that asks the run to stop after a step; 0: before the first."""
    return {"use": f"{_MODULE}:Stopper", "at": at}


def failure() -> dict[str, Any]:
    """The entry of a job's ``callbacks`` that has the first step fail."""
    return {"use": f"{_MODULE}:Failure"}


class _OfTeardown:
    """Sees what becomes of teardown."""

    @hookimpl(wrapper=True)
    def teardown(self) -> Generator[None, None, None]:
        """Note how it ends."""
        try:
            yield
        except BaseException as error:
            teardowns.append(error)
            raise
        teardowns.append(None)


class Stopper(_OfTeardown):
    """Asks the run to stop."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """After which step."""

        at: int = 1

    def __init__(self, *, settings: Settings) -> None:
        self._at = settings.at

    def on_train_begin(self, ctx: StepContext) -> None:
        """Before the first step."""
        if self._at == 0:
            ctx.request_stop("the conformance kit wants to see it stop")

    def on_batch_end(self, run_state: RunState, ctx: StepContext) -> None:
        """After a step."""
        if run_state.step == self._at:
            ctx.request_stop("the conformance kit wants to see it stop")


class Failure(_OfTeardown):
    """Has the first step fail."""

    @hookimpl(wrapper=True)
    def train_step(self) -> Generator[None, Any, Any]:
        """Fail in place of it."""
        raise RuntimeError(OWN_WORDS)
        yield
