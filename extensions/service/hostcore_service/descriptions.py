"""Settings of plugins: each plugin is described once, in a process of its own."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from anyio import CapacityLimiter, to_thread

from hostcore.job.names import canonical_plugin
from hostcore.plugins.describe import Description, describe
from hostcore.plugins.installed import discover
from hostcore.plugins.resolve import resolve
from hostcore_hookspecs.errors import HostcoreError

LOG: Final = logging.getLogger("hostcore_service")
#: Importing a large framework takes a while.
_PATIENCE_SECONDS: Final = 60.0
#: A plugin that cannot be described is not asked again for so long.
_AGAIN_SECONDS: Final = 60.0

#: Describes a plugin, by its kind, its name and the folder that import paths start at.
Ask = Callable[[str, str, Path], Description]
Schema = Mapping[str, Any]


def _ask(kind: str, name: str, job_dir: Path) -> Description:
    ref = resolve(name, kind, discover(), job_dir=job_dir)
    (description,) = describe([ref], job_dir=job_dir, timeout_seconds=_PATIENCE_SECONDS)
    return description


class Descriptions:
    """Cache of the settings that plugins declare.

    :param job_dir: See :func:`~hostcore.plugins.describe.describe`.
    :param ask: Describes a plugin.
    """

    def __init__(self, job_dir: Path, ask: Ask = _ask) -> None:
        self._job_dir = job_dir
        self._ask = ask
        #: By kind and name; None: it declares none, or has errors.
        self._schemas: dict[tuple[str, str], Schema | None] = {}
        #: When those that could not be asked may be asked again; monotonic, in seconds.
        self._not_before: dict[tuple[str, str], float] = {}
        self._asking = threading.Lock()
        self.turns = CapacityLimiter(1)

    def known(self, kind: str, name: str) -> bool:
        """Return whether a plugin has been described, or cannot be for the moment."""
        plugin = (kind, canonical_plugin(name))  # there is no end of spellings
        return plugin in self._schemas or time.monotonic() < self._not_before.get(plugin, 0.0)

    def schema(self, kind: str, name: str) -> Schema | None:
        """Return the JSON Schema of a plugin's settings; None: it declares none, or cannot be described.

        :param name: Of a plugin that may be imported.
        """
        plugin = (kind, canonical_plugin(name))
        if self.known(*plugin):
            return self._schemas.get(plugin)
        with self._asking:
            if not self.known(*plugin):
                try:
                    description = self._ask(*plugin, self._job_dir)
                except HostcoreError as error:
                    LOG.warning("the %s %s cannot be asked what it takes: %s", *plugin, error.message)
                    self._not_before[plugin] = time.monotonic() + _AGAIN_SECONDS
                else:
                    self._schemas[plugin] = None if description.errors else description.settings_schema
            return self._schemas.get(plugin)

    async def asked(self, kind: str, name: str) -> None:
        """Have a plugin be described, unless it was; :meth:`schema` then answers at once.

        That may take a minute, after others: it is waited for in no thread that other requests need.
        """
        if not self.known(kind, name):
            await to_thread.run_sync(partial(self.schema, kind, name), limiter=self.turns)

    def hyperparams(self, trainer: str) -> frozenset[str] | None:
        """Return the hyperparameters that a trainer takes; None: any, or unknown, and the run reports wrong ones."""
        schema = self.schema("trainer", trainer)
        if schema is None or schema.get("additionalProperties") is not False:
            return None
        return frozenset(schema.get("properties", {}))

    def takes_model_id(self, trainer: str) -> bool:
        """Return whether a trainer takes ``model_id``; see :meth:`hyperparams`."""
        names = self.hyperparams(trainer)
        return names is None or "model_id" in names
