"""JSON Schema (2020-12) of jobs with the settings of named plugins, and of job files, for editors."""

import re
from collections.abc import Mapping
from typing import Any, Final

from hostcore.job.forms import json_schema
from hostcore.job.forms.import_path import FORMAT
from hostcore.job.forms.objects import definition_name
from hostcore.job.forms.scalars import REFERENCE
from hostcore.job.sections import DatasetSpec
from hostcore.job.spec import JobSpec
from hostcore_hookspecs.kinds import KINDS

_FILE: Final[Mapping[str, Any]] = {"type": "string", "minLength": 1}
#: Keys of a file that are no part of the job.
_ANNOTATION: Final[Mapping[str, Any]] = {
    "$schema": {"type": "string", "description": "The schema of this file, for editors; it says nothing about the job."}
}
_INCLUDE: Final[Mapping[str, Any]] = {
    "include": {
        "anyOf": [_FILE, {"type": "array", "items": _FILE}],
        "description": "Files that this one is merged into: a later one into those before. Objects are merged, "
        "everything else is replaced, null removes. Their names start at the folder of this file.",
    }
}


def job_schema(settings: Mapping[str, tuple[str, Mapping[str, Any] | None]]) -> dict[str, Any]:
    """The JSON Schema of a job in which these plugins may have only their settings, and must have the required ones.

    :param settings: By plugin name as a job gives it: the kind, and the schema that ``json_schema`` made of its
        ``Settings`` (``Hyperparams``); None for a plugin without such a class.
    """
    schema = {**json_schema(JobSpec), "title": "hostcore job"}
    rules: list[dict[str, Any]] = []
    for name, (kind, written) in settings.items():
        own = _with_secrets(written) if written else written
        schema["$defs"] |= own.get("$defs", {}) if own else {}
        if kind == "trainer":
            if own is not None:  # a trainer without Hyperparams takes anything
                rules.append(_trainer_rule(name, own))
        elif kind == "data_source":
            dataset = schema["$defs"][definition_name(DatasetSpec)]
            dataset.setdefault("allOf", []).append(_source_rule(name, own or {}, list(dataset["properties"])))
        else:
            # A plain name gives no settings, which is wrong if some are required.
            plain_name = {"if": {"type": "string", **_named(name)}, "then": not (own or {}).get("required")}
            rule = {"allOf": [plain_name, _component_rule(name, own or {})]}
            place = {"items": rule} if KINDS[kind].is_listed else rule
            rules.append({"properties": {KINDS[kind].job_key: place}})
    return {**schema, "allOf": rules} if rules else schema


def file_schema(settings: Mapping[str, tuple[str, Mapping[str, Any] | None]]) -> dict[str, Any]:
    """Return the JSON Schema of a job file. One that includes others is a part of a job: only its keys are checked.

    :param settings: See :func:`job_schema`.
    """
    whole = job_schema(settings)
    dialect, definitions = whole.pop("$schema"), whole.pop("$defs")
    keys = {**_ANNOTATION, **_INCLUDE, **whole["properties"]}
    return {
        "$schema": dialect,
        "title": "hostcore job file",
        "type": "object",
        # All keys and their meaning, for editors that do not look into conditions.
        "properties": {name: {"description": key.get("description", "")} for name, key in keys.items()},
        "if": {"required": ["include"]},
        "then": {"properties": _INCLUDE, "propertyNames": {"enum": [*keys]}},
        "else": {**whole, "properties": {**_ANNOTATION, **whole["properties"]}},
        "$defs": definitions,
    }


def _named(name: str) -> dict[str, Any]:
    """Matches the ways in which a job may write a plugin's name."""
    if "/" in name or ":" in name:
        return {"const": name}
    return {"pattern": f"^([^/:]+/)?{re.escape(name)}$"}


def _trainer_rule(name: str, own: Mapping[str, Any]) -> dict[str, Any]:
    settings = {key: value for key, value in own.items() if key not in ("$schema", "$defs", "title")}
    then: dict[str, Any] = {"properties": {"hyperparams": settings}}
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
    if not isinstance(own, Mapping) or REFERENCE.items() <= own.items() or own.get("format") == FORMAT:
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
