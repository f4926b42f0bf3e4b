"""The numbers that an event brings, as reporters of curves show them."""

import math
from collections.abc import Mapping
from typing import Final

from hostcore_hookspecs import Event
from hostcore_hookspecs.events import Metrics, Test, TrainerRestored, Validation
from hostcore_trackers.names import distinct

#: What the host itself measured, by the names that it has beside the trainer's metrics.
_OWN: Final = "host/"
_HOST: Final = ("samples_per_second", "step_seconds", "data_wait_seconds")


def scalars_of(event: Event) -> dict[str, float]:
    """Return the metrics of an event by name, and ``host/…`` for values measured by the host; empty for most events.

    When the trainer went back to an earlier state, its metrics are those of that state: what follows belongs to them.
    Values that were not finite are NaN: the log does not distinguish them.
    """
    payload = event.payload
    if isinstance(payload, TrainerRestored):
        return _named(payload.values)
    if not isinstance(payload, Metrics | Validation | Test):
        return {}
    scalars = _named(payload.metrics)
    if isinstance(payload, Metrics):
        measured = {f"{_OWN}{name}": getattr(payload, name) for name in _HOST}
        scalars.update({name: value for name, value in measured.items() if value is not None})
    return scalars


def _named(metrics: Mapping[str, float | None]) -> dict[str, float]:
    named = {}
    for name, value in metrics.items():
        wanted = f"trainer/{name}" if name.startswith(_OWN) else name
        named[distinct(name, wanted)] = math.nan if value is None else value
    return named
