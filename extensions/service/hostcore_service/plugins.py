"""``/v1/plugins``: what is installed where the service runs."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from hostcore_service.http.auth import authenticate
from hostcore_service.http.openapi import ALWAYS, answer, problems
from hostcore_service.http.query import only_known_parameters
from hostcore_service.services import Service, the_service

ROUTER = APIRouter(
    prefix="/v1/plugins",
    tags=["plugins"],
    dependencies=[Depends(authenticate), Depends(only_known_parameters)],
    responses={**ALWAYS, **problems(400)},
)

_EXAMPLE: Final = {
    "plugins": [
        {
            "kind": "trainer",
            "name": "flight_delay",
            "value": "flights:Trainer",
            "distribution": "hostcore-flight-delay",
            "version": "0.1.0",
            "conflict": False,
            "conformance": {
                "certified": True,
                "summary": {"passed": 31},
                "failures": [],
                "version": "0.1.0",
                "is_of_installed_version": True,
            },
        }
    ],
    "broken": [],
}


class Plugin(BaseModel):
    """A plugin, as its distribution registers it."""

    kind: str = Field(examples=["trainer"])
    name: str = Field(description="What a job names it.", examples=["flight_delay"])
    value: str = Field(description="The object that is loaded when a job selects it.", examples=["flights:Trainer"])
    distribution: str | None = Field(examples=["hostcore-flight-delay"])
    version: str | None = Field(examples=["0.1.0"])
    conflict: bool = Field(description="Whether another distribution has one of the same kind and name.")
    conformance: dict[str, Any] | None = Field(
        description="Result of its conformance report; null if it ships none.", examples=[None]
    )


class Broken(BaseModel):
    """A distribution whose plugins cannot be listed."""

    distribution: str
    path: str
    error: str


class Plugins(BaseModel):
    """Installed plugins, as `hostcore plugins --json` prints them."""

    plugins: list[Plugin]
    broken: list[Broken]


@ROUTER.get(
    "",
    response_model=Plugins,
    responses={200: answer("What is installed.", _EXAMPLE)},
    summary="List the plugins that jobs can name",
)
def list_plugins(service: Annotated[Service, Depends(the_service)]) -> Plugins:
    """List the plugins that were installed when the service started. Reads metadata alone: no plugin is imported.

    The operator decides which plugins jobs may name; a job that names another is refused with that error.
    """
    return Plugins.model_validate(service.plugins)
