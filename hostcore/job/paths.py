"""Paths in a job: where a relative one starts, and the keys that are paths, made absolute."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hostcore.job.names import DATA_SECTIONS
from hostcore.secrets.reference import KEY, is_reference, replaced

#: Keys of data sources that are a path or a list of paths.
SOURCE_PATHS = ("parquet_paths", "paths", "index")
#: The source that reads a file, by the end of its name; Parquet if none of them is.
_SOURCES = (
    (re.compile(r"\.(jsonl|ndjson|json)(\.\w{2,4})?$"), "json"),
    (re.compile(r"\.csv(\.\w{2,4})?$"), "csv"),
    (re.compile(r"\.(arrows?|feather|ipc)$"), "arrow"),
)


def source_of(uri: str) -> str:
    """The data source that reads a file."""
    path = uri.partition("?")[0].lower()
    return next((source for pattern, source in _SOURCES if pattern.search(path)), "parquet")


def as_dataset(path: str) -> dict[str, object]:
    """The section of a job that reads a file."""
    source = source_of(path)
    return {"parquet_paths": [path]} if source == "parquet" else {"source": source, "paths": [path]}


def is_uri(path: str) -> bool:
    """Return True for a name outside the local file system's own syntax: ``s3://…``, ``file://…``, ``zip://a::s3://b``."""
    return "://" in path


def is_object_store(uri: str) -> bool:
    """Return True for a URI of a store that every machine reaches, and no folder or memory of one machine."""
    scheme, separator, _ = uri.partition("://")
    return bool(separator) and scheme.rpartition("::")[2] not in ("file", "local", "memory")


def absolute(path: str, base_dir: Path | None) -> str:
    """The path, absolute. ``~`` is the home folder; ``..`` stays, since it may follow a link.

    :param base_dir: Where relative paths start. None: they stay relative.
    """
    expanded = Path(os.path.expanduser(path))  # noqa: PTH111 - unlike Path's, leaves an unknown ~user alone
    return str(expanded if base_dir is None else base_dir / expanded)


def with_absolute_paths(document: Mapping[str, Any], base_dir: Path) -> dict[str, Any]:
    """Return a copy of a job whose relative paths start at a folder, those in references to secrets included.

    URIs and absolute paths stay as they are.
    """

    def fix(value: Any) -> Any:
        if isinstance(value, list):
            return [fix(item) for item in value]
        return absolute(value, base_dir) if isinstance(value, str) and value and not is_uri(value) else value

    def fix_reference(value: Any, _pointer: str) -> Any:
        text = value[KEY] if is_reference(value) else None
        if not isinstance(text, str) or not text.startswith("file:") or text == "file:":
            return value
        return {**value, KEY: f"file:{absolute(text.removeprefix('file:'), base_dir)}"}

    changed: dict[str, Any] = replaced(document, fix_reference)
    for key in DATA_SECTIONS:
        _change(changed, key, lambda data: _data(data, fix))
    for key in ("weights", "checkpoint_base_uri"):
        _change(changed, key, fix)
    if changed.get("resume_from_checkpoint") != "auto":
        _change(changed, "resume_from_checkpoint", fix)
    if isinstance(changed.get("inputs"), Mapping):
        changed["inputs"] = {name: _input(value, base_dir) for name, value in changed["inputs"].items()}
    _change(changed, "environment", lambda environment: _fixed(environment, ("interpreter", "lock"), fix))
    if isinstance(changed.get("samples"), list):
        changed["samples"] = [_fixed(sample, ("source_image",), fix) for sample in changed["samples"]]
    return changed


def _input(value: Any, base_dir: Path) -> Any:
    """An input. What looks like a reference may also be a path: only the resolvers know."""
    if isinstance(value, Mapping):
        return {key: _input(item, base_dir) if key in ("ref", "uri") else item for key, item in value.items()}
    is_path = isinstance(value, str) and value.startswith(("./", "../", "~/")) and not is_uri(value)
    return absolute(value, base_dir) if is_path else value


def _data(value: Any, fix: Callable[[Any], Any]) -> Any:
    fixed = _fixed(value, SOURCE_PATHS, fix)
    parts = fixed.get("of") if isinstance(fixed, Mapping) else None
    return {**fixed, "of": [_data(part, fix) for part in parts]} if isinstance(parts, list) else fixed


def _fixed(value: Any, keys: tuple[str, ...], fix: Callable[[Any], Any]) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {key: fix(item) if key in keys else item for key, item in value.items()}


def _change(target: dict[str, Any], key: str, change: Callable[[Any], Any]) -> None:
    if key in target:
        target[key] = change(target[key])
