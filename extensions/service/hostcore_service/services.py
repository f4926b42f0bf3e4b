"""Objects that the routes use: one of each for the whole process."""

from functools import cached_property
from typing import Any

import attrs
from fastapi import Request
from sqlalchemy import Engine

from hostcore.plugins.installed import Discovered, discover
from hostcore.plugins.listing import plugins_document
from hostcore.runs.summary import UnknownRun
from hostcore_service.admission import Admission
from hostcore_service.descriptions import Descriptions
from hostcore_service.dispatch.dispatcher import Dispatcher
from hostcore_service.jobs.histories import Histories
from hostcore_service.launchers import warn_of_shared_database
from hostcore_service.recovery import recover
from hostcore_service.settings import InvalidService, Settings
from hostcore_service.store.database import Readiness, open_database
from hostcore_service.store.job import StoredJob
from hostcore_service.store.jobs import Jobs


@attrs.frozen(kw_only=True)
class Service:
    """The parts of a service."""

    settings: Settings
    discovered: Discovered
    engine: Engine
    jobs: Jobs
    admission: Admission
    dispatcher: Dispatcher
    readiness: Readiness
    histories: Histories = attrs.field(factory=Histories)

    @cached_property
    def plugins(self) -> dict[str, Any]:
        """Installed plugins, as ``hostcore plugins --json`` prints them."""
        return plugins_document(self.discovered)

    @classmethod
    def open(cls, settings: Settings, descriptions: Descriptions | None = None) -> "Service":
        """Open the database, and find the plugins that are installed.

        :raises HostcoreError: When the runs have no place, the database cannot be used, or one of the operator's
            policies not be loaded.
        """
        try:
            settings.runs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidService(
                f"the folder of the runs cannot be made: {error.strerror}",
                file=str(settings.runs),
                hint="HOSTCORE_RUNS_DIR names it",
            ) from error
        discovered = discover()
        engine = open_database(settings.database)
        jobs = Jobs(engine)
        admission = Admission.of(settings, jobs, discovered, descriptions)
        warn_of_shared_database(settings, discovered)
        recover(admission)
        return cls(
            settings=settings,
            discovered=discovered,
            engine=engine,
            jobs=jobs,
            admission=admission,
            dispatcher=Dispatcher(jobs, settings, discovered),
            readiness=Readiness(engine),
        )

    def close(self) -> None:
        """Finish what was begun."""
        self.dispatcher.stop()
        self.engine.dispose()

    def job(self, run_id: str) -> StoredJob:
        """The job of a run.

        :raises UnknownRun: When there is none.
        """
        job = self.jobs.get(run_id) if "\0" not in run_id else None
        if job is None:
            raise UnknownRun(f"there is no job {run_id!r}", hint="GET /v1/jobs lists the jobs that there are")
        return job


def the_service(request: Request) -> Service:
    """The service that answers a request."""
    service: Service = request.app.state.service
    return service
