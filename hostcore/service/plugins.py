"""``/v1/plugins``: what is installed where the service runs."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field

from hostcore.plugins.listing import plugins_document
from hostcore.service.http.auth import authenticate
from hostcore.service.http.query import only_known_parameters
from hostcore.service.services import Service, the_service

ROUTER = APIRouter(
    prefix="/v1/plugins", tags=["plugins"], dependencies=[Depends(authenticate), Depends(only_known_parameters)]
)


class Plugin(BaseModel):
    """A plugin, as its distribution registers it."""

    kind: str = Field(examples=["trainer"])
    name: str = Field(description="What a job names it.", examples=["flight_delay"])
    value: str = Field(description="The object that is loaded when a job selects it.", examples=["flights:Trainer"])
    distribution: str | None = Field(examples=["hostcore-flight-delay"])
    version: str | None = Field(examples=["0.1.0"])
    conflict: bool = Field(description="Whether another distribution has one of the same kind and name.")
    conformance: dict[str, Any] | None = Field(
        description="What its conformance report says; null if it ships none.", examples=[None]
    )


class Broken(BaseModel):
    """A distribution whose plugins cannot be listed."""

    distribution: str
    path: str
    error: str


class Plugins(BaseModel):
    """What `hostcore plugins --json` prints."""

    plugins: list[Plugin]
    broken: list[Broken]


@ROUTER.get("", response_model=Plugins, summary="List the plugins that jobs can name")
def list_plugins(request: Request, service: Annotated[Service, Depends(the_service)]) -> Plugins:
    """What was installed when the service started. Reads metadata alone: no plugin is imported.

    Which of them jobs may name is the operator's to say, and told when a job names another.
    """
    found: Plugins | None = getattr(request.app.state, "plugins", None)
    if found is None:
        found = request.app.state.plugins = Plugins.model_validate(plugins_document(service.discovered))
    return found
