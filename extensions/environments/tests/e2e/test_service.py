"""Jobs over HTTP that bring an environment: what the operator allows is built when the job runs, not before."""

import json
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from command_line import COMMAND
from package_index import Index
from waiting import wait_until

TOKEN = "token-of-the-tests"
JOB: dict[str, Any] = {"trainer": "of-its-own", "max_steps": 4, "device": "cpu", "terminal": False}


#: Goes on once the other one is there, so that neither ends unless both run at the same time.
SIDE_BY_SIDE = """
    import pathlib, time
    import pyarrow
    from hostcore_hookspecs import StepResult

    class Trainer:
        def setup(self):
            place = pathlib.Path({place!r})
            (place / pyarrow.__version__).touch()
            due = time.monotonic() + 600
            while len(list(place.iterdir())) < 2:
                assert time.monotonic() < due, "the other one does not come"
                time.sleep(0.05)
            print("pyarrow", pyarrow.__version__, flush=True)

        def configure(self):
            return {{}}

        def prepare_batch(self, raw_batch, state):
            return raw_batch

        def train_step(self, prepared_batch, state):
            return StepResult(metrics={{"loss": 0.5}})

        def state_dict(self, state):
            return {{}}

        def load_state_dict(self, state, payload):
            pass
"""


@pytest.fixture
def service(workplace: Any) -> Iterator[str]:
    """A service whose operator allows one package; its URL."""
    workplace.index.publish("of-its-own", trainer="of-its-own", requires=["hostcore-hookspecs>=1,<2"])
    workplace.index.publish("another", trainer="another")
    operator = workplace.path / "operator.toml"
    more = Index(workplace.path / "more")
    more.path.mkdir()
    more.publish("of-its-own", version="2.0", trainer="of-its-own", step=100)
    operator.write_text(f'[http]\nrequirements = ["of-its-own", "*-arrow"]\nindexes = ["{more.path.as_uri()}"]\n')
    own = {
        "TRAINER_API_TOKEN": TOKEN,
        "HOSTCORE_CONFIG": str(operator),
        "HOSTCORE_RUNS_DIR": str(workplace.path / "runs"),
    }
    with subprocess.Popen(
        [COMMAND, "serve", "--port", "0"],
        cwd=workplace.path,
        env={**workplace.environment, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
        process.terminate()


def post(
    service: str,
    run_id: str,
    requirement: str,
    *,
    trainer: str = JOB["trainer"],
    path: str = "/v1/jobs",
    **environment: Any,
) -> Any:
    job = {**JOB, "trainer": trainer, "run_id": run_id, "environment": {"requirements": [requirement], **environment}}
    headers = {"X-TRAINER-TOKEN": TOKEN, "Content-Type": "application/json"}
    return urllib3.request("POST", f"{service}{path}", body=json.dumps(job), headers=headers)


def test_the_operator_says_which_packages_and_indexes(workplace: Any, service: str) -> None:
    index = (workplace.path / "more").as_uri()
    for run_id, own, total in (("plain", {}, 4.0), ("more", {"indexes": [index]}, 400.0)):
        taken = post(service, run_id, "of-its-own>=1", **own)
        assert taken.status == 201, taken.data
        result = workplace.run_directory(run_id) / "result.json"
        wait_until(result.exists, "the end of the job")
        assert json.loads(result.read_bytes())["metrics"]["sum"] == total
        environments = workplace.environment["HOSTCORE_ENVIRONMENTS_DIR"]
        assert Path(workplace.output(run_id).splitlines()[0]).is_relative_to(environments)
    for requirement, own, says in (
        ("another", {}, "is not of the packages that the operator allows"),
        ("of-its-own", {"indexes": [f"{index}/other"]}, "the index is not one that the operator allows"),
    ):
        refused = post(service, "refused", requirement, **own)
        assert refused.status >= 400
        assert says in refused.data.decode()
    assert not workplace.run_directory("refused").exists()


def test_a_job_that_is_checked_builds_nothing(workplace: Any, service: str) -> None:
    for keys in ({}, {"python": "3.12"}):
        checked = post(service, "checked", "of-its-own>=1", path="/v1/jobs:validate", **keys)
        assert checked.status == 200, checked.data
        plan = json.loads(checked.data)["plan"]
        assert plan["checked"] is None
        assert "environment" in plan["unchecked"][0]
    assert post(service, "checked", "another", path="/v1/jobs:validate").status >= 400
    assert not Path(workplace.environment["HOSTCORE_ENVIRONMENTS_DIR"]).exists()
    assert not workplace.run_directory("checked").exists()


def test_trainers_that_exclude_each_other_run_side_by_side_from_one_service(
    workplace: Any, service: str, pyarrows: dict[str, str]
) -> None:
    place = workplace.path / "there"
    place.mkdir()
    source = textwrap.dedent(SIDE_BY_SIDE).format(place=str(place))
    for name, version in pyarrows.items():
        own = f"{name}-arrow"
        workplace.index.publish(own, trainer=own, requires=[f"pyarrow=={version}"], source=source)
        taken = post(service, name, own, trainer=own)
        assert taken.status == 201, taken.data
    for name, version in pyarrows.items():
        result = workplace.run_directory(name) / "result.json"
        wait_until(result.exists, f"the end of {name}", seconds=900)  # of two builds, and of two runs at once
        assert json.loads(result.read_bytes())["status"] == "succeeded"
        assert f"pyarrow {version}" in workplace.output(name)
