"""Authentication: the token of the service, compared in constant time, for every route of a router."""

import hmac
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from hostcore_hookspecs.policy import Principal
from hostcore_service.http.problems import RequestError
from hostcore_service.settings import LOOPBACK, TOKEN_VARIABLE, Settings

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
    """Return the principal of a request.

    :raises RequestError: 401 without the token; 403 where none is needed, for requests of another site's page.
    """
    settings: Settings = request.app.state.settings
    if settings.token is None:
        _require_own_page(request)
        return ANYBODY
    given = header if header is not None else bearer.credentials if bearer else None
    if given is None:
        raise _unauthorized(f"the header {HEADER} is missing")
    # As bytes: strings with other than ASCII characters cannot be compared in constant time.
    if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), settings.token.encode()):
        raise _unauthorized("the token is not the right one")
    return BEARER


def _require_own_page(request: Request) -> None:
    """See that no page of another site sends its visitor's browser here, as it can where no token is needed.

    The browser sends the page's origin; a name that leads to the loopback device by a trick is not the device's own.
    """
    host = request.headers.get("host", "")
    if not _is_loopback(host):
        raise _forbidden(f"without a token this service is reached by the name of the loopback device, not by {host!r}")
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise _forbidden("another site's page has sent this request")


def _is_loopback(host: str) -> bool:
    try:
        return urlsplit(f"//{host}").hostname in LOOPBACK
    except ValueError:
        return False


Asker = Annotated[Principal, Depends(authenticate)]


def _forbidden(message: str) -> RequestError:
    return RequestError(message, code="request.forbidden", hint=f"set {TOKEN_VARIABLE}, and send it in {HEADER}")


def _unauthorized(message: str) -> RequestError:
    return RequestError(
        message,
        code="request.unauthorized",
        hint=f"send the value of the service's {TOKEN_VARIABLE} in {HEADER}",
        headers={"WWW-Authenticate": 'Bearer realm="hostcore"'},
    )
