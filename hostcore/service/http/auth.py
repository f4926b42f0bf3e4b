"""Who asks: the token of the service, in constant time, for every route of a router."""

import hmac
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from hostcore.service.http.problems import RequestError
from hostcore.service.settings import TOKEN_VARIABLE, Settings
from hostcore_hookspecs.policy import Principal

HEADER = "X-TRAINER-TOKEN"
#: Who has the token, and who comes without one where none is needed.
BEARER = Principal(name="token")
ANYBODY = Principal(name="anonymous")

_header = APIKeyHeader(name=HEADER, auto_error=False, description=f"The value of `{TOKEN_VARIABLE}`.")
_bearer = HTTPBearer(auto_error=False, description="The same token, as `Authorization: Bearer`.")


def authenticate(
    request: Request,
    header: Annotated[str | None, Depends(_header)],
    bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> Principal:
    """Who asks.

    :raises RequestError: Without the token, 401.
    """
    settings: Settings = request.app.state.settings
    if settings.token is None:
        return ANYBODY
    given = header if header is not None else bearer.credentials if bearer else None
    if given is None:
        raise _unauthorized(f"the header {HEADER} is missing")
    # As bytes: strings with other than ASCII characters cannot be compared in constant time.
    if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), settings.token.encode()):
        raise _unauthorized("the token is not the right one")
    return BEARER


Asker = Annotated[Principal, Depends(authenticate)]


def _unauthorized(message: str) -> RequestError:
    return RequestError(
        message,
        code="request.unauthorized",
        hint=f"send the value of the service's {TOKEN_VARIABLE} in {HEADER}",
        headers={"WWW-Authenticate": 'Bearer realm="hostcore"'},
    )
