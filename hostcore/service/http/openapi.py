"""What the OpenAPI document says of bodies that are read before FastAPI looks at them."""

from typing import Any, Final

from fastapi import FastAPI
from pydantic import BaseModel

from hostcore.job.schema import job_schema
from hostcore.service.http.body import MAX_BYTES

_COMPONENTS: Final = "#/components/schemas/"
_JOB: Final = "hostcore.job"


def body_of(schema: dict[str, Any], *, required: bool = True) -> dict[str, Any]:
    """For ``openapi_extra``: the body is JSON of a schema."""
    description = f"JSON in UTF-8, at most {MAX_BYTES:,} bytes."
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": required, "description": description, "content": content}}


#: A whole job, as in ``job.json``.
JOB_BODY: Final = body_of({"$ref": f"{_COMPONENTS}{_JOB}"})


def body_of_model(model: type[BaseModel]) -> dict[str, Any]:
    """For ``openapi_extra``: the body may be empty, or a model."""
    return body_of(model.model_json_schema(), required=False)


def describe_jobs(app: FastAPI) -> None:
    """Have the OpenAPI document of an application say what a job is."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = make()
            job = _at_home(job_schema({}))
            job.pop("$schema", None)
            known = document.setdefault("components", {}).setdefault("schemas", {})
            known |= {**job.pop("$defs", {}), _JOB: job}
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign] # as FastAPI's documentation says


def _at_home(schema: Any) -> Any:
    """A JSON Schema whose definitions are the document's components."""
    if isinstance(schema, dict):
        moved = {key: _at_home(value) for key, value in schema.items()}
        if isinstance(reference := moved.get("$ref"), str):
            moved["$ref"] = reference.replace("#/$defs/", _COMPONENTS)
        return moved
    return [_at_home(item) for item in schema] if isinstance(schema, list) else schema
