"""The keys of a job that are paths, made absolute. Wrong types are left alone, for the converter to tell."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hostcore.job.paths import absolute, is_uri

_DATASETS = ("dataset", "validation", "test")
#: Keys of data sources that are a path or a list of paths.
SOURCE_PATHS = ("parquet_paths", "paths", "index")


def with_absolute_paths(document: Mapping[str, Any], base_dir: Path) -> dict[str, Any]:
    """A copy of a job whose relative paths start at a folder. URIs and absolute paths stay as they are."""

    def fix(value: Any) -> Any:
        if isinstance(value, list):
            return [fix(item) for item in value]
        return absolute(value, base_dir) if isinstance(value, str) and value and not is_uri(value) else value

    changed = dict(document)
    for key in _DATASETS:
        _change(changed, key, lambda data: _fixed(data, SOURCE_PATHS, fix))
    for key in ("weights", "checkpoint_base_uri"):
        _change(changed, key, fix)
    if changed.get("resume_from_checkpoint") != "auto":
        _change(changed, "resume_from_checkpoint", fix)
    if isinstance(changed.get("inputs"), Mapping):
        changed["inputs"] = {name: _input(value, base_dir) for name, value in changed["inputs"].items()}
    if isinstance(changed.get("samples"), list):
        changed["samples"] = [_fixed(sample, ("source_image",), fix) for sample in changed["samples"]]
    return changed


def _input(value: Any, base_dir: Path) -> Any:
    """An input. What looks like a reference may be a path, too: nobody knows before the resolvers were asked."""
    if isinstance(value, Mapping):
        return {key: _input(item, base_dir) if key in ("ref", "uri") else item for key, item in value.items()}
    is_path = isinstance(value, str) and value.startswith(("./", "../", "~/")) and not is_uri(value)
    return absolute(value, base_dir) if is_path else value


def _fixed(value: Any, keys: tuple[str, ...], fix: Callable[[Any], Any]) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {key: fix(item) if key in keys else item for key, item in value.items()}


def _change(target: dict[str, Any], key: str, change: Callable[[Any], Any]) -> None:
    if key in target:
        target[key] = change(target[key])
