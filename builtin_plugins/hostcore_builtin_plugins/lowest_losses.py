"""The lowest losses that a run's validations have had: what marks a validation as the best so far."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import orjson

from hostcore_hookspecs import Event
from hostcore_hookspecs.events import Validation

_MARK: Final = b'"event":"validation"'


class LowestLosses:
    """Notes validations, and tells which of their losses were never lower.

    What is good for other metrics nobody has told; a metric is a loss if its name ends with ``loss``.
    """

    def __init__(self) -> None:
        self._lowest: dict[str, float] = {}

    def read(self, log: Path, *, before: int) -> None:
        """Note the validations that were before an event.

        :param log: The run's ``events.jsonl``; may be missing.
        :param before: The event's ``seq``.
        """
        try:
            lines = log.read_bytes().splitlines()
        except OSError:  # nobody is to miss a run for want of a mark
            return
        for line in lines:
            if _MARK in line and line.endswith(b"}"):
                found = orjson.loads(line)
                if found["seq"] >= before:
                    return
                self._note(found["metrics"])

    def note(self, event: Event) -> frozenset[str]:
        """The losses of an event that are lower than all before. That of a first validation is not."""
        return self._note(event.payload.metrics) if isinstance(event.payload, Validation) else frozenset()

    def _note(self, metrics: Mapping[str, float | None]) -> frozenset[str]:
        losses = {name: value for name, value in metrics.items() if value is not None and name.endswith("loss")}
        lower = {name: value for name, value in losses.items() if value < self._lowest.get(name, value)}
        for name, value in losses.items():
            self._lowest[name] = min(value, self._lowest.get(name, value))
        return frozenset(lower)
