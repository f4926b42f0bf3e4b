"""Methods of routes: HEAD wherever GET is, and all that a path takes in the header ``Allow``."""

from typing import Final

from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_METHODS: Final = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
_DISCONNECTED: Final[Message] = {"type": "http.disconnect"}


def allowed(scope: Scope) -> set[str]:
    """Return the methods that the path of a request takes; empty: there is no such path."""
    found = {method for method in _METHODS if _takes(scope, method)}
    return found | {"HEAD"} if "GET" in found else found


def _takes(scope: Scope, method: str) -> bool:
    asked = {**scope, "method": method}
    return any(route.matches(dict(asked))[0] == Match.FULL for route in scope["app"].routes)


class HeadAsGet:
    """Answer HEAD as GET without the body, wherever a route has no HEAD of its own. A stream ends with its head."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http" or scope["method"] != "HEAD" or _takes(scope, "HEAD"):
            await self._app(scope, receive, send)
            return
        ended = False

        async def send_head(message: Message) -> None:
            nonlocal ended
            if message["type"] == "http.response.start":
                await send(message)
            elif not ended:
                ended = True
                await send({"type": "http.response.body"})

        async def receive_end() -> Message:
            return _DISCONNECTED if ended else await receive()

        await self._app({**scope, "method": "GET"}, receive_end, send_head)
