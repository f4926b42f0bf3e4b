"""What was looked at on a machine, and what was found."""

from collections.abc import Mapping
from typing import Any, Literal

import attrs

Status = Literal["ok", "warning", "failed"]


@attrs.frozen(kw_only=True)
class Finding:
    """One thing that was checked."""

    #: What: ``device.cuda:0``, ``disk.write``.
    name: str
    #: ``failed``: a job that needs it cannot run. ``warning``: it runs, but slower or less surely than it could.
    status: Status
    #: What was found; one line.
    finding: str
    #: What to do; one line. None: nothing.
    hint: str | None = None
    #: The same in figures; plain JSON.
    details: Mapping[str, Any] = attrs.field(factory=dict)
    #: Whether no answer came in time: what hung once hangs again. Not told by itself.
    hung: bool = attrs.field(default=False, metadata={"told": False})
    #: Of a device: what became of a product in each precision.
    products: Mapping[str, str] = attrs.field(factory=dict, metadata={"told": False})

    def as_dict(self) -> dict[str, Any]:
        """The finding as plain JSON."""
        return attrs.asdict(self, filter=lambda field, _: field.metadata.get("told", True))


def size(count: float) -> str:
    """Bytes for people: ``24.1 GB``, ``64 MB``."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count / 1e3:.3g} kB"
