"""The application in this process, without a network."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from fastapi.testclient import TestClient

from hostcore.secrets.scrub import forget_all
from hostcore_service.app import make_app
from hostcore_service.settings import Settings

TOKEN = "a-token-that-only-the-tests-know"


@pytest.fixture
def client(service_here: Callable[..., Settings]) -> Iterator[Callable[..., TestClient]]:
    """``client(http={"max_submitted": 2})``: a client of a new service, with the right token unless told otherwise."""
    with ExitStack() as stack:

        def make(*, token: str | None = TOKEN, **sections: Any) -> TestClient:
            settings = service_here(token=token, **sections)
            headers = {"X-TRAINER-TOKEN": token} if token else {}
            host = "http://127.0.0.1"
            app = make_app(settings)
            return stack.enter_context(TestClient(app, host, headers=headers, raise_server_exceptions=False))

        yield make
    forget_all()


@pytest.fixture
def tiny() -> Callable[..., dict[str, Any]]:
    """``tiny(run_id="x")``: a job that the service takes."""
    return lambda **keys: {"trainer": "tiny", "max_steps": 3, "terminal": False, **keys}
