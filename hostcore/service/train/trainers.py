"""What trainers take: found out once for each, in a process of its own."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from hostcore.plugins.describe import describe
from hostcore.plugins.description import Description, Question
from hostcore_hookspecs.errors import HostcoreError

LOG: Final = logging.getLogger("hostcore.service")
#: Importing a large framework takes a while.
_PATIENCE_SECONDS: Final = 60.0
#: One that cannot be asked is not asked again for so long.
_AGAIN_SECONDS: Final = 60.0

Ask = Callable[[Sequence[Question], Path], Sequence[Description]]


def _ask(questions: Sequence[Question], job_dir: Path) -> Sequence[Description]:
    return describe(questions, job_dir=job_dir, timeout_seconds=_PATIENCE_SECONDS)


class Trainers:
    """Whether trainers have a hyperparameter ``model_id``.

    :param ask: Describes plugins.
    """

    def __init__(self, ask: Ask = _ask) -> None:
        self._ask = ask
        self._known: dict[str, bool] = {}
        #: When those that could not be asked may be asked again; monotonic, in seconds.
        self._not_before: dict[str, float] = {}
        self._asking = threading.Lock()

    def known(self, name: str) -> bool | None:
        """What is known of a trainer already; None: nothing."""
        return self._known.get(name)

    def takes_model_id(self, name: str, *, job_dir: Path) -> bool:
        """Whether a trainer takes ``model_id``; one that cannot be asked here does: the run tells if that was wrong.

        :param name: Of a trainer that may be imported.
        :param job_dir: See :func:`~hostcore.plugins.describe.describe`.
        """
        if (known := self._known.get(name)) is not None:
            return known
        if time.monotonic() < self._not_before.get(name, 0.0):
            return True
        with self._asking:
            if name not in self._known:
                if time.monotonic() < self._not_before.get(name, 0.0):
                    return True
                try:
                    (description,) = self._ask([Question(kind="trainer", name=name)], job_dir)
                except HostcoreError as error:
                    LOG.warning("the trainer %s cannot be asked what it takes: %s", name, error.message)
                    self._not_before[name] = time.monotonic() + _AGAIN_SECONDS
                    return True
                self._known[name] = _has_model_id(description)
            return self._known[name]


def _has_model_id(description: Description) -> bool:
    schema = description.settings_schema
    if description.errors or schema is None or schema.get("additionalProperties") is not False:
        return True
    return "model_id" in schema.get("properties", {})
