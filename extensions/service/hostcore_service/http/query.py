"""The query of a request: a parameter that the route does not read is a mistake."""

from fastapi import Request
from fastapi.routing import APIRoute

from hostcore.errors import Errors
from hostcore.job.pointers import escaped
from hostcore.job.wording import did_you_mean, found, near
from hostcore_service.http.problems import RequestError


def only_known_parameters(request: Request) -> None:
    """For the dependencies of a router: see that its route reads all that the query has.

    :raises RequestError: 400, with the parameter that may have been meant.
    """
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = [field.alias for field in route.dependant.query_params]
    unknown = dict.fromkeys(name for name in request.query_params if name not in known)
    if unknown:
        raise Errors([_unknown(name, known) for name in unknown])


def _unknown(name: str, known: list[str]) -> RequestError:
    return RequestError(
        f"there is no query parameter {found(name)}",
        pointer=f"/query/{escaped(name)}",
        hint=did_you_mean(near(name, known)) or f"there is {', '.join(known) or 'none'}",
    )
