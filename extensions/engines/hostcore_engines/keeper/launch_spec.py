"""Command of a keeper."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from hostcore_engines.keeper.agent import Agent


@attrs.frozen(kw_only=True)
class LaunchSpec:
    """Command of every node: run as it is, or by an agent of torchrun for each rank."""

    command: Sequence[str]
    #: Set beside the environment of the keeper.
    env: Mapping[str, str]
    #: Where it is started, if that folder is there.
    cwd: str
    #: See :func:`hostcore_builtin_plugins.run_result.earlier_result`.
    earlier_result: int | None
    #: None: the command itself is started, on one node.
    agent: Agent | None = None
    #: How long a rank may take to stop when torchrun's agent asks it to, in seconds.
    grace_seconds: float = 30.0

    def as_dict(self) -> dict[str, Any]:
        """The launch_spec as plain JSON."""
        return attrs.asdict(self)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> "LaunchSpec":
        """Return the specification that :meth:`as_dict` gave."""
        return cls(**{**plain, "agent": Agent(**plain["agent"]) if plain["agent"] else None})
