"""Commands that are asked about plugins of a job's environment: ``--environment JOB``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostcore_environments.own_wheels import _read

JOB = {"environment": {"requirements": ["of-its-own"]}, "trainer": "of-its-own"}


@pytest.fixture(scope="module")
def published(make_workplace: Callable[[Path], Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An index with the trainer ``of-its-own``, which is installed nowhere, and a job with it."""
    workplace = make_workplace(tmp_path_factory.mktemp("asked"))
    workplace.index.publish("of-its-own", trainer="of-its-own", requires=["hostcore-hookspecs>=1,<2"])
    workplace.job(**JOB)
    return workplace


def test_plugins_lists_the_trainers_of_the_environment_and_the_reporters_of_the_host(published: Any) -> None:
    done = published.hostcore("plugins", "--environment", "job.json", "--json")
    assert done.code == 0, done.err
    found = {(one["kind"], one["name"]) for one in done.json["plugins"]}
    assert {("trainer", "of-its-own"), ("data_source", "parquet"), ("reporter", "terminal")} <= found
    assert done.json == published.hostcore("plugins", "list", "--environment", "job.json", "--json").json
    here = published.hostcore("plugins", "--json").json["plugins"]
    assert "of-its-own" not in [one["name"] for one in here]


def test_plugins_show_and_schema_import_the_trainer_there(published: Any) -> None:
    shown = published.hostcore("plugins", "show", "of-its-own", "--environment", "job.json", "--json")
    assert shown.code == 0, shown.err
    (trainer,) = shown.json["plugins"]
    assert trainer["ref"]["dist"] == "of-its-own"
    assert "train_step" in trainer["hooks"]
    schema = published.hostcore("schema", "of-its-own", "parquet", "terminal", "--environment", "job.json")
    assert schema.code == 0, schema.err
    assert schema.json["properties"]["trainer"]
    (error,) = published.hostcore("plugins", "show", "of-its-own", "--json").json["errors"]
    assert error["code"] == "plugin.unknown"


def test_what_a_run_has_installed_counts_only_if_the_job_has_the_environment_of_that_run(workplace: Any) -> None:
    workplace.index.publish("of-its-own", trainer="of-its-own")
    job = {**JOB, "run_id": "one", "trainer": "of-its-own"}
    assert workplace.hostcore("run", workplace.job(**job)).code == 0
    workplace.index.publish("of-its-own", version="2.0", trainer="of-its-own")
    own = JOB["environment"]
    newer = {"requirements": ["of-its-own>=2"]}
    for environment, version in ((own, "1.0"), (newer, "2.0")):
        workplace.job(**{**job, "environment": environment})
        shown = workplace.hostcore("plugins", "show", "of-its-own", "--environment", "job.json", "--json")
        assert shown.code == 0, shown.err
        assert [one["ref"]["version"] for one in shown.json["plugins"]] == [version]


def test_an_option_of_the_wrong_place_is_one_error(published: Any) -> None:
    said = published.hostcore("plugins", "--environment", "job.json", "--server", "http://127.0.0.1:9")
    assert (said.code, "exclude each other" in said.err) == (2, True)
    said = published.hostcore("plugins", "--environment", "job.json", "show", "of-its-own")
    assert (said.code, "comes behind the command" in said.err) == (2, True)
    (error,) = published.hostcore("plugins", "list", "--environment", "nowhere.json", "--json").json["errors"]
    assert error["code"] == "job.not_found"


def test_check_needs_the_kit_there_and_runs_there(published: Any) -> None:
    check = ("check", "of-its-own", "--environment", "job.json", "--only", "plugin.imports_alone", "--json", "-")
    refused = published.hostcore(*check)
    assert refused.code == 2
    (error,) = refused.json["errors"]
    assert "hostcore-conformance is missing" in error["message"]
    assert 'add "hostcore-conformance==' in error["hint"]
    for distribution in ("hostcore-chaos", "hostcore-conformance"):
        published.index.add(_read(distribution).write(published.path))
    published.job("kit.json", **{**JOB, "environment": {"requirements": ["of-its-own", "hostcore-conformance"]}})
    done = published.hostcore(*("kit.json" if word == "job.json" else word for word in check))
    assert done.code == 0, done.err
    assert done.json["plugin"]["distribution"] == "of-its-own"
