"""The trainer's part of a checkpoint: what its methods give, and how they get it back."""

from collections.abc import Callable, Iterator, Mapping, Set
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
from hostcore.plugins.load import Component
from hostcore.worker import randomness
from hostcore_hookspecs import default_state
from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.errors import HostcoreError

Call = Callable[..., Any]

#: The name of the state's files.
STATE: Final = "state"
_PLAIN: Final = (
    "return names and numbers that are to be kept with the checkpoint, or None; tensors belong into state_dict"
)
#: What to do about a state that the contract's default cannot store.
_UNNAMED: Final = "return a dictionary, a dataclass or an attrs class, or implement state_dict and load_state_dict"
_UNSTORABLE: Final = (
    "keep what never changes on self; give the rest methods state_dict and load_state_dict, in a dictionary if they are"
    " several, or implement both in the trainer"
)
#: What to do about a ``state_dict`` that returns no dictionary.
_INCOMPLETE: Final = "return everything that is needed to continue: model, optimizer, scheduler"


class InvalidState(HostcoreError):
    """The value that a trainer returned as its state is none."""

    code = "trainer.invalid_state"


@attrs.define(kw_only=True)
class TrainerCalls:
    """The trainer's methods that a checkpoint needs; None where it has none."""

    #: Whose they are.
    component: Component
    state_dict: Call
    load_state_dict: Call
    save_checkpoint: Call | None
    load_checkpoint: Call | None
    #: The names in the state that ``configure`` returned; None until the first :meth:`check_default`.
    _names: Set[str] | None = None

    @property
    def is_default(self) -> bool:
        """Return whether the contract's default stores and loads the state."""
        return any(one.hook == "state_dict" and one.by_default for one in self.component.implementations)

    def check_default(self, state: Any) -> None:
        """Check a state that the contract's default stores: before the first step, and whether that adds a name.

        :raises InvalidState: When it has no named parts, or others than before.
        :raises UnstorableState: When it holds a value that would not come back equal.
        """
        if not self.is_default:
            return
        with randomness.kept():
            payload = default_state.stored(state)
            self._encode(payload)
        if self._names is not None and self._names != payload.keys():
            names = ", ".join(sorted(map(repr, payload.keys() ^ self._names)))
            found = f"a step added {names} to the state, or removed it"
            raise self._invalid(found, hint="make all of it in configure; None will do")
        self._names = payload.keys()

    def encoded(self, state: Any) -> Encoded:
        """Call ``state_dict`` and encode its result; its tensors are still where the training has them.

        :param state: What ``configure`` returned.
        :raises InvalidState: When it is no dictionary.
        :raises UnstorableState: When it holds a value that would not come back equal.
        """
        return self._encode(self.state_dict(state))

    def _encode(self, payload: Any) -> Encoded:
        if not isinstance(payload, dict):
            found = f"{self._source} returned {type(payload).__name__}, not a dictionary"
            hint = _UNNAMED if self.is_default else _INCOMPLETE
            raise self._invalid(f"{found}, so nothing could be resumed from it", hint=hint)
        with returned_by(self.component, self._source):
            try:
                return encode_state(payload)
            except UnstorableState as error:
                error.hint = _UNSTORABLE if self.is_default else error.hint
                raise

    @property
    def _source(self) -> str:
        """The method that the state comes from."""
        return "configure" if self.is_default else "state_dict"

    def _invalid(self, message: str, *, hint: str) -> InvalidState:
        where = defined_at(self.component, self._source)
        message += f" ({where})" if where else ""
        return InvalidState(message, hint=hint, plugin=self.component.ref.provenance, file=where)

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

        On several ranks, and where tensors were spread over ranks, ``state_dict`` first returns the present layout.

        :param host: What the host stored.
        """
        spread = ctx.world_size > 1 or shards_folder(folder, STATE).is_dir()
        payload = read_state(folder, STATE, like=self.state_dict(state) if spread else None)
        try:
            self.load_state_dict(state, payload, ctx)
        except HostcoreError as error:
            error.plugin = error.plugin or self.component.ref.provenance
            raise
        if self.load_checkpoint is not None and (folder / TRAINER_FOLDER).is_dir():
            self.load_checkpoint(state, str(folder / TRAINER_FOLDER), payload, ctx)
        if ctx.scaler is not None and host["scaler"] is not None:
            ctx.scaler.load_state_dict(host["scaler"])


@contextmanager
def returned_by(component: Component, method: str) -> Iterator[None]:
    """Add component and method to an error about a state that cannot be stored."""
    try:
        yield
    except UnstorableState as error:
        where = defined_at(component, method)
        error.message += f"; {method} returned it" + (f" ({where})" if where else "")
        error.args = (error.message,)
        error.plugin, error.file = component.ref.provenance, where
        raise


def _plain(info: object) -> dict[str, Any]:
    """Return the result of ``save_checkpoint`` as it will be read again."""
    if not isinstance(info, Mapping):
        raise InvalidState(f"save_checkpoint returned {type(info).__name__}, not a mapping", hint=_PLAIN)
    try:
        plain: dict[str, Any] = orjson.loads(orjson.dumps(dict(info)))
    except TypeError as error:
        raise InvalidState(f"save_checkpoint returned what is not plain JSON: {error}", hint=_PLAIN) from error
    return plain
