"""The ASGI application."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from hostcore import __version__
from hostcore.service.http import problems
from hostcore.service.http.rate import RateLimit
from hostcore.service.jobs.router import ROUTER as JOBS
from hostcore.service.services import Service
from hostcore.service.settings import Settings
from hostcore_hookspecs.errors import HostcoreError

_PROBLEM: Final[dict[str, Any]] = {"model": problems.Problem, "content": {problems.MEDIA_TYPE: {}}}
_RESPONSES: Final[dict[int | str, dict[str, Any]]] = dict.fromkeys(
    (400, 401, 403, 404, 409, 413, 415, 422, 429, 500, 503), _PROBLEM
)


def make_app(settings: Settings) -> FastAPI:
    """The service as an ASGI application. Its lifespan opens the database and starts the dispatcher."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = Service.open(settings)
        app.state.service = service
        service.dispatcher.start()
        try:
            yield
        finally:
            service.close()

    app = FastAPI(title="hostcore", version=__version__, lifespan=lifespan, responses=_RESPONSES)
    app.state.settings = settings
    limit = RateLimit(settings.operator.http.requests_per_minute)

    @app.middleware("http")
    async def limited(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        try:
            limit.take(request.client.host if request.client else "")
        except HostcoreError as error:
            return await problems.on_hostcore_error(request, error)
        return await call_next(request)

    app.add_exception_handler(HostcoreError, problems.on_hostcore_error)
    app.add_exception_handler(RequestValidationError, problems.on_validation_error)
    app.add_exception_handler(HTTPException, problems.on_http_error)
    app.add_exception_handler(SQLAlchemyError, problems.on_database_error)
    app.add_exception_handler(Exception, problems.on_defect)

    @app.get("/healthz", tags=["service"], summary="Whether the service lives")
    def healthz() -> dict[str, str]:
        """Needs no token: for load balancers and probes."""
        return {"status": "ok"}

    app.include_router(JOBS)
    return app
