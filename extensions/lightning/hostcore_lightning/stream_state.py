"""States of iterable datasets that have a ``state_dict``: where a pass goes on without reading all before it.

Such a state is trusted as far as it proves right. Beside it, a checkpoint has digests of the batches that came behind
it; they are read again, and where one differs, the pass is read from its beginning.
"""

import hashlib
import threading
from collections import deque
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

import attrs
import numpy as np
import torch

from hostcore_lightning.unsaved import encoded, restored

#: Batches between two states.
EVERY: Final = 64
#: States that are kept: reading is ahead of the training.
_MOST: Final = 16


@attrs.define(eq=False)
class StreamStates:
    """States of a source, with the place of each in its epoch.

    :param source: Has ``state_dict`` and ``load_state_dict``.
    :param first: Its state before the first pass; None: each pass has a new source.
    """

    source: Any
    first: Any = None
    _taken: deque[dict[str, Any]] = attrs.field(init=False, factory=lambda: deque(maxlen=_MOST))
    #: By the number of the batch, of the epoch that is read.
    _digests: dict[int, str] = attrs.field(init=False, factory=dict)
    #: A state could not be taken, or not be stored: there are no more.
    is_lost: bool = attrs.field(init=False, default=False)
    #: A checkpoint is written while batches are read ahead.
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)

    def begin(self, state: Any) -> None:
        """Put the source where a pass begins, or, if a state is given, where it was taken."""
        if state is not None or self.first is not None:
            self.source.load_state_dict(self.first if state is None else restored(state))

    def clear(self) -> None:
        """Forget the states: another epoch is read, or the same one again."""
        with self._lock:
            self._taken.clear()
            self._digests.clear()

    def note(self, number: int, batch: Any) -> str:
        """Note a batch that was read; return its digest."""
        found = digest(batch)
        with self._lock:
            self._digests[number] = found
        return found

    def take(self, epoch: int, turn: int, number: int, *, state: Any = None) -> None:
        """Take the state behind a batch, if a checkpoint can hold it.

        :param state: One that was taken there before.
        """
        if state is None:
            try:
                state = encoded(self.source.state_dict())
            except Exception:  # noqa: BLE001 - CannotStore, or the source's own: the pass is read from its beginning
                self.is_lost = True
                self.clear()
                return
        with self._lock:
            self._taken.append({"epoch": epoch, "turn": turn, "number": number, "state": state})
            oldest = self._taken[0]["number"]
            self._digests = {key: one for key, one in self._digests.items() if key > oldest}

    def before(self, epoch: int, number: int) -> dict[str, Any] | None:
        """Return the last state before a batch with the digests between; None: there is none with a batch between."""
        with self._lock:
            fit = [one for one in self._taken if one["epoch"] == epoch and one["number"] + 1 < number]
            if not fit:
                return None
            digests = [self._digests[one] for one in range(fit[-1]["number"] + 1, number)]
            return {**fit[-1], "digests": digests}


def states_of(source: Any, *, goes_back: bool) -> StreamStates | None:
    """Return the states of a source; None if it has none.

    :param goes_back: The same source is read again, from its beginning.
    """
    has_both = callable(getattr(source, "state_dict", None)) and callable(getattr(source, "load_state_dict", None))
    if not has_both or isinstance(source, torch.nn.Module):
        return None
    if not goes_back:
        return StreamStates(source)
    try:
        first = source.state_dict()
        encoded(first)
        return StreamStates(source, first=deepcopy(first))
    except Exception:  # noqa: BLE001 - it takes arguments, or holds what a checkpoint cannot, for instance
        return None


def digest(batch: Any) -> str:
    """Return a digest of the numbers and texts of a batch, the same in each process."""
    found = hashlib.blake2b(digest_size=16)
    _add(found, batch)
    return found.hexdigest()


def _add(to: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        value = value.detach().cpu().contiguous()
        to.update(repr((value.dtype, tuple(value.shape))).encode())
        to.update(value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b"")
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        to.update(repr((value.dtype, value.shape)).encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        for key, one in value.items():
            to.update(repr(key).encode())
            _add(to, one)
    elif isinstance(value, (list, tuple)):
        to.update(f"[{len(value)}]".encode())
        for one in value:
            _add(to, one)
    elif isinstance(value, (str, bytes, int, float, bool, type(None), np.generic)):
        to.update(repr(value).encode())
    else:  # an object: what it holds
        to.update(type(value).__qualname__.encode())
        _add(to, {key: one for key, one in getattr(value, "__dict__", {}).items() if not callable(one)})
