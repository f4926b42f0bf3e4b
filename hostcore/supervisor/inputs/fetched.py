"""What was brought to this machine for a run, before it was opened."""

from collections.abc import Mapping

import attrs


@attrs.frozen(kw_only=True)
class Fetched:
    """Where it lies."""

    #: The job's ``inputs`` and ``weights``: absolute paths by name.
    inputs: Mapping[str, str] = attrs.field(factory=dict)
    #: The commit record of the checkpoint that the run begins from, if that lies in a store; empty if not.
    parent: str = ""
