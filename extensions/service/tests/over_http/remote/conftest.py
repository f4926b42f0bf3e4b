"""One service for all tests of a module, and the commands that ask it, or look at its runs themselves."""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest
from click.testing import CliRunner
from command_line import Said, said_by
from fork_server import hostcore
from served import MODULES, TOKEN, Server, install, server_in

from hostcore.cli import cli
from hostcore.secrets.scrub import forget_all

OPERATOR = """
[launchers.instant]
[launchers.deaf]
[service]
poll_seconds = 0.1
[http]
requests_per_minute = 0
"""


@attrs.define(kw_only=True, eq=False)
class Service(Server):
    """One that commands are asked about."""

    started: list["subprocess.Popen[str]"] = attrs.field(factory=list)

    def hidden(self, text: str) -> str:
        """A text without the places of the service's machine, which its answers do not show."""
        return text.replace(f"{self.runs}/", "").replace(f"{self.folder / 'site'}/", "")

    def job_file(self, run_id: str, **keys: Any) -> Path:
        """Write a job file of the trainer ``tiny``."""
        path = self.folder / f"{run_id}.json"
        job = {"trainer": "tiny", "device": "cpu", "max_steps": 3, "metric_every": 1, "run_id": run_id, **keys}
        path.write_bytes(orjson.dumps(job))
        return path

    def command(self, *arguments: str | Path, **environment: str) -> "subprocess.Popen[str]":
        """Start ``hostcore`` with ``HOSTCORE_SERVER`` set, somewhere without runs."""
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        clean = {name: value for name, value in self.environment.items() if not name.startswith("HOSTCORE_")}
        process = hostcore(
            arguments,
            cwd=elsewhere,
            env={**clean, "HOSTCORE_SERVER": self.url, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str | Path, **environment: str) -> Said:
        """Run ``hostcore``, as :meth:`command`, to its end."""
        return said_by(self.command(*arguments, **environment))

    def clean_up(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()
        super().clean_up()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a token, whose jobs run on this machine."""
    folder = tmp_path_factory.mktemp("service")
    install(folder / "site", "told", MODULES)
    nowhere = {"HOSTCORE_SERVER": "http://127.0.0.1:9"}  # what a service launches is run where it is
    made: Service = server_in(folder, folder / "site", OPERATOR, kind=Service, **nowhere)
    made.start()
    yield made
    made.clean_up()


@pytest.fixture
def there(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Said]]:
    """``there("list")``: a command in this process, about the jobs of the service."""

    def call(*arguments: str, token: str | None = TOKEN, url: str = service.url) -> Said:
        monkeypatch.delenv("HOSTCORE_RUNS_DIR", raising=False)
        if token is None:
            monkeypatch.delenv("TRAINER_API_TOKEN", raising=False)
        else:
            monkeypatch.setenv("TRAINER_API_TOKEN", token)
        return invoked([*arguments, "--server", url])

    yield call
    forget_all()


@pytest.fixture
def here(service: Service, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """``here("list")``: the same command, in this process, about the run directories of the service."""

    def call(*arguments: str) -> Said:
        monkeypatch.setenv("HOSTCORE_RUNS_DIR", str(service.runs))
        return invoked(arguments)

    return call


def invoked(arguments: Any) -> Said:
    result = CliRunner().invoke(cli, list(arguments), prog_name="hostcore", catch_exceptions=False)
    return Said(code=result.exit_code, out=result.stdout, err=result.stderr)


@pytest.fixture(scope="session")
def masked() -> Callable[[str], list[str]]:
    """The lines of a text without what depends on the second, and on where the run is."""

    def mask(text: str) -> list[str]:
        timeless = re.sub(r"\d+(\.\d+)? ?(s|seconds?|minutes?)\b( ago)?|just now", "<time>", text)
        timeless = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "<moment>", timeless)
        places = re.compile(r"  (engine|events|output|loss curve|samples|everything|checkpoint|to go on|detail)  ")
        lines = [line.rstrip() for line in timeless.splitlines() if not places.match(line)]
        return [re.sub(r"(?<=\S) +", " ", line) for line in lines]  # columns are as wide as what was masked in them

    return mask
