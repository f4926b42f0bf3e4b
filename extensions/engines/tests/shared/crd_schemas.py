"""Validation against a published CRD, as the API server does it with ``fieldValidation=Strict``: nothing is ignored."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import yaml  # ruamel.yaml takes half a minute for a file of this size
from jsonschema import Draft202012Validator

FILES = {"pytorchjobs": "pytorchjobs-v1.9.4.yaml", "trainjobs": "trainjobs-v2.3.0.yaml"}


@attrs.frozen
class Schema:
    """An OpenAPI v3 schema, with what Kubernetes adds to it."""

    validator: Any

    def problems(self, value: Any) -> tuple[list[str], list[str]]:
        """The unknown fields of an object, and what is invalid in it."""
        unknown, invalid = [], []
        for error in self.validator.iter_errors(value):
            at = error.json_path.removeprefix("$")
            if error.validator == "additionalProperties":
                more = error.instance.keys() - error.schema.get("properties", {}).keys()
                unknown += [f'"{f"{at}.{name}".lstrip(".")}"' for name in more]
            else:
                invalid.append(f"{at}: {error.message}")
        return unknown, invalid


@functools.cache  # each test has a cluster of its own
def schemas_of(folder: Path) -> dict[str, Schema]:
    """The schemas of the CRDs in a folder, by plural."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = {}
    for plural, file in FILES.items():
        crd = yaml.load((folder / file).read_bytes(), Loader=loader)
        assert crd["spec"]["names"]["plural"] == plural
        root = _closed(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
        root["properties"]["metadata"] = {"type": "object"}  # the server's own, and not in the schema
        found[plural] = Schema(Draft202012Validator(root))
    return found


def _closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema, which refuses every field that it does not name."""
    made = dict(schema)
    if made.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"], "pattern": made.get("pattern", "")}
    if made.get("type") == "object" and not made.get("x-kubernetes-preserve-unknown-fields"):
        others = made.setdefault("additionalProperties", False)
        if isinstance(others, dict):
            made["additionalProperties"] = _closed(others)
    if "properties" in made:
        made["properties"] = {name: _closed(one) for name, one in made["properties"].items()}
    if "items" in made:
        made["items"] = _closed(made["items"])
    return made
