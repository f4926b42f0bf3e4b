"""The ASGI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Final

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from hostcore import __version__
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.descriptions import Descriptions
from hostcore_service.guard.server_paths import hide_places
from hostcore_service.http import connections, problems
from hostcore_service.http.methods import HeadAsGet
from hostcore_service.http.openapi import answer, describe
from hostcore_service.http.openapi import problems as openapi_problems
from hostcore_service.http.rate import Limited, RateLimit
from hostcore_service.jobs.checking import Checks
from hostcore_service.jobs.files import ROUTER as FILES
from hostcore_service.jobs.history import ROUTER as HISTORY
from hostcore_service.jobs.router import ROUTER as JOBS
from hostcore_service.jobs.streams import Streams
from hostcore_service.jobs.validate import ROUTER as VALIDATE
from hostcore_service.page.router import ROUTER as PAGE
from hostcore_service.page.router import router_of_sections
from hostcore_service.plugins import ROUTER as PLUGINS
from hostcore_service.sections import Sections
from hostcore_service.services import Service, the_service
from hostcore_service.settings import Settings
from hostcore_service.train.router import ROUTER as TRAIN

_ALIVE: Final = answer("It does.", {"status": "ok"})


def make_app(
    settings: Settings,
    opened: Service | None = None,
    *,
    most: int = connections.MOST,
    descriptions: Descriptions | None = None,
) -> FastAPI:
    """The service as an ASGI application. Its lifespan starts the dispatcher, and closes the service.

    :param opened: The service; its lifespan opens it if not given.
    :param most: How many connections there may be.
    :param descriptions: Those of plugins; the service makes its own if not given.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = opened or Service.open(settings, descriptions)
        app.state.service = service
        service.dispatcher.start()
        try:
            yield
        finally:
            service.close()

    app = FastAPI(
        title="hostcore",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # these pages load their scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # to an address taken from the header Host
    )
    app.state.settings = settings
    hide_places(settings)
    sections = Sections.installed(settings)
    app.state.streams = Streams(most=most // 2)
    app.state.checks = Checks()
    app.add_middleware(HeadAsGet)
    app.add_middleware(Limited, limit=RateLimit(settings.operator.http.requests_per_minute))
    app.add_exception_handler(HostcoreError, problems.on_hostcore_error)
    app.add_exception_handler(RequestValidationError, problems.on_validation_error)
    app.add_exception_handler(HTTPException, problems.on_http_error)
    app.add_exception_handler(SQLAlchemyError, problems.on_database_error)
    app.add_exception_handler(Exception, problems.on_defect)

    @app.get("/healthz", tags=["service"], summary="Whether the service lives", responses={200: _ALIVE})
    async def healthz() -> dict[str, str]:
        """Needs no token: for load balancers and probes."""
        return {"status": "ok"}

    @app.get(
        "/readyz",
        tags=["service"],
        summary="Whether the service can take jobs",
        responses={200: answer("It can.", {"status": "ready"}), **openapi_problems(503)},
    )
    def readyz(service: Annotated[Service, Depends(the_service)]) -> dict[str, str]:
        """Needs no token: for load balancers and probes. 503 when its database is gone, or cannot be written."""
        service.readiness.require()
        return {"status": "ready"}

    describe(app)
    app.include_router(JOBS)
    app.include_router(TRAIN)
    app.include_router(router_of_sections(sections))
    app.include_router(PAGE)
    app.include_router(HISTORY)
    app.include_router(FILES)
    app.include_router(VALIDATE)
    app.include_router(PLUGINS)
    sections.include_in(app)
    return app
