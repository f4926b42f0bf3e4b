"""Sections that other distributions add: routes below ``/v1/<name>``, and a page for people at ``#/<name>``.

Each is an entry point in the group ``hostcore.service_sections``. The service knows none of them by name; a broken
section is left out, and the log has the reason.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, Protocol

import attrs
from fastapi import APIRouter, Depends, FastAPI

from hostcore.plugins.extensions import load_extension
from hostcore.plugins.installed import discover
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.kinds import SERVICE_SECTIONS_GROUP
from hostcore_service.guard.server_paths import all_without_places
from hostcore_service.http.auth import authenticate
from hostcore_service.http.openapi import ALWAYS, problem_answer, problems
from hostcore_service.http.query import only_known_parameters
from hostcore_service.settings import Settings

LOG: Final = logging.getLogger("hostcore_service")
_NOT_FOUND: Final = problem_answer(
    404, description="There is nothing of that name.", code="request.not_found", detail="there is no such thing"
)


class ServiceSection(Protocol):
    """A section. The entry point names a class that has these attributes; it need not know of this one."""

    #: What the page's navigation calls it.
    title: str
    #: Its routes. The service puts them below ``/v1/<name>``, and asks for the token first.
    router: APIRouter
    #: The files of its page: scripts, style sheets. ``page.js`` exports ``pageOf(parts)``: the page for
    #: ``#/<name>/<part>/…`` with a title, a heading, a node, ``open(query)`` and ``close()``, or null. It may import
    #: the modules of the service's page: ``../dom.js``.
    assets: Sequence[Traversable]

    def __init__(self, *, runs: Path, without_places: Callable[[Any], Any]) -> None:
        """Made once, when the service starts.

        :param runs: The folder of all runs.
        :param without_places: Hides places of the service's machine in plain JSON; for all that is answered.
        """


@attrs.frozen(kw_only=True)
class Sections:
    """The sections of a service, by name."""

    by_name: Mapping[str, ServiceSection]

    @classmethod
    def installed(cls, settings: Settings) -> "Sections":
        """Those that are installed and can be used."""
        found: dict[str, ServiceSection] = {}
        for name, registered in discover().extensions_of(SERVICE_SECTIONS_GROUP).items():
            try:
                section = load_extension(registered, type)
            except HostcoreError as error:
                LOG.warning("without the section %s: %s", name, error)
                continue
            try:
                made: ServiceSection = section(runs=settings.runs, without_places=all_without_places)
                _require_whole(made)
            except Exception:  # of another distribution, which ends no service
                LOG.warning("without the section %s: it cannot be made", name, exc_info=True)
            else:
                found[name] = made
        return cls(by_name=found)

    def include_in(self, app: FastAPI) -> None:
        """Add their routes."""
        for name, section in self.by_name.items():
            app.include_router(
                section.router,
                prefix=f"/v1/{name}",
                tags=[name],
                dependencies=[Depends(authenticate), Depends(only_known_parameters)],
                responses={**ALWAYS, **problems(400), 404: _NOT_FOUND},
            )


def _require_whole(section: ServiceSection) -> None:
    """See that it has what the service reads of it.

    :raises TypeError: When something is not there, or is of another type.
    """
    for name, kind in (("title", str), ("router", APIRouter), ("assets", Sequence)):
        if not isinstance(getattr(section, name, None), kind):
            raise TypeError(f"{type(section).__name__}.{name} is no {kind.__name__}")
