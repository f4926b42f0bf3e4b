"""``/v1/sweeps``: the sweeps whose folders lie beside the runs of a service, and their reports."""

import os
import re
import threading
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import attrs
from fastapi import APIRouter, HTTPException
from fastapi.responses import HTMLResponse

from hostcore.events.writer import now_ms
from hostcore.secrets.scrub import scrub, scrubbed
from hostcore_hookspecs.errors import HostcoreError
from hostcore_sweeps.folder import SWEEPS_DIR_VARIABLE, SweepFolder, UnknownSweep
from hostcore_sweeps.records import read_records
from hostcore_sweeps.report.page import SweepFigures, write_page
from hostcore_sweeps.service import schema
from hostcore_sweeps.status import SweepStatus, SweepTable

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_STATES: Final = ("running", "paused", "complete", "pruned", "failed")
#: Added to the policy of the report itself. Its scripts run in an origin of its own, which has no token.
_HEADERS: Final = {
    "Content-Security-Policy": ("sandbox allow-scripts; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


def _answer(description: str, example: Any) -> dict[int | str, dict[str, Any]]:
    return {200: {"description": description, "content": {"application/json": {"example": example}}}}


class SweepsSection:
    """The section of a service: see ``hostcore_service.sections``.

    :param runs: The folder of all runs. The sweeps are those in ``HOSTCORE_SWEEPS_DIR``, or in ``sweeps`` beside it.
    """

    title = "Sweeps"
    assets = (
        *(files("hostcore_sweeps.service") / "assets").iterdir(),
        files("hostcore_sweeps.report") / "assets" / "pictures.css",
    )

    def __init__(self, *, runs: Path, without_places: Callable[[Any], Any]) -> None:
        sweeps = os.environ.get(SWEEPS_DIR_VARIABLE)
        self._reader = _Reader(Path(sweeps).absolute() if sweeps else runs.parent / "sweeps")
        self._without_places = without_places
        self.router = APIRouter()
        add = self.router.add_api_route
        add(
            "",
            self.list_sweeps,
            response_model=schema.SweepList,
            responses=_answer("What there is.", {"sweeps": [schema.EXAMPLE], "unreadable": []}),
            summary="List sweeps",
        )
        add(
            "/{sweep_id}",
            self.get_sweep,
            response_model=schema.SweepDetail,
            responses=_answer("The sweep.", {**schema.EXAMPLE, "trials": [schema.TRIAL]}),
            summary="Look at a sweep",
        )
        figures = {"history": [schema.FIGURE], "parallel": [], "curves": [], "importances": [schema.IMPORTANCE]}
        add(
            "/{sweep_id}/figures",
            self.get_figures,
            response_model=schema.Figures,
            responses=_answer("Its pictures.", figures),
            summary="Draw a sweep",
        )
        add(
            "/{sweep_id}/report",
            self.get_report,
            response_class=HTMLResponse,
            responses={200: {"description": "The report: one HTML document that needs nothing else."}},
            summary="Report a sweep",
        )

    def list_sweeps(self) -> Any:
        """The sweeps whose folders are seen from here, those begun last first. Reads what has changed alone."""
        found, unreadable = [], []
        for sweep_id in self._reader.ids():
            try:
                found.append(_line(self._reader.read(sweep_id)))
            except UnknownSweep:  # removed in this moment
                continue
            except HostcoreError as error:
                unreadable.append({"sweep_id": sweep_id, "error": error.message})
        found.sort(key=lambda one: (-(one["started_ms"] or 0), one["sweep_id"]))
        return self._shown({"sweeps": found, "unreadable": unreadable})

    def get_sweep(self, sweep_id: str) -> Any:
        """A sweep with all its trials."""
        status = self._read(sweep_id)
        trials = [{key: value for key, value in row.as_dict().items() if key != "reports"} for row in status.trials]
        return self._shown({**_line(status), "trials": trials})

    def get_figures(self, sweep_id: str) -> Any:
        """The pictures of its report, for pages that draw them: paths and texts, without markup."""
        return self._shown(attrs.asdict(SweepFigures.of(self._read(sweep_id))))

    def get_report(self, sweep_id: str) -> Any:
        """Return the page of `hostcore sweep report`, as of now."""
        page = write_page(self._read(sweep_id), now=now_ms(), tells_places=False)
        return HTMLResponse(self._without_places(scrub(page)), headers=_HEADERS)

    def _read(self, sweep_id: str) -> SweepStatus:
        """Return the status of a sweep.

        :raises HTTPException: 404 when there is none.
        """
        try:
            return self._reader.read(sweep_id)
        except UnknownSweep:
            raise HTTPException(status_code=404, detail=f"there is no sweep {sweep_id!r}") from None

    def _shown(self, value: Any) -> Any:
        return self._without_places(scrubbed(value))


class _Reader:
    """Reads sweeps, each again only when its folder has changed.

    :param folder: Of all sweeps.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._turn = threading.Lock()
        self._tables: dict[str, tuple[object, SweepTable]] = {}

    def ids(self) -> list[str]:
        """The sweeps that there are."""
        return [path.parent.name for path in self._folder.glob("*/sweep.json") if _ID.fullmatch(path.parent.name)]

    def read(self, sweep_id: str) -> SweepStatus:
        """Return the status of a sweep.

        :raises UnknownSweep: When there is none.
        :raises HostcoreError: When it cannot be read.
        """
        folder = SweepFolder(self._folder / sweep_id)
        if not _ID.fullmatch(sweep_id) or not folder.sweep.is_file():
            raise UnknownSweep(f"there is no sweep {sweep_id!r}")
        version = [_version(path) for path in (folder.sweep, folder.records)]
        with self._turn:
            known, table = self._tables.get(sweep_id, (None, None))
            if table is None or known != version:
                table = SweepTable(folder)
                for time_ms, record in read_records(folder.records):
                    table.take(time_ms, record)
                self._tables[sweep_id] = version, table
            return table.status()


def _version(path: Path) -> object:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _line(status: SweepStatus) -> dict[str, Any]:
    rows = {row.number: row for row in status.trials}
    return {
        "sweep_id": status.sweep.sweep_id,
        "status": status.state,
        "reason": status.reason,
        "max_trials": status.most_trials,
        "counts": {state: sum(row.state == state for row in status.trials) for state in _STATES},
        "objectives": [attrs.asdict(one) for one in status.objectives],
        "best": [{"number": number, "objective": dict(rows[number].objective)} for number in status.best],
        "started_ms": status.started_ms,
        "driven_ms": status.driven_ms,
    }
