"""What answers show of the places of the service's machine."""

from __future__ import annotations

import sys
from pathlib import Path

import attrs
import pytest

from hostcore.supervisor.operator_file import OperatorFile
from hostcore_builtin_plugins.extras import install_command
from hostcore_service.guard.server_paths import all_without_places, hide_places, without_places
from hostcore_service.settings import Settings

RUNS = Path("/srv/hostcore/runs")


@pytest.fixture(autouse=True)
def hidden() -> None:
    operator = attrs.evolve(OperatorFile(), path=Path("/etc/hostcore/operator.toml"))
    hide_places(Settings(operator=operator, runs=RUNS, database_url="sqlite:////var/lib/hostcore/jobs.sqlite"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"its last words are in {RUNS}/a/logs/supervisor.log", "its last words are in a/logs/supervisor.log"),
        (f"there is no {RUNS}.", "there is no (a folder of the service)."),
        (f"'{RUNS}/a'", "'a'"),
        (f"file://{RUNS}/a/x", "a/x"),
        ("wrong: /etc/hostcore/operator.toml", "wrong: operator.toml"),
        ("/var/lib/hostcore/jobs.sqlite is locked", "jobs.sqlite is locked"),
        (f'File "{sys.prefix}/lib/x.py"', 'File "lib/x.py"'),
        # What hints name, as pip takes it in the clone.
        (f"`{install_command('mlflow')}` brings it", "`pip install 'extensions/trackers[mlflow]'` brings it"),
        (f"`{install_command('conformance')}`", "`pip install extensions/chaos extensions/conformance`"),
        (install_command(), "pip install hookspecs toolkit builtin_plugins hostcore"),
        # What is the job's own.
        ("/data/train.parquet is not there", "/data/train.parquet is not there"),
        (f"{RUNS}-of-others/a", f"{RUNS}-of-others/a"),
        (f"s3://bucket{RUNS}/a", f"s3://bucket{RUNS}/a"),
        ("/etc/hostcore/data.parquet", "/etc/hostcore/data.parquet"),
    ],
)
def test_what_lies_in_a_place_of_the_service_is_named_from_there_on(text: str, shown: str) -> None:
    assert without_places(text) == shown
    assert all_without_places({"a": [text, 1, None]}) == {"a": [shown, 1, None]}
