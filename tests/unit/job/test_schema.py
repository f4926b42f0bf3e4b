"""JSON Schemas say what the converter does, from the same classes."""

import enum
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
import pytest
from annotated_types import Ge, Gt, Interval, Len, Lt, MinLen, MultipleOf
from checkout import ROOT

from hostcore.job.bounds import Pattern
from hostcore.job.forms import json_schema
from hostcore.job.schema import file_schema, job_schema
from hostcore.job.spec import JobSpec


class Mode(enum.Enum):
    FAST = "fast"
    EXACT = "exact"


@attrs.frozen(kw_only=True)
class Layer:
    """One layer.

    More about it.
    """

    width: Annotated[int, Ge(1)] = attrs.field(metadata={"help": "Units."})
    inner: "Layer | None" = None


@attrs.frozen(kw_only=True)
class Settings:
    rate: Annotated[float, Gt(0), Lt(1)]
    layers: Annotated[tuple[Layer, ...], Len(1, 3)] = ()
    betas: tuple[float, float] = (0.9, 0.999)
    mode: Mode = Mode.FAST
    kind: Literal["a", 3] = "a"
    every: Annotated[int, Interval(ge=0, le=9)] | Literal["epoch"] = 0
    size: Annotated[int, MultipleOf(8)] = 8
    name: Annotated[str, Pattern("[a-z]+", "a word")] | None = None
    files: Annotated[str | tuple[str, ...], MinLen(1)] = "x"
    folder: Path = Path("data")
    tags: set[str] = attrs.field(factory=set)
    scores: Mapping[str, float] = attrs.field(factory=dict)
    by_split: dict[Literal["train", "test"], int] = attrs.field(factory=dict)
    anything: Any = None
    flag: bool = attrs.field(default=False, metadata={"help": "A flag.", "default": "off"})
    clock: complex = 1j


def definition(schema: dict[str, Any], name: str) -> Any:
    (found,) = [value for key, value in schema["$defs"].items() if key.endswith(f".{name}")]
    return found


def test_every_form_has_its_keywords() -> None:
    schema = json_schema(Settings)
    properties = schema["properties"]
    layer = properties["layers"]["items"]
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert (schema["title"], schema["required"], schema["additionalProperties"]) == ("Settings", ["rate"], False)
    assert properties == {
        "rate": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "layers": {"type": "array", "items": layer, "minItems": 1, "maxItems": 3, "default": []},
        "betas": {
            "type": "array",
            "prefixItems": [{"type": "number"}, {"type": "number"}],
            "items": False,
            "minItems": 2,
            "maxItems": 2,
            "default": [0.9, 0.999],
        },
        "mode": {"enum": ["fast", "exact"], "default": "fast"},
        "kind": {"enum": ["a", 3], "default": "a"},
        "every": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"enum": ["epoch"]}], "default": 0},
        "size": {"type": "integer", "multipleOf": 8, "default": 8},
        "name": {"anyOf": [{"type": "string", "pattern": "^(?:[a-z]+)$"}, {"type": "null"}]},
        "files": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            "minLength": 1,
            "minItems": 1,
            "default": "x",
        },
        "folder": {"type": "string", "format": "path", "minLength": 1, "default": "data"},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "default": []},
        "scores": {"type": "object", "additionalProperties": {"type": "number"}, "default": {}},
        "by_split": {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "propertyNames": {"enum": ["train", "test"]},
            "default": {},
        },
        "anything": {},
        "flag": {"type": "boolean", "description": "A flag. Default: off."},
        "clock": {"not": {}},
    }


def test_classes_inside_are_definitions_and_may_hold_themselves() -> None:
    schema = json_schema(Settings)
    layer = definition(schema, "Layer")
    assert layer["description"] == "One layer."
    assert layer["properties"]["width"] == {"type": "integer", "minimum": 1, "description": "Units."}
    assert layer["properties"]["inner"]["anyOf"][0] == schema["properties"]["layers"]["items"]


def test_the_schema_of_a_job_is_plain_json_and_documents_every_key() -> None:
    schema = json_schema(JobSpec)
    assert json.loads(json.dumps(schema, allow_nan=False)) == schema
    assert schema["required"] == ["trainer"]
    assert schema["additionalProperties"] is False
    assert all(value["description"] for value in schema["properties"].values())
    assert schema["properties"]["reporters"]["default"] == []
    assert "job_dir" not in schema["properties"]


def test_a_component_is_a_name_or_an_object_with_its_settings() -> None:
    name, with_settings = definition(json_schema(JobSpec), "ComponentUse")["anyOf"]
    assert name["type"] == "string"
    assert with_settings["required"] == ["use"]
    assert "additionalProperties" not in with_settings


PLUGINS = {
    "flight_delay": ("trainer", json_schema(Settings)),
    "loose": ("trainer", None),
    "parquet": ("data_source", {"properties": {"parquet_paths": {"type": "string"}}, "required": ["parquet_paths"]}),
    "early-stopping": ("callback", {"properties": {"patience": {"type": "integer"}}, "required": ["patience"]}),
    "lr-monitor": ("callback", None),
    "my-dist/slurm": ("launcher", {"properties": {"partition": {"type": "string"}}}),
}


def test_the_settings_of_plugins_are_conditions_of_the_job_schema() -> None:
    schema = job_schema(PLUGINS)
    rule = schema["allOf"][0]
    assert rule["if"]["properties"]["trainer"] == {"pattern": "^([^/:]+/)?flight_delay$"}
    assert rule["then"]["properties"]["hyperparams"]["additionalProperties"] is False
    assert rule["then"]["required"] == ["hyperparams"]
    assert definition(schema, "Layer"), "definitions of the plugin are those of the job"
    source = definition(schema, "DatasetSpec")["allOf"][0]["then"]
    assert source["propertyNames"]["enum"][-1] == "parquet_paths"
    assert json.loads(json.dumps(schema)) == schema


@pytest.mark.parametrize(
    ("change", "valid"),
    [
        ({}, True),
        ({"hyperparams": {}}, False),
        ({"hyperparams": {"rate": 2}}, False),
        ({"hyperparams": {"rate": 0.5, "bogus": 1}}, False),
        ({"hyperparams": {"rate": 0.5, "layers": [{"width": 0}]}}, False),
        ({"trainer": "some-dist/flight_delay", "hyperparams": {"rate": 2}}, False),
        ({"trainer": "loose", "hyperparams": {"rate": 2}}, True),
        ({"trainer": "other", "hyperparams": {"rate": 2}}, True),
        ({"dataset": {"parquet_paths": 3}}, False),
        ({"dataset": {"parquet_paths": "a", "bogus": 1}}, False),
        ({"dataset": {"parquet_paths": "a", "batch_size": 3}}, True),
        ({"dataset": {"source": "parquet"}}, False),
        ({"dataset": {"source": "csv", "bogus": 1}}, True),
        ({"callbacks": ["early-stopping"]}, False),
        ({"callbacks": [{"use": "early-stopping", "patience": "3"}]}, False),
        ({"callbacks": [{"use": "early-stopping", "patience": 3}, "lr-monitor", {"use": "other", "a": 1}]}, True),
        ({"callbacks": [{"use": "lr-monitor", "a": 1}]}, False),
        ({"reporters": ["early-stopping"]}, True),
        ({"launcher": {"use": "my-dist/slurm", "bogus": 1}}, False),
        ({"launcher": {"use": "slurm", "bogus": 1}}, True),
        ({"lables": {}}, False),
    ],
    ids=str,
)
def test_an_editor_with_the_job_schema_knows_the_settings_of_the_plugins(change: dict[str, Any], valid: bool) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = job_schema(PLUGINS)
    jsonschema.Draft202012Validator.check_schema(schema)
    job = {"trainer": "flight_delay", "hyperparams": {"rate": 0.5}, "dataset": {"parquet_paths": "a"}, **change}
    assert jsonschema.Draft202012Validator(schema).is_valid(job) is valid


PARTS: list[tuple[dict[str, Any], bool]] = [
    ({"trainer": "a"}, True),
    ({"trainer": "a", "$schema": "./job.schema.json"}, True),
    ({"max_steps": 3}, False),
    ({"max_steps": 3, "include": "base.json"}, True),
    ({"max_steps": 3, "include": ["base.json", "more.toml"]}, True),
    ({"max_stesp": 3, "include": "base.json"}, False),
    ({"include": 3}, False),
    ({"include": [""]}, False),
    ({"trainer": "a", "max_steps": None}, False),
    ({"max_steps": None, "dataset": {"shuffle": None}, "include": []}, True),
    ({"labels": {"team": None}, "include": []}, True),
    ({"launcher": {"partition": "gpu"}, "include": []}, True),
    ({"trainer": "a", "launcher": {"partition": "gpu"}}, False),
    ({"trainer": "flight_delay", "hyperparams": {"rate": None}, "include": "base.json"}, True),
    ({"trainer": "flight_delay", "include": "base.json"}, True),
    ({"trainer": "flight_delay"}, False),
]


@pytest.mark.parametrize(("job", "valid"), PARTS, ids=str)
def test_a_file_that_includes_others_is_a_part_of_a_job(job: dict[str, Any], valid: bool) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = file_schema(PLUGINS)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert jsonschema.Draft202012Validator(schema).is_valid(job) is valid


def test_the_example_jobs_are_valid() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jobs = sorted((ROOT / "example_trainers").glob("*/job.json"))
    assert jobs
    for path in jobs:
        jsonschema.validate(json.loads(path.read_text()), file_schema({}), jsonschema.Draft202012Validator)
