"""The trainer's part of a checkpoint: what its methods give, and how they get it back."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from hostcore.checkpoints.encoding import TRAINER_FOLDER, Encoded, encode_state
from hostcore.checkpoints.errors import UnstorableState
from hostcore.checkpoints.sharded import shards_folder
from hostcore.checkpoints.state import read_state
from hostcore.plugins.attribution import defined_at
from hostcore.plugins.component import Component
from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.errors import HostcoreError

Call = Callable[..., Any]

#: The name of the state's files.
STATE: Final = "state"
_PLAIN: Final = (
    "return names and numbers that are to be kept with the checkpoint, or None; tensors belong into state_dict"
)


class InvalidState(HostcoreError):
    """What a trainer returned as its state is none."""

    code = "trainer.invalid_state"


@attrs.frozen(kw_only=True)
class TrainerCalls:
    """The trainer's methods that a checkpoint needs; None where it has none."""

    #: Whose they are.
    component: Component
    state_dict: Call
    load_state_dict: Call
    save_checkpoint: Call | None
    load_checkpoint: Call | None

    def encoded(self, state: Any) -> Encoded:
        """What ``state_dict`` returns now, encoded; its tensors are still where the training has them.

        :param state: What ``configure`` returned.
        :raises InvalidState: When it is no dictionary.
        :raises UnstorableState: When it holds a value that would not come back equal.
        """
        payload = self.state_dict(state)
        if not isinstance(payload, dict):
            where = defined_at(self.component, "state_dict")
            raise InvalidState(
                f"state_dict returned {type(payload).__name__}, not a dictionary, so nothing could be resumed from it"
                + (f" ({where})" if where else ""),
                hint="return everything that is needed to continue: model, optimizer, scheduler",
                plugin=self.component.ref.provenance,
                file=where,
            )
        with returned_by(self.component, "state_dict"):
            return encode_state(payload)

    def save_own(self, state: Any, folder: Path, final: bool, ctx: StepContext) -> dict[str, Any] | None:
        """Let ``save_checkpoint`` write its files below a checkpoint's folder; what it returned.

        :raises InvalidState: When that is no mapping, or more than plain JSON.
        """
        if self.save_checkpoint is None:
            return None
        info = self.save_checkpoint(state, ctx.run_state.step, str(folder / TRAINER_FOLDER), final, ctx)
        return None if info is None else _plain(info)

    def load(self, state: Any, folder: Path, host: Mapping[str, Any], ctx: StepContext) -> None:
        """Give the trainer back what a checkpoint holds of it, and the scaler.

        On several ranks, and where tensors were spread over some, ``state_dict`` first tells how they are spread now.

        :param host: What the host stored.
        """
        spread = ctx.world_size > 1 or shards_folder(folder, STATE).is_dir()
        payload = read_state(folder, STATE, like=self.state_dict(state) if spread else None)
        self.load_state_dict(state, payload, ctx)
        if self.load_checkpoint is not None and (folder / TRAINER_FOLDER).is_dir():
            self.load_checkpoint(state, str(folder / TRAINER_FOLDER), payload, ctx)
        if ctx.scaler is not None and host["scaler"] is not None:
            ctx.scaler.load_state_dict(host["scaler"])


@contextmanager
def returned_by(component: Component, method: str) -> Iterator[None]:
    """While the state that a component's method has returned is encoded: say of what cannot be stored whose it is."""
    try:
        yield
    except UnstorableState as error:
        where = defined_at(component, method)
        error.message += f"; {method} returned it" + (f" ({where})" if where else "")
        error.args = (error.message,)
        error.plugin, error.file = component.ref.provenance, where
        raise


def _plain(info: object) -> dict[str, Any]:
    """What ``save_checkpoint`` returned, as it will be read again."""
    if not isinstance(info, Mapping):
        raise InvalidState(f"save_checkpoint returned {type(info).__name__}, not a mapping", hint=_PLAIN)
    try:
        plain: dict[str, Any] = orjson.loads(orjson.dumps(dict(info)))
    except TypeError as error:
        raise InvalidState(f"save_checkpoint returned what is not plain JSON: {error}", hint=_PLAIN) from error
    return plain
