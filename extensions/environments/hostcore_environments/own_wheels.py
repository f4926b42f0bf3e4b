"""Wheels of the hostcore that runs, made from its installation, so that a worker elsewhere has the same code.

Made from what Python would import, so that an editable installation works like any other. The format:
https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

import base64
import hashlib
import importlib.util
import zipfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

import attrs

from hostcore.supervisor.environment import OWN

_WHEEL: Final = "Wheel-Version: 1.0\nGenerator: hostcore-environments\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_METADATA_FILES: Final = ("METADATA", "entry_points.txt")


@attrs.frozen(kw_only=True)
class OwnDistribution:
    """One of the host's own distributions, as it is installed."""

    name: str
    version: str
    #: What the wheel has, by its path there, in that order.
    content: dict[str, bytes]

    @property
    def stem(self) -> str:
        """Name and version as files have them."""
        return f"{self.name.replace('-', '_')}-{self.version}"

    @property
    def requirements(self) -> str:
        """Metadata of the distribution, its requirements among it."""
        return self.content[f"{self.stem}.dist-info/METADATA"].decode()

    def write(self, folder: Path) -> Path:
        """Write the wheel into a folder."""
        wheel = folder / f"{self.stem}-py3-none-any.whl"
        info = f"{self.stem}.dist-info"
        files = {**self.content, f"{info}/WHEEL": _WHEEL.encode()}
        record = "".join(f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in files.items())
        files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
        with zipfile.ZipFile(wheel, "w") as archive:
            for name, content in files.items():
                archive.writestr(zipfile.ZipInfo(name), content)  # the same time in all: equal content, equal wheel
        return wheel


def own_distributions() -> Sequence[OwnDistribution]:
    """Those that a worker needs, read from the folders that this process imports them from."""
    return [_read(name) for name in OWN]


def digest_of(distributions: Sequence[OwnDistribution]) -> str:
    """A SHA-256 over all that the wheels have, in hexadecimal."""
    whole = hashlib.sha256()
    for one in distributions:
        for name, content in one.content.items():
            whole.update(f"{one.stem}\0{name}\0{len(content)}\0".encode())
            whole.update(content)
    return whole.hexdigest()


def _read(name: str) -> OwnDistribution:
    found = metadata.distribution(name)
    info = f"{name.replace('-', '_')}-{found.version}.dist-info"
    content = {at: file.read_bytes() for at, file in _files(name.replace("-", "_"))}
    for file in _METADATA_FILES:
        if text := found.read_text(file):
            content[f"{info}/{file}"] = text.encode()
    return OwnDistribution(name=name, version=found.version, content=content)


def _files(package: str) -> Iterator[tuple[str, Path]]:
    """The files of a package, by their path in a wheel."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0])
    for file in sorted(folder.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield f"{package}/{file.relative_to(folder).as_posix()}", file


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
