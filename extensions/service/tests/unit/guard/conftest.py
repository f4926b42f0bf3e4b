"""Spellings of places that jobs from others may not reach, and programs that take them as they come.

The programs are the standard library, urllib3 and fsspec: what they reach is what counts, whatever a guard thinks.
"""

from __future__ import annotations

import glob
import os
import random
import socket
import unicodedata
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import attrs
import fsspec
import pytest
import urllib3

SECRET = b"only who may leave the data roots can read this"


@attrs.frozen(kw_only=True)
class Ground:
    """Where the attacks take place."""

    #: Open to jobs. It has a file, a folder, and links that lead out.
    root: Path
    #: Not open; ``secret.txt`` is there.
    outside: Path
    #: A listener of this machine.
    port: int


_FULLWIDTH = {ord(one): ord(one) + 0xFEE0 for one in "./:%~fileabcdefgh0123456789"}
_IPV4 = (127 << 24) + 1

#: What a name server says: names of attackers, which lead inside.
NAMES = {
    "rebound.attacker.test": ["127.0.0.1"],
    "two.attacker.test": ["93.184.216.34", "127.0.0.1"],
    "six.attacker.test": ["::1"],
    "mapped.attacker.test": ["::ffff:127.0.0.1"],
    "link.attacker.test": ["169.254.169.254"],
    "public.attacker.test": ["93.184.216.34"],
}


def addresses() -> list[str]:
    """The loopback device and the metadata service, in the notations that resolvers and parsers take."""
    loopback = ["127.0.0.1", "127.1", "127.0.1", str(_IPV4), hex(_IPV4), oct(_IPV4).replace("o", ""), "0177.0.0.1"]
    loopback += ["0x7f.0.0.1", "0x7f.1", "127.0.0.01", "127.255.1.2", "0", "0.0.0.0", "[::1]", "[::]", "[0:0::1]"]
    loopback += ["[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]", "[::ffff:7f00:1]", "localhost"]
    loopback += ["LOCALHOST", "localhost.", "localhost.localdomain", "a.localhost", "127.0.0.1.", "①②⑦.⓪.⓪.①"]
    metadata = ["169.254.169.254", "169.254.43518", "2852039166", "0xa9fea9fe", "[fe80::1]", "[fe80::1%25lo]"]
    metadata += ["[fd00:ec2::254]", "metadata.google.internal", "metadata", "instance-data", "168.63.129.16"]
    metadata += ["100.100.100.200", "10.0.0.1", "192.168.1.1", "172.16.0.1", "[fd12::1]", "printer.local", "kubernetes"]
    return [*loopback, *metadata, *NAMES]


def hostile_uris(chance: random.Random, ground: Ground) -> Iterator[str]:
    """Endless spellings of a file that is not open and of a listener that is not."""
    while True:
        # A disguise draws for every letter: the next text must not depend on how long the paths of the ground are.
        own = random.Random(chance.getrandbits(64))
        text = own.choice((_file, _server))(own, ground)
        for _ in range(own.choice((0, 0, 1, 1, 2))):
            text = own.choice(_DISGUISES)(own, text)
        yield text


def _file(chance: random.Random, ground: Ground) -> str:
    secret = str(ground.outside / "secret.txt")
    path = chance.choice(
        (
            secret,
            f"/{secret}",
            secret.replace("/", "/./"),
            f"{ground.root}/../outside/secret.txt",
            f"{ground.root}/inside/../../outside/secret.txt",
            f"{ground.root}/link/secret.txt",
            f"{ground.root}/link",
            f"{ground.root}/l*k/secret.txt",
            f"{ground.root}/[l]ink/*",
            f"{ground.root}/**",
            f"{ground.root}/*",
            f"{ground.root}/file-link",
            f"{ground.root}x/secret.txt",
            f"/proc/self/root{secret}",
            f"{os.path.relpath(secret, ground.root)}",
            "../outside/secret.txt",
            "./../outside/secret.txt",
            "secret.txt/../../outside/secret.txt",
            "~/secret.txt",
            "~root/../" + secret,
            secret.replace("outside", "outs*de"),
        )
    )
    scheme = chance.choice(_FILE_SCHEMES)
    return scheme.replace("PATH", path)


_FILE_SCHEMES: Sequence[str] = (
    *("PATH", "PATH", "PATH", "file://PATH", "file:PATH", "FILE://PATH", "File:PATH", "file:///PATH"),
    *("file://localhostPATH", "file://127.0.0.1PATH", "file:////PATH", "local://PATH", "local:PATH", "LOCAL://PATH"),
    *("simplecache::PATH", "simplecache::file://PATH", "filecache::PATH", "blockcache::file:PATH", "dir::PATH"),
    *("zip://x::PATH", "zip://secret.txt::file://PATH", "tar://a::PATH", "reference://::PATH", "s3://b/k::PATH"),
    *(
        "file::PATH",
        "memory://PATH",
        "jar:file:PATH!/x",
        "arrow_hdfs://PATH",
        "sftp://localhostPATH",
        "url:file://PATH",
    ),
    *(
        "URL:file://PATH",
        "<file://PATH>",
        "<URL:file://PATH>",
        "x=PATH",
        "x=file://PATH",
        "a,PATH",
        "@PATH",
        "@file:PATH",
    ),
    *("s3://PATH", "s3a:PATH", "hf:PATH", "sqlite:///PATH", "git+file://PATH", "1file://PATH", "see file://PATH here"),
    *("genericfile://PATH", "libarchive://x::PATH", "github://x::PATH", "://PATH", "x://PATH", "c:PATH", "data:,PATH"),
)


def _server(chance: random.Random, ground: Ground) -> str:
    address = chance.choice(addresses())
    template = chance.choice(_SERVER_TEMPLATES)
    if address == "0" and template == "HOST:PORT":
        return "http://0/"  # without a scheme it may be a part of a list: 0:8080
    return template.replace("HOST", address).replace("PORT", str(ground.port))


_SERVER_TEMPLATES: Sequence[str] = (
    *("http://HOST:PORT/", "http://HOST:PORT/x.parquet", "https://HOST:PORT/", "HTTP://HOST:PORT/", "http:/HOST:PORT/"),
    *(
        "http:HOST:PORT/",
        "http:///HOST:PORT/",
        "http:\\\\HOST:PORT\\",
        "http://user@HOST:PORT/",
        "http://u:p@HOST:PORT/",
    ),
    *("http://example.com@HOST:PORT/", "http://example.com:80@HOST:PORT/", "http://example.com\\@HOST:PORT/"),
    *("http://HOST:PORT\\@example.com/", "http://HOST:PORT#@example.com/", "http://HOST:PORT?@example.com/"),
    *("http://example.com#@HOST:PORT/", "http://HOST:PORT%2f@example.com/", "http://[HOST]:PORT/", "//HOST:PORT/"),
    *("http://HOST:PORT", "http://HOST:PORT?x", "http://HOST :PORT/", "http://HOST\t:PORT/", "http://\tHOST:PORT/"),
    *("redis://HOST:PORT/0", "ftp://HOST:PORT/", "gopher://HOST:PORT/", "s3://HOST:PORT/x", "ws://HOST:PORT"),
    *("abfs://c@HOST:PORT/x", "abfs://c@HOST/x", "simplecache::http://HOST:PORT/", "HOST:PORT", "<http://HOST:PORT/>"),
    *("URL:http://HOST:PORT/", "look at http://HOST:PORT/ please", "x=http://HOST:PORT/", "http://HOST:0PORT/"),
    *("s3://k:s@bucket/x?endpoint_override=HOST:PORT&scheme=http", "https://example.com,http://HOST:PORT/"),
    *("s3://bucket/x?endpoint_override=http://HOST:PORT", "http://HOST:PORT/http://example.com/"),
)


def _percent(chance: random.Random, text: str) -> str:
    often = chance.choice((0.1, 0.5, 1))
    return "".join(quote(one, safe="").replace(".", "%2e") if chance.random() < often else one for one in text)


def _percent_all(_chance: random.Random, text: str) -> str:
    return "".join(f"%{one:02x}" for one in text.encode())


def _fullwidth(chance: random.Random, text: str) -> str:
    return "".join(one.translate(_FULLWIDTH) if chance.random() < 0.4 else one for one in text)


def _controls(chance: random.Random, text: str) -> str:
    at = chance.randrange(len(text) + 1)
    return text[:at] + chance.choice("\t\r\n \x0b\x1f\xa0\u2003\u200b\x7f") + text[at:]


def _upper(chance: random.Random, text: str) -> str:
    scheme, colon, rest = text.partition(":")
    return "".join(chance.choice((one.upper(), one.lower())) for one in scheme) + colon + rest


_DISGUISES: Sequence[Callable[[random.Random, str], str]] = (
    _percent,
    _percent_all,
    lambda chance, text: _percent(chance, _percent(chance, text)),
    _fullwidth,
    _controls,
    _upper,
    lambda _, text: text.replace("/", "\\"),
    lambda _, text: f" {text} ",
    lambda _, text: text.replace("..", "\uff0e\uff0e"),
    lambda _, text: f"<URL:{text}>",
)


def hostile_job(chance: random.Random, uri: str) -> dict[str, Any]:
    """A job with a hostile text in one of the places where such a text may stand."""
    return chance.choice(
        (
            {"dataset": {"parquet_paths": uri}},
            {"dataset": {"parquet_paths": ["s3://bucket/fine.parquet", uri]}},
            {"validation": {"source": "csv", "paths": [uri]}},
            {"dataset": {"source": "mix", "of": [{"name": "a", "parquet_paths": [uri]}]}},
            {"dataset": {"source": "shards", "index": uri}},
            {"weights": uri},
            {"resume_from_checkpoint": uri},
            {"checkpoint_base_uri": uri, "run_id": "r"},
            {"inputs": {"model": {"uri": uri}}},
            {"samples": [{"prompt": "x", "source_image": uri}]},
            {"uploaders": [{"use": "fsspec", "uri": uri}]},
            {"hyperparams": {"config": {"deep": [uri]}}},
            {"inputs": {"model": uri}},
            {"dataset": {"parquet_paths": "s3://b/k", "storage_options": {"client_kwargs": {"endpoint_url": uri}}}},
            {"reporters": [{"use": "mlflow", "tracking_uri": uri}]},
            {"callbacks": [{"use": "x", "path": uri}]},
        )
    )


@attrs.define(eq=False)
class Programs:
    """Programs that read a text as it comes, in a world where everything but connecting is real."""

    ground: Ground
    #: Where they have tried to connect to.
    connected: list[tuple[Any, ...]] = attrs.field(factory=list)

    def reach(self, text: str) -> list[str]:
        """What they reach that is closed, with this text."""
        self.connected.clear()
        found = [f"{name} has read the secret" for name, read in _READERS.items() if SECRET in _content(read, text)]
        with suppress(Exception):
            urllib3.PoolManager(retries=False, timeout=0.2).request("GET", text)
        return [*found, *(f"connected to {where}" for where in self.connected)]

    def connect(self, address: tuple[Any, ...] | str) -> None:
        """In place of connecting: whatever is not public was reached."""
        if isinstance(address, tuple) and address[0] != "93.184.216.34":
            self.connected.append(address)
        raise ConnectionRefusedError(address)


def _content(read: Callable[[str], bytes], text: str) -> bytes:
    try:
        return read(text)
    except Exception:  # noqa: BLE001 - whatever a program does not take, it does not reach
        return b""


def _walk(text: str) -> bytes:
    found = []
    for path in glob.glob(text, recursive=True):  # noqa: PTH207 - as the data sources do
        files = [path]
        if Path(path).is_dir():
            files = [str(Path(at, one)) for at, _, names in os.walk(path, followlinks=True) for one in names]
        found += [Path(one).read_bytes() for one in files]
    return b"".join(found)


def _fsspec(text: str) -> bytes:
    with fsspec.open(text, "rb") as file:
        content: bytes = file.read()
    return content


def _url(text: str) -> bytes:
    with urllib.request.urlopen(text, timeout=0.2) as answer:
        content: bytes = answer.read()
    return content


_READERS: dict[str, Callable[[str], bytes]] = {
    "open": lambda text: Path(text).read_bytes(),
    "expanduser": lambda text: Path(text).expanduser().read_bytes(),
    "glob": _walk,
    "fsspec": _fsspec,
    "urllib": _url,
    "unquote": lambda text: Path(unquote(text)).read_bytes(),
    "unquote twice": lambda text: Path(unquote(unquote(text))).read_bytes(),
    "unquote and urllib": lambda text: _url(unquote(text)),
    "NFKC": lambda text: Path(unicodedata.normalize("NFKC", text)).read_bytes(),
    "strip": lambda text: Path(text.strip()).read_bytes(),
    "slashes": lambda text: Path(text.replace("\\", "/")).read_bytes(),
    "after the scheme": lambda text: Path(text.partition("://")[2]).read_bytes(),
}


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    """A folder that is open, one that is not and is home, and a working directory between them."""
    root, outside, here = tmp_path / "root", tmp_path / "outside", tmp_path / "here"
    for folder in (root / "inside", outside, here, tmp_path / "rootx"):
        folder.mkdir(parents=True)
    for folder in (outside, tmp_path / "rootx"):
        (folder / "secret.txt").write_bytes(SECRET)
    (root / "inside" / "data.parquet").write_bytes(b"open to everybody")
    (root / "link").symlink_to(outside)
    (root / "file-link").symlink_to(outside / "secret.txt")
    monkeypatch.setenv("HOME", str(outside))
    monkeypatch.chdir(here)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Ground(root=root, outside=outside, port=listener.getsockname()[1])


@pytest.fixture
def programs(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Programs whose every connection is noted; no name server is asked but ours."""
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        name = str(host).rstrip(".").lower()
        if name in NAMES or name.endswith("localhost") or name == "localhost.localdomain":
            family = socket.AF_INET6 if ":" in NAMES.get(name, [""])[0] else socket.AF_INET
            found = NAMES.get(name, ["127.0.0.1"])
            return [(family, socket.SOCK_STREAM, 6, "", (one, port or 0)) for one in found]
        return real(host, port, flags=socket.AI_NUMERICHOST)

    programs = Programs(ground=ground)
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket.socket, "connect", lambda _, address: programs.connect(address))
    # The client of S3 asks it on its own account, for the credentials of the machine.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return programs


@pytest.fixture
def attacks(ground: Ground) -> Callable[[random.Random], Iterator[tuple[str, dict[str, Any]]]]:
    """Endless hostile texts, each with a job that has it somewhere."""

    def endless(chance: random.Random) -> Iterator[tuple[str, dict[str, Any]]]:
        for uri in hostile_uris(chance, ground):
            yield uri, hostile_job(chance, uri)

    return endless
