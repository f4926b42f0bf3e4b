"""Validation against a published CRD, as the API server does it with ``fieldValidation=Strict``: nothing is ignored."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import yaml  # ruamel.yaml takes half a minute for a file of this size

FILES = {"pytorchjobs": "pytorchjobs-v1.9.4.yaml", "trainjobs": "trainjobs-v2.3.0.yaml"}
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


@attrs.frozen
class Schema:
    """An OpenAPI v3 schema, with what Kubernetes adds to it."""

    root: Mapping[str, Any]

    def problems(self, value: Any) -> tuple[list[str], list[str]]:
        """The unknown fields of an object, and what is invalid in it."""
        found = list(_walk(self.root, value, ""))
        return [f'"{where}"' for where, what in found if not what], [f"{at}: {what}" for at, what in found if what]


@functools.cache  # each test has a cluster of its own
def schemas_of(folder: Path) -> dict[str, Schema]:
    """The schemas of the CRDs in a folder, by plural."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = {}
    for plural, file in FILES.items():
        crd = yaml.load((folder / file).read_bytes(), Loader=loader)
        assert crd["spec"]["names"]["plural"] == plural
        found[plural] = Schema(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    return found


def _walk(schema: Mapping[str, Any], value: Any, at: str) -> Iterator[tuple[str, str]]:
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield at, f"{value!r} is neither an integer nor a string"
        elif isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
            yield at, f"{value!r} does not match the pattern"
        return
    kind = schema.get("type")
    if kind and (not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        yield at, f"{value!r} is no {kind}"
        return
    yield from _bounds(schema, value, at)
    if isinstance(value, dict) and at != ".metadata":  # the server's own, and not in the schema
        yield from _fields(schema, value, at)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(schema.get("items", {}), item, f"{at}[{index}]")


def _fields(schema: Mapping[str, Any], value: dict[str, Any], at: str) -> Iterator[tuple[str, str]]:
    fields, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{at}.{name}", "is required"
    for name, item in value.items():
        if name in fields:
            yield from _walk(fields[name], item, f"{at}.{name}")
        elif isinstance(others, dict):
            yield from _walk(others, item, f"{at}[{name}]")
        elif not (others or schema.get("x-kubernetes-preserve-unknown-fields")):
            yield f"{at}.{name}".lstrip("."), ""


def _bounds(schema: Mapping[str, Any], value: Any, at: str) -> Iterator[tuple[str, str]]:
    if "enum" in schema and value not in schema["enum"]:
        yield at, f"{value!r} is none of {schema['enum']}"
    if isinstance(value, str):
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield at, f"{value!r} does not match {schema['pattern']}"
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            yield at, "its length is out of bounds"
    if isinstance(value, list) and len(value) > schema.get("maxItems", len(value)):
        yield at, "it has too many items"
    if isinstance(value, int) and value < schema.get("minimum", value):
        yield at, f"{value} is below the minimum"
