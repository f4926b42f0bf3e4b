"""Settings of the launcher ``torchrun``."""

from collections.abc import Mapping
from typing import Annotated, Final

import attrs
from annotated_types import Ge, Le, MinLen

from hostcore_hookspecs import FatalError, InvalidSettings, LaunchContext

#: Started as processes of this machine.
HERE: Final = "localhost"
#: Arguments that the launcher sets itself.
_OWN_RENDEZVOUS: Final = frozenset({"is_host", "store_type"})

Host = Annotated[str, MinLen(1)]


@attrs.frozen(kw_only=True)
class TorchrunSettings:
    """Machines, and recovery from the loss of one."""

    hosts: tuple[Host, ...] = attrs.field(
        default=(),
        metadata={
            "help": "The machines, one for each of `resources.num_nodes`; `localhost` is this one, the others are "
            "reached with `ssh`. The first one cannot be lost: the agents meet there.",
            "default": "`localhost` for every node",
        },
    )
    min_nodes: Annotated[int, Ge(1)] | None = attrs.field(
        default=None,
        metadata={"help": "The fewest nodes to go on with when some are lost.", "default": "all of them"},
    )
    max_restarts: Annotated[int, Ge(0)] | None = attrs.field(
        default=None,
        metadata={
            "help": "How often the ranks are started again.",
            "default": "the job's `max_restarts`; with `min_nodes` at least 3",
        },
    )
    rendezvous_port: Annotated[int, Ge(0), Le(65535)] = attrs.field(
        default=0, metadata={"help": "Where the agents meet, on the first machine; 0: a free port."}
    )
    rendezvous: Mapping[str, str] = attrs.field(
        factory=dict,
        metadata={
            "help": "More of torchrun's `--rdzv-conf`: `last_call_timeout`, how many seconds to wait for further nodes "
            "once there are enough (30); `join_timeout` (600); `keep_alive_interval` (5)."
        },
    )
    ssh: tuple[str, ...] = attrs.field(
        default=(), metadata={"help": 'Options of `ssh`, such as `["-i", "/keys/cluster", "-p", "2222"]`.'}
    )
    torchrun: Annotated[str, MinLen(1)] | None = attrs.field(
        default=None,
        metadata={
            "help": "The program `torchrun`, at the same path on all machines.",
            "default": "that of the interpreter that runs hostcore",
        },
    )


def check_settings(settings: TorchrunSettings) -> None:
    """Refuse settings that make no sense, whatever the job.

    :raises InvalidSettings: The first that does not.
    """
    for index, host in enumerate(settings.hosts):
        if host.startswith("-") or not host.isprintable() or any(letter.isspace() for letter in host):
            raise InvalidSettings(f"/hosts/{index}", f"{host!r} is no name of a machine", hint="node-1, or me@node-1")
    for name, value in settings.rendezvous.items():
        pointer = f"/rendezvous/{name}"
        if name in _OWN_RENDEZVOUS:
            raise InvalidSettings(pointer, f"{name} is set by the launcher")
        if not name.isidentifier() or not value.isalnum():
            raise InvalidSettings(
                pointer, f"{name}={value} is nothing for --rdzv-conf", hint='"last_call_timeout": "5"'
            )


def hosts_of(settings: TorchrunSettings, ctx: LaunchContext) -> tuple[str, ...]:
    """The machine of each node.

    :raises FatalError: When what the job asks for does not fit.
    """
    resources = ctx.job.resources
    for key, asks in (("image", resources.image), ("namespace", resources.namespace)):
        if asks:
            raise FatalError(
                f"the launcher torchrun starts processes, and knows no {key}",
                pointer=f"/resources/{key}",
                hint='remove the key, or name another launcher: "launcher": "kubernetes-pytorchjob"',
            )
    hosts = settings.hosts or (HERE,) * resources.num_nodes
    if len(hosts) != resources.num_nodes:
        raise FatalError(
            f"the job asks for {resources.num_nodes} nodes, and the launcher's settings name {len(hosts)} hosts",
            pointer="/resources/num_nodes",
            hint=f'"resources": {{"num_nodes": {len(hosts)}}} uses all of them',
        )
    if settings.min_nodes is not None and settings.min_nodes > len(hosts):
        raise FatalError(
            f"min_nodes is {settings.min_nodes}, and there are {len(hosts)} nodes",
            pointer="/launcher/min_nodes",
            hint="name fewer than resources.num_nodes",
        )
    return hosts
