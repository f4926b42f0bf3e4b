"""Ranks that an engine has started, torchrun for instance. Their environment is adopted: no more are started."""

import os
import re
from collections.abc import Mapping
from typing import Final

import attrs

from hostcore_hookspecs.errors import HostcoreError

#: Set for every worker, so that a ``hostcore run`` inside one does not take its ranks for an engine's.
SUPERVISOR_VARIABLE: Final = "HOSTCORE_SUPERVISOR"
#: Set for the workers of ranks that an engine has started: the same for all of one start, and for no other.
START_VARIABLE: Final = "HOSTCORE_START"
#: A secret that all ranks of a launch share, so that they can meet without a folder that all of them see.
ADMISSION_VARIABLE: Final = "HOSTCORE_RANKS_SECRET"
#: What torchrun sets for each rank. Of several ranks each has all of them, a single rank has none: libraries such as
#: accelerate take one of them for the promise that there is a process group to join.
RANK_VARIABLES: Final = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
#: Where rank 0 finds the number of the listening socket that it has inherited.
MASTER_SOCKET_VARIABLE: Final = "HOSTCORE_MASTER_FD"
#: Characters; a shorter secret could be guessed.
_SHORTEST_SECRET: Final = 16
#: How many ports behind the engine's own rank 0 may listen at, for ranks that share a secret.
_PORTS: Final = 8
_LOOPBACK: Final = re.compile(r"localhost|127\.[0-9.]+|::1")


def without_ranks(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without the ranks that something around it has."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("TORCHELASTIC_") and name not in (MASTER_SOCKET_VARIABLE, *RANK_VARIABLES)
    }


class InvalidRanks(HostcoreError):
    """The variables that an engine sets do not fit together."""

    code = "environment.invalid"


@attrs.frozen(kw_only=True)
class Engine:
    """An engine's description of this process, from torchrun's environment variables."""

    rank: int
    local_rank: int
    world_size: int
    #: Ranks on this machine that share its processors.
    local_world_size: int
    #: Where the ranks meet; ``MASTER_ADDR`` is the machine of rank 0.
    master_addr: str
    master_port: int
    #: What torchrun calls the launch, over all its starts. How often it has started the ranks again is nothing to meet
    #: by: every agent counts for itself, and only what failed on its own machine.
    launch: str
    #: What only the ranks of the launch have been given; empty for nothing.
    secret: str = attrs.field(default="", repr=False)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Engine | None":
        """Read an environment; None if this process is no rank of an engine's.

        It is one if ``RANK`` is set and ``WORLD_SIZE`` is above 1, unless this process runs inside a worker of
        hostcore's own.

        :raises InvalidRanks: When the variables are not what they should be.
        """
        if not environment.get("RANK") or SUPERVISOR_VARIABLE in environment:
            return None
        world_size = _number(environment, "WORLD_SIZE", 1)
        if world_size <= 1:
            return None
        return cls(
            rank=_number(environment, "RANK", 0, below=world_size),
            local_rank=_number(environment, "LOCAL_RANK", 0, below=world_size),
            world_size=world_size,
            local_world_size=_number(environment, "LOCAL_WORLD_SIZE", 1),
            master_addr=_given(environment, "MASTER_ADDR"),
            master_port=_number(environment, "MASTER_PORT", None, below=1 << 16),
            launch=environment.get("TORCHELASTIC_RUN_ID", "none"),
            secret=_secret(environment),
        )

    @staticmethod
    def started_alone(environment: Mapping[str, str]) -> bool:
        """Return whether torchrun has started this process as its only rank, of however many were asked for."""
        return "TORCHELASTIC_RUN_ID" in environment and environment.get("WORLD_SIZE") == "1"

    @property
    def is_local(self) -> bool:
        """True if all ranks are on this machine, from their engine's variables."""
        return self.world_size == self.local_world_size or _LOOPBACK.fullmatch(self.master_addr) is not None

    @property
    def name(self) -> str:
        """The name of a file, the same for all ranks of a launch and for no others at the same time."""
        return re.sub(r"[^A-Za-z0-9._-]", "-", f"{self.master_addr}-{self.master_port}-{self.launch}")[:200]

    @property
    def meeting(self) -> str:
        """Meeting that a rank proves to belong to. An operator may use the address ``localhost`` on its own machine."""
        return f"{self.master_port}-{self.launch}"

    @property
    def ports(self) -> list[int]:
        """The ports that rank 0 listens at one of, if the ranks share a secret; alike on all of them."""
        first = min(self.master_port + 1, (1 << 16) - _PORTS)
        return [port for port in range(first, first + _PORTS) if port != self.master_port]

    def environment(self, start: str) -> dict[str, str]:
        """The environment of the worker of this rank: that of this process, completed, and without the secret.

        :param start: What rank 0 calls this start of the ranks.
        """
        around = {name: value for name, value in os.environ.items() if name != ADMISSION_VARIABLE}
        own = {
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            START_VARIABLE: start,
        }
        return {**threads_for(self.local_world_size), **around, **own}


def threads_for(local_ranks: int) -> dict[str, str]:
    """``OMP_NUM_THREADS`` for ranks that share the processors of a machine; to be overruled by what is set."""
    if local_ranks == 1:
        return {}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {"OMP_NUM_THREADS": str(max(1, cores // local_ranks))}


def _given(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name)
    if not value:
        raise _invalid(f"RANK and WORLD_SIZE are set, but {name} is not")
    return value


def _secret(environment: Mapping[str, str]) -> str:
    secret = environment.get(ADMISSION_VARIABLE, "")
    if secret and len(secret) < _SHORTEST_SECRET:
        raise InvalidRanks(
            f"{ADMISSION_VARIABLE} has {len(secret)} characters; a secret this short can be guessed",
            hint=f"give it at least {_SHORTEST_SECRET} random characters, the same for all ranks: openssl rand -hex 32",
        )
    return secret


def _number(environment: Mapping[str, str], name: str, default: int | None, *, below: int | None = None) -> int:
    text = environment.get(name) or ("" if default is None else str(default))
    if not text:
        _given(environment, name)
    if not text.isdecimal() or (below is not None and int(text) >= below):
        range_ = f" below {below}" if below is not None else ""
        raise _invalid(f"{name} is {text!r}, and not a whole number{range_}")
    return int(text)


def _invalid(message: str) -> InvalidRanks:
    return InvalidRanks(
        message, hint="start the ranks with torchrun, or unset RANK and WORLD_SIZE to run without an engine"
    )
