"""The URIs in a string: which scheme, which host. One that programs may read in different ways is refused."""

import re
from collections.abc import Iterator
from typing import Final, Literal
from urllib.parse import parse_qsl

import attrs

from hostcore_service.guard.hosts import NamedHost

#: Stores, where what follows the scheme is a bucket and no host.
STORES: Final = frozenset({"s3", "s3a", "gs", "gcs", "az", "adl", "abfs", "abfss", "hf"})
#: Servers, where it is a host.
SERVERS: Final = frozenset({"http", "https", "redis", "rediss"})
_AZURE: Final = frozenset({"az", "abfs", "abfss"})

#: Not from within a word: looked for from each of its characters, a long one would take quadratic time.
_SCHEME: Final = re.compile(r"(?<![A-Za-z0-9+.-])(?P<scheme>[A-Za-z0-9+.-]+):(?=/)|(?P<none>:)(?=//)")
#: ``http:host``, which some programs take for ``http://host``; and every ``file:``.
_BARE: Final = re.compile(r"(?P<scheme>https?|file|local):", re.IGNORECASE)
_HOST: Final = r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9_.-]+))(?::(?P<port>[0-9]{1,5}))?"
_ALONE: Final = re.compile(_HOST)
_AUTHORITY: Final = re.compile(_HOST + r"(?=[/?#\s]|$)")
#: Inside of a text, something else may follow.
_IN_TEXT: Final = re.compile(_HOST + r"(?=[/?#\s\"'`<>(),;!|\]}]|$)")
_BUCKET: Final = re.compile(
    r"(?:[A-Za-z0-9][A-Za-z0-9._-]*|arn:[a-z0-9:_-]+)(?:@(?P<account>[A-Za-z0-9.-]+))?(?=[/?#\s\"'`<>(),;!|\]}]|$)"
)
_QUERY: Final = re.compile(r"\?([^#\s]*)")
#: What follows a host is looked at so far: longer than any server takes, and short enough to be looked at often.
_LONGEST: Final = 8192
_BRACKETED: Final = re.compile(r"\[[0-9A-Fa-f:.]*\]")

Kind = Literal["store", "server", "file"]


@attrs.frozen(kw_only=True)
class Uri:
    """A URI that can be read in one way only."""

    kind: Kind
    #: Where it begins in its text.
    start: int
    #: Of a server.
    host: NamedHost | None = None
    #: Of a file.
    path: str = ""
    #: What is asked of the server, by name.
    query: tuple[tuple[str, str], ...] = ()


@attrs.frozen(kw_only=True)
class Unreadable:
    """Something like a URI, and why it is refused."""

    start: int
    problem: str
    hint: str | None = None


def find_uris(text: str) -> Iterator[Uri | Unreadable]:
    """Every URI in a text, and everything that a program could take for one."""
    if _is_chain(text):
        yield Unreadable(start=0, problem="chains of file systems (::) are closed to jobs", hint="name one URI")
    bare = _BARE.match(text)
    if bare and not text[bare.end() :].startswith("/"):
        yield Unreadable(start=0, problem=f"there is no // after {text[: bare.end()]!r}")
    for found in _SCHEME.finditer(text):
        yield _uri(text, found)


def host_of(text: str) -> NamedHost | None:
    """The host that a string names without a scheme: ``host``, ``host:port``, ``[::1]:80``; None: it names none."""
    return _host(found) if (found := _ALONE.fullmatch(text)) else None


def _is_chain(text: str) -> bool:
    """Return whether a text is a chain (``zip://a::file:///b``); ``torch::nn`` is none, nor is ``[::1]`` in a URI."""
    if "::" not in text:
        return False
    links = _BRACKETED.sub("[]", text).split("::")
    return len(links) > 1 and any(":/" in link or link.startswith(("/", "~", ".")) for link in links)


def _uri(text: str, found: "re.Match[str]") -> Uri | Unreadable:
    scheme, start, end = found["scheme"], found.start(), found.end()
    if scheme is None:
        return Unreadable(start=start, problem="there is no scheme before ://")
    if scheme == "file":
        return _file(text, start, end)
    if scheme not in STORES | SERVERS:
        known = ", ".join(sorted(STORES | SERVERS))
        return Unreadable(start=start, problem=f"{scheme}: is closed to jobs", hint=f"open are, in lower case, {known}")
    if not text.startswith("//", end):
        return Unreadable(start=start, problem=f"there is no // after {scheme}:")
    return _store(text, scheme, start, end + 2) if scheme in STORES else _server(text, scheme, start, end + 2)


def _file(text: str, start: int, end: int) -> Uri | Unreadable:
    # Anything but file:///path is a path that starts somewhere else for one program or another.
    if start == 0 and re.match(r"///(?!/)", text[end:]):
        return Uri(kind="file", start=start, path=text[end + 2 :])
    return Unreadable(start=start, problem="a file: URI that begins otherwise than file:///", hint="write file:///path")


def _store(text: str, scheme: str, start: int, at: int) -> Uri | Unreadable:
    found = _BUCKET.match(text, at)
    if found is None or (found["account"] and scheme not in _AZURE):
        return _odd(text, start, at)
    host = host_of(found[0].rpartition("@")[2])
    is_address = host is not None and re.fullmatch(r"[0-9.]+|0x.*", host.name)
    if is_address or host == NamedHost(name="localhost"):
        return Unreadable(start=start, problem=f"{found[0]!r} is no name of a bucket")
    account = NamedHost(name=found["account"].lower()) if found["account"] and "." in found["account"] else None
    return Uri(kind="store", start=start, host=account, query=_query(text, found.end()))


def _server(text: str, scheme: str, start: int, at: int) -> Uri | Unreadable:
    found = (_IN_TEXT if start else _AUTHORITY).match(text, at)
    if found is None or "@" in _authority(text, at):  # what stands before it may be a name, a space and all
        return _odd(text, start, at)
    host = _host(found)
    if host.port is None:
        host = attrs.evolve(host, port={"http": 80, "https": 443}.get(scheme, 6379))
    return Uri(kind="server", start=start, host=host, query=_query(text, found.end()))


def _odd(text: str, start: int, at: int) -> Unreadable:
    authority = _authority(text, at)
    if "@" in authority:
        hint = 'leave out what stands before the @, and give it as {"$secret": "env:NAME"} in the settings'
        return Unreadable(start=start, problem="credentials in a URI would be shown", hint=hint)
    hint = "a host is letters, digits, '-' and '.', or an address; names in other scripts begin with xn--"
    return Unreadable(start=start, problem=f"{authority!r} is no host that all programs read alike", hint=hint)


def _authority(text: str, at: int) -> str:
    return re.split(r"[/?#]", text[at : at + _LONGEST], maxsplit=1)[0]


def _host(found: "re.Match[str]") -> NamedHost:
    name = found["six"] or found["name"]
    return NamedHost(name=name.lower(), port=int(found["port"]) if found["port"] else None)


def _query(text: str, at: int) -> tuple[tuple[str, str], ...]:
    found = _QUERY.search(text, at, at + _LONGEST)
    return tuple(parse_qsl(found[1], keep_blank_values=True)) if found else ()
