"""Distribution, version and hash of a plugin, for the run's record. Imports no plugin."""

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import attrs

from hostcore.plugins.errors import named
from hostcore.plugins.installed import distribution_on, find_package, module_and_symbol, package_of
from hostcore_hookspecs.plan import PluginRef


@attrs.frozen(kw_only=True)
class Provenance:
    """Origin of a plugin's code."""

    kind: str
    name: str
    value: str
    distribution: str | None
    version: str | None
    #: In hexadecimal: over RECORD, which itself has the hash of every file, for what pip installed; over the Python
    #: files of the package for an editable installation or an import path. None where neither can be had.
    sha256: str | None


def provenance(ref: PluginRef, *, job_dir: Path | None = None, path: Sequence[str] | None = None) -> Provenance:
    """Return the origin of a plugin's code.

    :param job_dir: The job file's folder, where import paths are looked up as well.
    :param path: The folders that it is installed in, if that is another environment.
    """
    record = _record(ref.dist, path) if ref.dist is not None else None
    if record is not None and other_code(ref, path=path) is None:
        sha256: str | None = hashlib.sha256(record).hexdigest()
    else:
        sha256 = _of_sources(package_of(ref.value), job_dir if ref.dist is None else None, path)
    return Provenance(
        kind=ref.kind, name=ref.name, value=ref.value, distribution=ref.dist, version=ref.version, sha256=sha256
    )


def other_code(ref: PluginRef, *, path: Sequence[str] | None = None) -> str | None:
    """Return a sentence about a plugin whose module is not the file that its distribution installed; None if it is.

    pip installs two distributions with a module of one name over each other. None as well where there is no RECORD.

    :param path: The folders that it is installed in, if that is another environment.
    """
    if ref.dist is None or _record(ref.dist, path) is None:
        return None
    file = _module_file(module_and_symbol(ref.value)[0], path)
    try:
        if file is None or _installed(distribution_on(path, ref.dist), file):
            return None
    except (metadata.PackageNotFoundError, OSError):
        return None
    others = metadata.distributions() if path is None else metadata.distributions(path=list(path))
    owners = [f"{one.metadata['Name']} {one.version}" for one in others if _installed(one, file)]
    whose = f"it is that of {owners[0]}" if owners else "it was changed since, or hides that one"
    remedy = "uninstall one of the two" if owners else f"reinstall {ref.dist}"
    return f"{named(ref)}: {file} is not the file that {ref.dist} has installed: {whose}; {remedy}"


def _installed(distribution: metadata.Distribution, file: Path) -> bool:
    """Return whether a distribution has installed a file as it is."""
    for one in distribution.files or ():
        if one.name == file.name and Path(str(one.locate())).resolve() == file:
            if one.hash is None or one.hash.mode != "sha256":
                return True
            digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest())
            return digest.rstrip(b"=").decode() == one.hash.value
    return False


def _module_file(module: str, path: Sequence[str] | None) -> Path | None:
    """Return the source of a module, found without an import; None if it has none, or cannot be found so."""
    package, *rest = module.split(".")
    spec = _spec(package, None, path)
    if spec is None or spec.origin is None:
        return None
    place = Path(spec.origin)
    if rest:
        inner = Path(spec.origin).parent.joinpath(*rest)
        place = next((one for one in (inner / "__init__.py", inner.with_suffix(".py")) if one.is_file()), place)
    return place.resolve() if place.is_file() else None


def _record(distribution: str, path: Sequence[str] | None) -> bytes | None:
    """Return the RECORD of a regular installation; None for an editable one, whose RECORD lacks the code."""
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
        spec = find_package(package, path)
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
