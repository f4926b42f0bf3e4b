"""What exactly ran: distribution, version and hash of a plugin, for the run's record. Imports no plugin."""

import hashlib
import importlib.util
import json
from collections.abc import Sequence
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import attrs

from hostcore.plugins.installed import distribution_on
from hostcore_hookspecs.plan import PluginRef


@attrs.frozen(kw_only=True)
class Provenance:
    """Where a plugin came from."""

    kind: str
    name: str
    value: str
    distribution: str | None
    version: str | None
    #: In hexadecimal: over RECORD, which itself has the hash of every file, for what pip installed; over the Python
    #: files of the package for an editable installation or an import path. None where neither can be had.
    sha256: str | None


def provenance(ref: PluginRef, *, job_dir: Path | None = None, path: Sequence[str] | None = None) -> Provenance:
    """Where a plugin came from.

    :param job_dir: The job file's folder, where import paths are looked up as well.
    :param path: The folders that it is installed in, if that is another environment.
    """
    record = _record(ref.dist, path) if ref.dist is not None else None
    if record is not None:
        sha256: str | None = hashlib.sha256(record).hexdigest()
    else:
        package = ref.value.partition(":")[0].partition(".")[0]
        sha256 = _of_sources(package, job_dir if ref.dist is None else None, path)
    return Provenance(
        kind=ref.kind, name=ref.name, value=ref.value, distribution=ref.dist, version=ref.version, sha256=sha256
    )


def _record(distribution: str, path: Sequence[str] | None) -> bytes | None:
    """The RECORD of a regular installation; None for an editable one, whose RECORD does not know the code."""
    try:
        found = distribution_on(path, distribution)
    except metadata.PackageNotFoundError:
        return None
    try:
        url = json.loads(found.read_text("direct_url.json") or "{}")
        if url.get("dir_info", {}).get("editable"):
            return None
    except (ValueError, AttributeError):  # not pip's own; then RECORD is as good as ever
        pass
    text = found.read_text("RECORD")
    if not text:
        return None
    # pip ends its lines with \r\n, which read_text() turns into \n; the hash is that of the file, as sha256sum has it.
    info = getattr(found, "_path", None)
    return text.encode() if info is None else bytes((info / "RECORD").read_bytes())


def _of_sources(package: str, job_dir: Path | None, path: Sequence[str] | None) -> str | None:
    spec = _spec(package, job_dir, path)
    if spec is None:
        return None
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    digest = hashlib.sha256()
    try:
        if not folders:
            files = [Path(spec.origin or "")]
            root = files[0].parent
            _add(digest, files[0], root)
            return digest.hexdigest()
        for folder in folders:
            for file in sorted(folder.rglob("*.py")):
                parts = file.relative_to(folder).parts
                if not any(part.startswith(".") or part == "__pycache__" for part in parts):
                    _add(digest, file, folder)
    except OSError:  # in an archive, built in, or gone
        return None
    return digest.hexdigest()


def _spec(package: str, job_dir: Path | None, path: Sequence[str] | None) -> ModuleSpec | None:
    try:
        # The name of the top level only: to find a submodule, Python would import its parents.
        spec = importlib.util.find_spec(package) if path is None else PathFinder.find_spec(package, path)
    except (ImportError, ValueError):
        spec = None
    if spec is None and job_dir is not None:
        spec = PathFinder.find_spec(package, [str(job_dir)])
    return spec


def _add(digest: "hashlib._Hash", file: Path, root: Path) -> None:
    content = file.read_bytes()
    # The length keeps a path and a content from being read as one another.
    digest.update(f"{file.relative_to(root).as_posix()}\0{len(content)}\0".encode())
    digest.update(content)
