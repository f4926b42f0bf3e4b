"""The result of one check of a machine."""

from collections.abc import Mapping
from typing import Any, Literal

import attrs

Status = Literal["ok", "warning", "failed"]


@attrs.frozen(kw_only=True)
class DoctorFinding:
    """Result of a check."""

    #: Name of the check: ``device.cuda:0``, ``disk.write``.
    name: str
    #: ``failed``: a job that needs it cannot run. ``warning``: it runs, but slower or less surely than it could.
    status: Status
    #: The result in one line.
    finding: str
    #: The remedy in one line; None if there is nothing to do.
    hint: str | None = None
    #: The result in figures; plain JSON.
    details: Mapping[str, Any] = attrs.field(factory=dict)
    #: No answer came in time: what hung once hangs again. Not part of the document.
    hung: bool = attrs.field(default=False, metadata={"reported": False})
    #: Of a device: the outcome of a product in each precision.
    products: Mapping[str, str] = attrs.field(factory=dict, metadata={"reported": False})

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as plain JSON."""
        return attrs.asdict(self, filter=lambda field, _: field.metadata.get("reported", True))
