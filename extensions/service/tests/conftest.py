"""Services of the tests in processes of their own. Tests find the modules beside this one by their names."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

#: Before what a test adds; every launcher of the tests can be named.
OPERATOR = """
launcher = "{launcher}"
{top}
launchers = {{ instant = {{}}, flaky = {{}}, broken = {{}}, refusing = {{}}, stuck = {{}}, deaf = {{}}, {launchers} }}

[service]
poll_seconds = 0.1
{service}

[http]
requests_per_minute = 0
{http}
"""


@pytest.fixture
def service_site(site: Any) -> Any:
    """A site with the trainer ``tiny`` and the launchers of the tests."""
    from served import MODULES, install

    install(site.path, "tiny-trainer", MODULES)
    return site


@pytest.fixture
def make_server(tmp_path: Path, service_site: Any) -> Iterator[Callable[..., Any]]:
    """``make_server(launcher="instant", http="max_submitted = 3", token=None)``: a service that has started."""
    from served import Server, server_in

    made: list[Server] = []

    def make(
        *,
        launcher: str = "hostcore-builtin-plugins/local",
        launchers: str = "slow = {}",
        top: str = "",
        service: str = "",
        http: str = "",
        folder: Path = tmp_path / "service",
        start: bool = True,
        **more: Any,
    ) -> Any:
        """Make one.

        :param launcher: Of jobs that name none.
        :param launchers: More keys of the operator's ``launchers``.
        :param top: More lines at the top of the operator's file; so ``service`` and ``http`` for their tables.
        :param more: See ``server_in``.
        """
        operator = OPERATOR.format(launcher=launcher, top=top, launchers=launchers, service=service, http=http)
        made.append(server_in(folder, service_site.path, operator, **more))
        return made[-1].start() if start else made[-1]

    yield make
    for each in made:
        each.clean_up()


@pytest.fixture
def server(make_server: Callable[..., Any]) -> Any:
    """A service with a token, whose jobs run on this machine."""
    return make_server()


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One service for tests that neither stop it nor count its jobs."""
    from served import MODULES, Server, install, server_in

    folder = tmp_path_factory.mktemp("shared")
    install(folder / "site", "tiny-trainer", MODULES)
    operator = OPERATOR.format(
        launcher="hostcore-builtin-plugins/local", top="", launchers="slow = {}", service="", http=""
    )
    made: Server = server_in(folder, folder / "site", operator)
    yield made.start()
    made.clean_up()


@pytest.fixture(scope="session")
def until() -> Callable[..., Any]:
    """See ``wait_until``."""
    return wait_until
