"""The checks, a module for each question or two. Importing this package fills the table.

Of a kind with several modules, ``stage`` has what they share: the plugin as the host uses it, and what is seen of it.
"""

from importlib import import_module
from typing import Final

#: In the order in which they are asked and shown; those for every kind come first.
_MODULES: Final = {
    "callback": ("leaving", "observing", "running", "state"),
    "data_source": ("paths", "readers", "schema", "shards", "training"),
    "launcher": ("ending", "launching", "logs", "planning"),
    "plugin": ("loading", "methods", "settings", "runs_code", "secrets", "importing", "ending"),
    "policy": (),
    "reporter": ("serving", "events_taken", "delivery", "outages"),
    "resolver": (),
    "trainer": (
        *("batches", "checkpoints", "devices", "evaluation", "resuming", "learning", "memory", "running"),
        *("repeating", "scaling", "splitting", "state", "stopping", "surroundings"),
    ),
    "uploader": ("arriving", "again", "failing", "serving"),
}

for _kind, _names in _MODULES.items():
    for _module in [f"{__name__}.{_kind}", *(f"{__name__}.{_kind}.{_name}" for _name in _names)]:
        import_module(_module)
