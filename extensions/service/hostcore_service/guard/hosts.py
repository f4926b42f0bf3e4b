"""Hosts that a job from others may name: those that the operator's file lists, and never a cloud's metadata service.

An opened name is looked up when the job comes in. An unknown name passes, since only the machine that runs the job can
resolve it; the network of that machine is what keeps a name from changing its address later.
"""

import ipaddress
import re
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Final

import attrs

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Lookup = Callable[[Collection[str]], Mapping[str, Sequence[str]]]

#: Names of one job. More is a scan, not a job.
MOST_NAMES: Final = 64
_LOOKUP_SECONDS: Final = 2.0
#: Of all requests together.
_lookups: Final = threading.BoundedSemaphore(2 * MOST_NAMES)

#: Where a machine asks about itself, credentials above all: link-local, and what clouds put elsewhere.
METADATA: Final = tuple(
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
_METADATA_NAMES: Final = re.compile(
    r"instance-data(\.ec2\.internal)?|metadata(\.(azure\.(com|internal)|google\.internal|goog|tencentyun\.com"
    r"|packet\.net|platformequinix\.com))?"
)
#: ``host``, ``host:port``, ``[::1]:80``, in the one spelling that all programs read alike.
HOST: Final = r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9_][A-Za-z0-9_.-]*))(?::(?P<port>[0-9]{1,5}))?"
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE: Final = ipaddress.ip_network("::/96")


@attrs.frozen(kw_only=True)
class Hosts:
    """Hosts opened by the operator: names, addresses or patterns of them, with a port (``host:port``) or without."""

    opened: Sequence[str] = ()

    def why_not(self, name: str, port: int | None) -> str | None:
        """Return the reason against a host; None: allowed, as far as its name shows.

        :param name: Without the brackets of an IPv6 address.
        """
        name = name.lower().removesuffix(".")
        address = _address(name)
        if _METADATA_NAMES.fullmatch(name) or (address is not None and _is_metadata(address)):
            return f"{name!r} is link-local or a cloud metadata service, which is closed to jobs"
        if address is None and re.search(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)$", name):
            return f"{name!r} is an address in a notation that programs read differently"
        shown = f"[{name}]" if ":" in name else name
        spellings = {name, shown, *([f"{shown}:{port}"] if port is not None else ())}
        if any(one.lower() in spellings or _matches(spellings, one.lower()) for one in self.opened):
            return None
        return f"the server {name!r} is not among those that the operator has opened"


def why_not_there(name: str, addresses: Sequence[str]) -> str | None:
    """Return the reason against an opened name with these addresses; None: allowed."""
    for one in addresses:
        address = _address(one.partition("%")[0])
        if address is not None and _is_metadata(address):
            return f"{name!r} is {address}: link-local, or a cloud metadata service, which is closed to jobs"
    return None


def _matches(spellings: Collection[str], pattern: str) -> bool:
    return any(fnmatchcase(spelling, pattern) for spelling in spellings)


def _address(name: str) -> Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _is_metadata(address: Address) -> bool:
    found = (address, *_embedded(address))
    return any(one.version == network.version and one in network for one in found for network in METADATA)


def _embedded(address: Address) -> Iterator[ipaddress.IPv4Address]:
    """Yield the IPv4 addresses that an IPv6 address leads to: mapped, compatible, 6to4, Teredo, NAT64."""
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


def look_up(names: Collection[str]) -> dict[str, list[str]]:
    """Return the addresses of names, as this machine knows them after two seconds; unknown names are left out.

    Each name has a thread of its own: one that gets no answer must not hide another.
    """
    found: dict[str, list[str]] = {}

    def resolve(name: str) -> None:
        with suppress(OSError, UnicodeError):
            found[name] = [str(one[4][0]) for one in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
        _lookups.release()

    deadline = time.monotonic() + _LOOKUP_SECONDS
    threads = []
    for name in names:
        if not _lookups.acquire(timeout=max(0.0, deadline - time.monotonic())):
            break
        # A thread that waits for a name server cannot be ended.
        threads.append(threading.Thread(target=resolve, args=(name,), name="look-up", daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(found)
