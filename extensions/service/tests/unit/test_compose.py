"""``deploy/compose``: what its files say and allow. ``tests/e2e/test_compose.py`` starts what they describe."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT

from hostcore.supervisor.operator_file import read_operator_file

FOLDER = ROOT / "deploy/compose"
TEXT = (FOLDER / "compose.yaml").read_text()
COMPOSE = yaml.safe_load(TEXT)
SERVICES: dict[str, Any] = COMPOSE["services"]
EXAMPLE = (FOLDER / ".env.example").read_text()
SECRETS = re.findall(r"^([A-Z_]+)=$", EXAMPLE, re.MULTILINE)


@pytest.fixture(scope="module")
def compose() -> list[str]:
    """The command of Docker Compose, which needs no engine for what is asked here."""
    docker = shutil.which("docker")
    if docker and subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode == 0:
        return [docker, "compose"]
    if (alone := shutil.which("docker-compose")) is None:
        pytest.skip("Docker Compose is not installed")
    return [alone]


def test_compose_takes_the_file_with_its_secrets_and_refuses_it_without(compose: list[str], tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("".join(f"{name}={name.lower()}\n" for name in SECRETS))
    clean = {name: value for name, value in os.environ.items() if name not in SECRETS}
    asked = [*compose, "-f", str(FOLDER / "compose.yaml")]
    config = ["config", "--quiet"]
    full = subprocess.run(
        [*asked, "--env-file", str(tmp_path / ".env"), *config], capture_output=True, text=True, check=False, env=clean
    )
    assert (full.returncode, full.stderr) == (0, "")
    (tmp_path / "empty").touch()
    empty = subprocess.run(
        [*asked, "--env-file", str(tmp_path / "empty"), *config], capture_output=True, text=True, check=False, env=clean
    )
    assert empty.returncode != 0
    assert "see .env.example" in empty.stderr


def test_every_secret_is_demanded_and_none_has_a_default_and_the_example_names_every_variable() -> None:
    demanded = set(re.findall(r"\$\{(\w+):\?", TEXT))
    assert demanded == set(SECRETS)
    assert not {name for name, _ in re.findall(r"\$\{(\w+):-([^}]*)\}", TEXT)} & demanded
    given = {name: value for one in SERVICES.values() for name, value in one["environment"].items()}
    secret = {name: value for name, value in given.items() if name.endswith(("PASSWORD", "TOKEN", "_URL", "STORE_URI"))}
    assert len(secret) == 6
    assert [name for name, value in secret.items() if ":?" not in value] == []
    told = set(re.findall(r"^#?([A-Z_]+)=", EXAMPLE, re.MULTILINE))
    assert told == set(re.findall(r"\$\{(\w+):", TEXT))


def test_every_service_says_whether_it_is_healthy_and_waits_only_for_those_that_do() -> None:
    for one in SERVICES.values():
        assert one["healthcheck"]["test"][0] == "CMD"
        for other, how in one.get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"}
            assert "healthcheck" in SERVICES[other]
    assert "mlflow" not in SERVICES["hostcore"]["depends_on"], "a tracker that is down stops no job"


def test_no_service_runs_as_root_or_can_become_it_and_ports_are_on_the_loopback_device_alone() -> None:
    users = {
        "postgres": SERVICES["postgres"]["user"],
        "mlflow": re.findall(r"^USER (\d+):", (FOLDER / "mlflow.Dockerfile").read_text(), re.MULTILINE)[-1],
        "hostcore": re.findall(r"^USER (\d+):", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[-1],
    }
    assert users == {"postgres": "postgres", "mlflow": "10002", "hostcore": "10001"}
    for one in SERVICES.values():
        assert one["cap_drop"] == ["ALL"]
        assert one["security_opt"] == ["no-new-privileges:true"]
        assert not {"privileged", "cap_add", "network_mode", "pid"} & set(one)
    assert "ports" not in SERVICES["postgres"]
    assert [port.partition(":")[0] for one in SERVICES.values() for port in one.get("ports", ())] == ["127.0.0.1"] * 2


def test_what_is_mounted_and_built_is_there() -> None:
    for one in SERVICES.values():
        for volume in one.get("volumes", ()):
            source = re.sub(r"^\$\{\w+:-([^}]*)\}", r"\1", volume).partition(":")[0]
            assert source in COMPOSE["volumes"] or source == "./data" or (FOLDER / source).is_file(), volume
        if build := one.get("build"):
            assert (FOLDER / build["context"] / build.get("dockerfile", "Dockerfile")).is_file()
    arguments = re.findall(r"^ARG (\w+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert set(SERVICES["hostcore"]["build"]["args"]) <= set(arguments)
    assert os.access(FOLDER / "databases.sh", os.X_OK)


def test_the_service_takes_the_operators_file_and_jobs_may_name_the_tracker() -> None:
    operator = read_operator_file({"HOSTCORE_CONFIG": str(FOLDER / "hostcore.toml")})
    assert (operator.launcher.use, list(operator.http.data_roots)) == ("local", [Path("/data")])
    assert list(operator.http.hosts) == [f"mlflow:{SERVICES['mlflow']['environment']['MLFLOW_PORT']}"]
