"""Hyperparameters of trainers: described once for each trainer, in a process of its own."""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from anyio import CapacityLimiter, to_thread

from hostcore.job.names import canonical_plugin
from hostcore.plugins.describe import Description, describe
from hostcore.plugins.installed import discover
from hostcore.plugins.resolve import resolve
from hostcore_hookspecs.errors import HostcoreError

LOG: Final = logging.getLogger("hostcore_service")
#: Importing a large framework takes a while.
_PATIENCE_SECONDS: Final = 60.0
#: One that cannot be asked is not asked again for so long.
_AGAIN_SECONDS: Final = 60.0

#: Describes a trainer, by its name and the folder that import paths start at.
Ask = Callable[[str, Path], Description]


def _ask(name: str, job_dir: Path) -> Description:
    ref = resolve(name, "trainer", discover(), job_dir=job_dir)
    (description,) = describe([ref], job_dir=job_dir, timeout_seconds=_PATIENCE_SECONDS)
    return description


class Trainers:
    """Cache of the hyperparameters that trainers take.

    :param ask: Describes a trainer.
    """

    def __init__(self, ask: Ask = _ask) -> None:
        self._ask = ask
        #: By trainer; None: whatever it is given.
        self._names: dict[str, frozenset[str] | None] = {}
        #: When those that could not be asked may be asked again; monotonic, in seconds.
        self._not_before: dict[str, float] = {}
        self._asking = threading.Lock()
        self.turns = CapacityLimiter(1)

    def known(self, name: str) -> bool:
        """Return whether a trainer has been described."""
        return canonical_plugin(name) in self._names

    def hyperparams(self, name: str, *, job_dir: Path) -> frozenset[str] | None:
        """Return the hyperparameters that a trainer takes; None: any, or unknown here, and the run reports wrong ones.

        :param name: Of a trainer that may be imported.
        :param job_dir: See :func:`~hostcore.plugins.describe.describe`.
        """
        name = canonical_plugin(name)  # there is no end of spellings
        if name in self._names or self._is_to_be_left_alone(name):
            return self._names.get(name)
        with self._asking:
            if name not in self._names and not self._is_to_be_left_alone(name):
                try:
                    description = self._ask(name, job_dir)
                except HostcoreError as error:
                    LOG.warning("the trainer %s cannot be asked what it takes: %s", name, error.message)
                    self._not_before[name] = time.monotonic() + _AGAIN_SECONDS
                else:
                    self._names[name] = _names(description)
            return self._names.get(name)

    async def asked(self, name: str, *, job_dir: Path) -> None:
        """Have a trainer be asked, unless it was; see :meth:`hyperparams`, which then answers at once.

        That may take a minute, after others: it is waited for in no thread that other requests need.
        """
        name = canonical_plugin(name)
        if name not in self._names and not self._is_to_be_left_alone(name):
            await to_thread.run_sync(partial(self.hyperparams, name, job_dir=job_dir), limiter=self.turns)

    def takes_model_id(self, name: str, *, job_dir: Path) -> bool:
        """Return whether a trainer takes ``model_id``; see :meth:`hyperparams`."""
        names = self.hyperparams(name, job_dir=job_dir)
        return names is None or "model_id" in names

    def _is_to_be_left_alone(self, name: str) -> bool:
        return time.monotonic() < self._not_before.get(name, 0.0)


def _names(description: Description) -> frozenset[str] | None:
    schema = description.settings_schema
    if description.errors or schema is None or schema.get("additionalProperties") is not False:
        return None
    return frozenset(schema.get("properties", {}))
