"""Hosts that a job from others may name: those of the internet, and those that the operator's file lists.

The scope of an address is decided by the address alone, in all its spellings and with embedded addresses. A name is
looked up when the job comes in; an unknown name then passes, since only the machine that runs the job can resolve it,
and an attacker who can make a name unknown for a moment can as well make it point elsewhere a moment later.
"""

import ipaddress
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal

import attrs

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
#: ``internal``: the operator may open it. ``metadata``: it is closed to all jobs.
Scope = Literal["public", "internal", "metadata"]
Lookup = Callable[[Collection[str]], Mapping[str, Sequence[str]]]

#: Of one job. More is a scan, not a job.
MOST_NAMES: Final = 64
_LOOKUP_SECONDS: Final = 2.0
#: Of this process: a thread that waits for a name server cannot be ended.
_LOOKUPS_AT_ONCE: Final = 64

#: Where a machine asks about itself, credentials above all: link-local, and what clouds put elsewhere.
_METADATA: Final = tuple(
    ipaddress.ip_network(one)
    for one in (
        "169.254.0.0/16",
        "fe80::/10",
        "fd00:ec2::/32",  # Amazon
        "fd20:ce::/32",  # Google
        "168.63.129.16/32",  # Azure; a public address, by its number
        "100.100.100.200/32",  # Alibaba
        "192.0.0.192/32",  # Oracle
    )
)
_METADATA_NAMES: Final = frozenset(
    {
        "instance-data",
        "instance-data.ec2.internal",
        "metadata",
        "metadata.azure.com",
        "metadata.azure.internal",
        "metadata.google.internal",
        "metadata.goog",
        "metadata.tencentyun.com",
        "metadata.packet.net",
        "metadata.platformequinix.com",
    }
)
#: Names that mean something inside of a network only: each has another owner in every network.
_INTERNAL_NAMES: Final = re.compile(
    r"(?:^|\.)(?:localhost|localdomain|local|internal|intranet|private|corp|home|lan|svc|home\.arpa|in-addr\.arpa"
    r"|ip6\.arpa)$"
)
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)")
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE: Final = ipaddress.ip_network("::/96")


@attrs.frozen(kw_only=True)
class NamedHost:
    """A host as a URI names it."""

    #: In lower case; an IPv6 address without its brackets.
    name: str
    port: int | None = None
    #: Whether a name without a dot may be something else than a host.
    may_be_text: bool = False


@attrs.frozen(kw_only=True)
class Hosts:
    """Hosts opened by the operator: names, addresses or patterns of them, with a port (``host:port``) or without."""

    opened: Sequence[str] = ()

    def why_not(self, host: NamedHost) -> str | None:
        """Return the reason against a host, without a name server; None: allowed as far as its spelling shows."""
        name = host.name.removesuffix(".")
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return self._why_not_name(attrs.evolve(host, name=name))
        return self._why_not_address(host, address)

    def why_not_there(self, host: NamedHost, addresses: Sequence[str]) -> str | None:
        """Return the reason against a host with these addresses; None: allowed."""
        for one in addresses:
            address = ipaddress.ip_address(one.partition("%")[0])
            if problem := self._why_not_address(host, address):
                return f"{host.name!r} is {address}, and {problem}"
        return None

    def _why_not_address(self, host: NamedHost, address: Address) -> str | None:
        match scope_of(address):
            case "metadata":
                return "link-local addresses and those of cloud metadata services are closed to jobs"
            case "internal" if not self.is_opened(host):
                return "addresses inside of this network are closed to jobs"
        return None

    def _why_not_name(self, host: NamedHost) -> str | None:
        name = host.name
        labels = name.split(".")
        if not all(_LABEL.fullmatch(label) for label in labels) or len(name) > 253:
            return f"{name!r} is no name of a host"
        if _NUMBER.fullmatch(labels[-1]):
            return f"{name!r} is an address in a notation that programs read differently"
        if name in _METADATA_NAMES:
            return f"{name!r} is a cloud metadata service, which is closed to jobs"
        if self.is_opened(host):
            return None
        if _INTERNAL_NAMES.search(name) or (len(labels) == 1 and not host.may_be_text):
            return f"{name!r} is a name inside of this network, which is closed to jobs"
        return None

    def is_opened(self, host: NamedHost) -> bool:
        """Return whether the operator has opened a host."""
        name = host.name.removesuffix(".")
        shown = f"[{name}]" if ":" in name else name
        spellings = {name, shown, *([f"{shown}:{host.port}"] if host.port is not None else ())}
        return any(
            one.lower() in spellings or any(fnmatchcase(spelling, one.lower()) for spelling in spellings)
            for one in self.opened
        )


def scope_of(address: Address) -> Scope:
    """Return the strictest scope of an address and of the addresses embedded in it."""
    found = {_own_scope(one) for one in (address, *_embedded(address))}
    return "metadata" if "metadata" in found else "internal" if "internal" in found else "public"


def _own_scope(address: Address) -> Scope:
    if any(address.version == network.version and address in network for network in _METADATA):
        return "metadata"
    return "public" if address.is_global and not address.is_multicast else "internal"


def _embedded(address: Address) -> Iterator[ipaddress.IPv4Address]:
    """The IPv4 addresses that an IPv6 address leads to: mapped, compatible, 6to4, Teredo, NAT64."""
    if isinstance(address, ipaddress.IPv4Address):
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if address in _NAT64 or address in _COMPATIBLE:
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


_lookups: Final = threading.BoundedSemaphore(_LOOKUPS_AT_ONCE)


def look_up(names: Collection[str], seconds: float = _LOOKUP_SECONDS) -> dict[str, list[str]]:
    """The addresses of names, as this machine knows them; those that are unknown after a while are left out.

    :param seconds: For all together.
    """
    answers: queue.SimpleQueue[tuple[str, list[str]]] = queue.SimpleQueue()
    deadline = time.monotonic() + seconds
    asked = 0
    for name in names:
        if not _lookups.acquire(timeout=max(0.0, deadline - time.monotonic())):
            break
        asked += 1
        threading.Thread(target=_look_up, args=(name, answers), name=f"look-up-{name}", daemon=True).start()
    found: dict[str, list[str]] = {}
    for _ in range(asked):
        try:
            name, addresses = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        found[name] = addresses
    return found


def _look_up(name: str, answers: "queue.SimpleQueue[tuple[str, list[str]]]") -> None:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        answers.put((name, [str(one[4][0]) for one in found]))
    except (OSError, UnicodeError):
        answers.put((name, []))
    finally:
        _lookups.release()
