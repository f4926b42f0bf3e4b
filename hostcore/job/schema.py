"""The JSON Schema (2020-12) of a job with the settings of named plugins in it, for editors."""

import re
from collections.abc import Mapping
from typing import Any

from hostcore.job.class_schema import REFERENCE, definition_name, json_schema
from hostcore.job.sections import DatasetSpec
from hostcore.job.spec import JobSpec

__all__ = ["job_schema", "json_schema"]

#: The key of the job that uses a kind, and whether it is a list.
_COMPONENTS = {
    "callback": ("callbacks", True),
    "reporter": ("reporters", True),
    "uploader": ("uploaders", True),
    "resolver": ("resolvers", True),
    "policy": ("policies", True),
    "launcher": ("launcher", False),
}


def job_schema(settings: Mapping[str, tuple[str, Mapping[str, Any] | None]]) -> dict[str, Any]:
    """The JSON Schema of a job in which these plugins may have only their settings, and must have the required ones.

    :param settings: By plugin name as a job gives it: the kind, and the schema that ``json_schema`` made of its
        ``Settings`` (``Hyperparams``); None for a plugin without such a class.
    """
    schema = {**json_schema(JobSpec), "title": "hostcore job", "allOf": []}
    for name, (kind, written) in settings.items():
        own = _with_secrets(written) if written else written
        schema["$defs"] |= own.get("$defs", {}) if own else {}
        if kind == "trainer":
            if own is not None:  # a trainer without Hyperparams takes anything
                schema["allOf"].append(_trainer_rule(name, own))
        elif kind == "data_source":
            dataset = schema["$defs"][definition_name(DatasetSpec)]
            dataset.setdefault("allOf", []).append(_source_rule(name, own or {}, list(dataset["properties"])))
        else:
            key, is_list = _COMPONENTS[kind]
            rule = {"allOf": [_plain_name_rule(name, own or {}), _component_rule(name, own or {})]}
            schema["allOf"].append({"properties": {key: {"items": rule} if is_list else rule}})
    return schema


def _named(name: str) -> dict[str, Any]:
    """Matches the ways in which a job may write a plugin's name."""
    if "/" in name or ":" in name:
        return {"const": name}
    return {"pattern": f"^([^/:]+/)?{re.escape(name)}$"}


def _trainer_rule(name: str, own: Mapping[str, Any]) -> dict[str, Any]:
    then: dict[str, Any] = {"properties": {"hyperparams": _without_frame(own)}}
    if own.get("required"):
        then["required"] = ["hyperparams"]
    return {"if": {"properties": {"trainer": _named(name)}, "required": ["trainer"]}, "then": then}


def _source_rule(name: str, own: Mapping[str, Any], host_keys: list[str]) -> dict[str, Any]:
    chosen: dict[str, Any] = {"properties": {"source": _named(name)}, "required": ["source"]}
    if name.rpartition("/")[2] == "parquet":
        by_default = {"required": ["parquet_paths"], "not": {"required": ["source"]}}
        chosen = {"anyOf": [chosen, by_default]}
    return {"if": chosen, "then": _with_own_keys(own, host_keys)}


def _component_rule(name: str, own: Mapping[str, Any]) -> dict[str, Any]:
    chosen = {"type": "object", "properties": {"use": _named(name)}, "required": ["use"]}
    return {"if": chosen, "then": _with_own_keys(own, ["use"])}


def _plain_name_rule(name: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """A plain name gives no settings, which is wrong if some are required."""
    return {"if": {"type": "string", **_named(name)}, "then": not own.get("required")}


def _with_own_keys(own: Mapping[str, Any], host_keys: list[str]) -> dict[str, Any]:
    keys = {key: value for key, value in own.get("properties", {}).items() if key not in host_keys}
    required = [key for key in own.get("required", []) if key not in host_keys]
    return {
        "properties": keys,
        "propertyNames": {"enum": [*host_keys, *keys]},
        **({"required": required} if required else {}),
    }


def _with_secrets(own: Any) -> Any:
    """A schema in which a reference to a secret may stand for every string."""
    if not isinstance(own, Mapping) or REFERENCE.items() <= own.items():
        return own
    if own.get("type") == "string":
        told = {key: own[key] for key in ("description", "default") if key in own}
        return {"anyOf": [{key: item for key, item in own.items() if key not in told}, REFERENCE], **told}
    changed = dict(own)
    for key in {"items", "additionalProperties"} & own.keys():
        changed[key] = _with_secrets(own[key])
    for key in {"anyOf", "prefixItems"} & own.keys():
        changed[key] = [_with_secrets(one) for one in own[key]]
    for key in {"properties", "$defs"} & own.keys():
        changed[key] = {name: _with_secrets(one) for name, one in own[key].items()}
    return changed


def _without_frame(own: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in own.items() if key not in ("$schema", "$defs", "title")}
