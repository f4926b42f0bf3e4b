"""Services of the tests in processes of their own. Tests find the modules beside this one by their names."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

TOKEN = "a-token-that-only-the-tests-know"
LAUNCHERS = ("instant", "slow", "flaky", "broken", "refusing", "stuck")

#: Before what a test adds; every launcher of the tests can be named, `local` is the default.
OPERATOR = """
{top}
launchers = {{ instant = {{}}, flaky = {{}}, broken = {{}}, refusing = {{}}, stuck = {{}}, {launchers} }}

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
    site.install(
        "tiny-trainer",
        modules={"tiny_trainer.py": (HERE / "tiny_trainer.py").read_text()},
        entry_points={"hostcore.trainers": {"tiny": "tiny_trainer:Trainer"}},
    )
    site.install(
        "told-launchers",
        modules={"told_launchers.py": (HERE / "told_launchers.py").read_text()},
        entry_points={"hostcore.launchers": {name: f"told_launchers:{name.capitalize()}" for name in LAUNCHERS}},
    )
    return site


@pytest.fixture
def make_server(tmp_path: Path, service_site: Any) -> Iterator[Callable[..., Any]]:
    """``make_server(launcher="instant", http="max_submitted = 3", token=None)``: a service that has started."""
    from served import Server

    made: list[Server] = []

    def make(
        *,
        launcher: str = "hostcore-builtin-plugins/local",
        launchers: str = "slow = {}",
        top: str = "",
        service: str = "",
        http: str = "",
        token: str | None = TOKEN,
        folder: Path = tmp_path / "service",
        start: bool = True,
        open_files: int | None = None,
        **environment: str,
    ) -> Any:
        """Make one.

        :param launcher: Of jobs that name none.
        :param launchers: More keys of the operator's ``launchers``.
        :param top: More lines at the top of the operator's file; so ``service`` and ``http`` for their tables.
        """
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ledger").mkdir(exist_ok=True)
        top = f'launcher = "{launcher}"\n{top}'
        operator = folder / "operator.toml"
        operator.write_text(OPERATOR.format(top=top, launchers=launchers, service=service, http=http))
        clean = {name: value for name, value in service_site.environment.items() if not name.startswith("HOSTCORE_")}
        clean.pop("TRAINER_API_TOKEN", None)
        own = {
            "HOSTCORE_RUNS_DIR": str(folder / "runs"),
            "HOSTCORE_CONFIG": str(operator),
            "HOSTCORE_TEST_LEDGER": str(folder / "ledger"),
            **({"TRAINER_API_TOKEN": token} if token else {}),
        }
        environment = {**clean, **own, **environment}
        made.append(Server(folder=folder, environment=environment, token=token, open_files=open_files))
        return made[-1].start() if start else made[-1]

    yield make
    for each in made:
        each.clean_up()


@pytest.fixture
def server(make_server: Callable[..., Any]) -> Any:
    """A service with a token, whose jobs run on this machine."""
    return make_server()


@pytest.fixture(scope="session")
def until() -> Callable[..., Any]:
    """See ``wait_until``."""
    return wait_until
