"""Settings of plugins that hold a place: the plugin must declare them as a path or URI."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hostcore.job.bounds import PATH_FORMAT, PLACE_FORMAT
from hostcore.job.names import DATA_SECTIONS
from hostcore.job.pointers import at_or_below, tokens
from hostcore.job.wording import found as shown
from hostcore_service.guard.from_others import parts_of, plugins_of
from hostcore_service.guard.places import settings_with_places
from hostcore_service.guard.refusal import NotAllowed

Schema = Mapping[str, Any]
#: Returns the JSON Schema of a plugin's settings, by its kind and name; None if it declares none.
SchemaOf = Callable[[str, str], Schema | None]


def asked_plugins(job: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the kind and the name of every plugin whose settings hold a place."""
    return {plugin for pointer, _ in settings_with_places(job) if (plugin := _plugin_at(job, pointer)[0])}


def undeclared_places(job: Mapping[str, Any], schema_of: SchemaOf) -> Iterator[NotAllowed]:
    """Yield an error for every setting that holds a place, and is not declared as a path or URI."""
    for pointer, text in settings_with_places(job):
        plugin, keys = _plugin_at(job, pointer)
        schema = schema_of(*plugin) if plugin else None
        if schema is None or not _may_hold_place(schema, keys, schema.get("$defs", {})):
            key = next((part for part in reversed(keys) if not re.fullmatch("[0-9]+", part)), "")
            owner = f" by {shown(plugin[1])}" if plugin else ""
            unknown = ", whose settings the service cannot read" if plugin and schema is None else ""
            yield NotAllowed(
                f"{shown(text)} looks like a place, and {key!r} is not declared as one{owner}{unknown}",
                pointer=pointer,
                hint=f'in the attrs class of its settings, write "{key}: Path", or "{key}: Uri" with '
                "`from hostcore_hookspecs import Uri`; a text that is no place has no scheme, and no / or ~ in front",
            )


def _plugin_at(job: Mapping[str, Any], pointer: str) -> tuple[tuple[str, str] | None, Sequence[str]]:
    """Return the plugin that a setting is of, as kind and name, and the keys of the setting in its settings."""
    homes: dict[str, tuple[str, str] | None] = {"/hyperparams": None}
    for key in DATA_SECTIONS:
        if isinstance(data := job.get(key), Mapping):
            homes |= {f"/{key}{at}": ("data_source", "parquet") for at in ("", *_parts(data))}
    for place, kind, name in plugins_of(job):
        home = {"trainer": "/hyperparams", "data_source": place.removesuffix("/source")}.get(kind, place)
        homes[home] = (kind, name)
    home = max((one for one in homes if at_or_below(pointer, one)), key=len, default="")
    return homes.get(home), tokens(pointer.removeprefix(home))


def _parts(data: Mapping[str, Any]) -> Iterator[str]:
    return (f"/of/{position}" for position, _ in enumerate(parts_of(data)))


def _may_hold_place(schema: Any, keys: Sequence[str], definitions: Schema) -> bool:
    """Return whether a JSON Schema declares a value, by the keys that lead to it, or what holds it, as a place."""
    if not isinstance(schema, Mapping):
        return False
    if "$ref" in schema:
        return _may_hold_place(definitions.get(schema["$ref"].rpartition("/")[2]), keys, definitions)
    if schema.get("format") in (PATH_FORMAT, PLACE_FORMAT):
        return True
    if any(_may_hold_place(option, keys, definitions) for option in schema.get("anyOf", ())):
        return True
    if not keys:
        return False
    key, rest = keys[0], keys[1:]
    below = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
    if re.fullmatch("[0-9]+", key) and "items" in schema:
        items = schema.get("prefixItems", [])
        below = items[int(key)] if int(key) < len(items) else schema["items"]
    return _may_hold_place(below, rest, definitions)
