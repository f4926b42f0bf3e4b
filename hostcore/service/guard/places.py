"""Where a job from others may read and write: URIs of other machines, and the operator's data roots."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hostcore.errors import Errors
from hostcore.job.paths import is_uri
from hostcore.job.pointers import escaped
from hostcore.service.guard.from_others import NotAllowed
from hostcore.supervisor.operator_file import HttpSettings
from hostcore_hookspecs.errors import HostcoreError

#: Text for people, and data that is in the job itself: no places.
_TEXT: Final = frozenset({"labels", "annotations", "owner", "release_ref", "run_id", "mock_batches"})


def require_places_allowed(job: Mapping[str, Any], http: HttpSettings) -> None:
    """See that a job names no place that jobs from others may not.

    :raises Errors: Every place that is not allowed.
    """
    errors: list[HostcoreError] = []
    for key, value in job.items():
        if key not in _TEXT:
            errors += _places(value, f"/{escaped(key)}", http)
    if errors:
        raise Errors(errors)


def _places(value: Any, pointer: str, http: HttpSettings) -> Iterator[HostcoreError]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _places(item, f"{pointer}/{escaped(key)}", http)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _places(item, f"{pointer}/{position}", http)
    elif isinstance(value, str) and (value.startswith(("/", "~", ".")) or value.startswith("file:")):
        path = Path(value.removeprefix("file://"))
        if is_uri(value) and not value.startswith("file://"):
            return
        if not any(path.resolve().is_relative_to(root.resolve()) for root in http.data_roots):
            yield NotAllowed(
                f"{value!r} does not lie in one of the folders that the operator has opened",
                pointer=pointer,
                hint="name a URI of a store, or ask the operator: data_roots in [http] of HOSTCORE_CONFIG",
            )
