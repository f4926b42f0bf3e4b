import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from hostcore_builtin_plugins.extras import install_command
from hostcore_hookspecs import HostcoreError
from hostcore_trackers.mlflow import MlflowReporter
from hostcore_trackers.prometheus import PrometheusReporter
from hostcore_trackers.redis_streams import RedisStreamsReporter
from hostcore_trackers.tensorboard import TensorBoardReporter
from hostcore_trackers.trackio.reporter import TrackioReporter
from hostcore_trackers.wandb.reporter import WandbReporter

IMPORT_PLUGINS = """
import importlib, json, sys
from hostcore_hookspecs import Secret
made = []
for module, name, settings in [
    ("tensorboard", "TensorBoardReporter", {}),
    ("mlflow", "MlflowReporter", {"tracking_uri": "http://localhost:5000"}),
    ("prometheus", "PrometheusReporter", {}),
    ("webhook", "WebhookReporter", {"url": "http://localhost/hook", "secret": Secret("s3cret")}),
    ("trackio.reporter", "TrackioReporter", {}),
    ("wandb.reporter", "WandbReporter", {"api_key": Secret("s3cret")}),
    ("redis_streams", "RedisStreamsReporter", {"url": "redis://localhost"}),
]:
    owner = getattr(importlib.import_module("hostcore_trackers." + module), name)
    made.append(owner(settings=owner.Settings(**settings)))
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_no_reporter_imports_the_host_or_its_library_before_it_opens() -> None:
    answer = subprocess.run([sys.executable, "-c", IMPORT_PLUGINS], capture_output=True, text=True, check=True)
    heavy = {"hostcore", "torch", "numpy", "pyarrow", "rich", "tensorboard", "mlflow", "prometheus_client", "redis"}
    heavy |= {"wandb", "trackio"}
    assert heavy.isdisjoint(json.loads(answer.stdout))
    assert "urllib3" not in json.loads(answer.stdout)


@pytest.mark.parametrize(
    ("library", "extra", "make"),
    [
        ("tensorboard", "tensorboard", TensorBoardReporter),
        ("prometheus_client", "prometheus", PrometheusReporter),
        ("mlflow", "mlflow", lambda: MlflowReporter(settings=MlflowReporter.Settings(tracking_uri="http://h"))),
        ("trackio", "trackio", TrackioReporter),
        ("wandb", "wandb", WandbReporter),
        ("redis", "redis", lambda: RedisStreamsReporter(settings=RedisStreamsReporter.Settings(url="redis://h"))),
    ],
    ids=["tensorboard", "prometheus", "mlflow", "trackio", "wandb", "redis-streams"],
)
def test_a_missing_library_is_an_error_that_names_the_extra(
    library: str, extra: str, make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(HostcoreError, match=f"{library} is not installed") as caught:
        make()
    assert caught.value.code == "plugin.extra_missing"
    assert install_command(extra) in (caught.value.hint or "")
