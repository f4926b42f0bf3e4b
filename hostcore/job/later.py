"""Keys whose feature belongs to a later version: a value other than the default is refused, never ignored."""

from collections.abc import Mapping
from typing import Any, Final

from hostcore_hookspecs.errors import HostcoreError

#: The keys, and the feature of each as the subject of a sentence.
LATER: Final = {"environment": "an isolated environment is"}


def not_yet(document: Mapping[str, Any]) -> list[HostcoreError]:
    """Everything that a job asks for and that this version does not do; wrong types may be among it."""
    return [
        HostcoreError(
            f"{feature} not there yet in this version of hostcore",
            code="job.not_yet",
            pointer=f"/{key}",
            hint="remove the key",
        )
        for key, feature in LATER.items()
        if document.get(key) is not None
    ]
