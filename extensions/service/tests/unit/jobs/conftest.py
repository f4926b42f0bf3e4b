"""A service whose jobs have whatever the tests write into their run directories."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from fastapi.testclient import TestClient

from hostcore.runs.directory import RunDirectory
from hostcore_service.services import Service


@attrs.frozen
class Open:
    """A service that is open."""

    client: TestClient
    a_job: Callable[..., Any]

    @property
    def app(self) -> Any:
        return self.client.app

    @property
    def service(self) -> Service:
        return self.app.state.service

    def job(self, run_id: str = "a", **fields: Any) -> RunDirectory:
        """Record a job that no dispatcher holds; its run directory, which has been made."""
        self.service.jobs.add(self.a_job(run_id, **{"phase": "ended", "status": "succeeded", **fields}))
        directory = RunDirectory(self.service.settings.runs / run_id)
        directory.make()
        return directory

    def get(self, path: str, **headers: str) -> Any:
        return self.client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.fixture
def opened(client: Callable[..., TestClient], a_job: Callable[..., Any], tmp_path: Path) -> Open:
    return Open(client(token=None, http={"data_roots": [str(tmp_path)]}), a_job)
