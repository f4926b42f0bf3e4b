"""What ``docs/reference/reporters.md`` says of settings is what the classes say."""

import json
import re
from typing import Any

import attrs
import pytest
from checkout import ROOT

from hostcore.job.forms import structure
from hostcore_builtin_plugins.job_index import JobIndexReporter
from hostcore_builtin_plugins.jsonl import JsonlReporter
from hostcore_hookspecs import Secret
from hostcore_trackers.mlflow import MlflowReporter
from hostcore_trackers.prometheus import PrometheusReporter
from hostcore_trackers.redis_streams import RedisStreamsReporter
from hostcore_trackers.tensorboard import TensorBoardReporter
from hostcore_trackers.trackio.reporter import TrackioReporter
from hostcore_trackers.wandb.reporter import WandbReporter
from hostcore_trackers.webhook import WebhookReporter

PAGE = ROOT / "docs" / "reference" / "reporters.md"

REPORTERS: dict[str, Any] = {
    "job-index": JobIndexReporter,
    "jsonl": JsonlReporter,
    "mlflow": MlflowReporter,
    "prometheus": PrometheusReporter,
    "redis-streams": RedisStreamsReporter,
    "tensorboard": TensorBoardReporter,
    "trackio": TrackioReporter,
    "wandb": WandbReporter,
    "webhook": WebhookReporter,
}


@pytest.mark.parametrize("name", REPORTERS)
def test_every_setting_is_in_the_table_with_its_default(name: str) -> None:
    section = PAGE.read_text().partition(f"\n## `{name}`\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|(.*?)\|", section, re.MULTILINE)
    table = {setting: default.strip() for setting, default in rows}
    fields = attrs.fields(REPORTERS[name].Settings)
    assert list(table)[: len(fields)] == [field.name for field in fields]
    for field in fields:
        if field.default is attrs.NOTHING:
            assert table[field.name] == ""
        elif isinstance(field.default, str | bool | int | float):
            assert table[field.name] == f"`{json.dumps(field.default)}`"
        else:
            assert table[field.name] == {"headers": "`{}`"}.get(field.name, field.metadata.get("default", ""))
        assert field.metadata["help"]


def test_every_example_is_a_job_whose_settings_are_accepted() -> None:
    examples = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)]
    uses = [use for example in examples for use in example.get("reporters", ()) if isinstance(use, dict)]
    for use in uses:
        owner = REPORTERS[use["use"]]
        given = {key: value for key, value in use.items() if key not in ("use", "required")}
        # As the host does it, with the references resolved.
        secrets = {key: Secret("s3cret") for key, value in given.items() if isinstance(value, dict)}
        plain = {key: value for key, value in given.items() if key not in secrets}
        owner(settings=attrs.evolve(structure(owner.Settings, plain), **secrets))
    assert {use["use"] for use in uses} == set(REPORTERS)
