"""Settings that make no sense are refused before anything is loaded or sent, with the place of what is wrong."""

from typing import Any

import pytest

from hostcore_hookspecs import InvalidSettings, Secret
from hostcore_trackers.mlflow import MlflowReporter
from hostcore_trackers.redis_streams import RedisStreamsReporter
from hostcore_trackers.wandb.reporter import WandbReporter
from hostcore_trackers.webhook import WebhookReporter

USER: dict[str, Any] = {"tracking_uri": "http://h", "username": "me"}
REFUSED: dict[Any, list[tuple[dict[str, Any], str]]] = {
    MlflowReporter: [
        ({"tracking_uri": "sqlite:///mlflow.db"}, "/tracking_uri"),
        ({"tracking_uri": "http://user:pw@h"}, "/tracking_uri"),
        (USER, "/username"),
        ({**USER, "password": Secret("s3cret"), "token": Secret("t0ken")}, "/token"),
    ],
    RedisStreamsReporter: [
        ({"url": "http://localhost"}, "/url"),
        ({"url": "redis://"}, "/url"),
        ({"url": "redis://h:port"}, "/url"),
        ({"url": "redis://:password@h"}, "/url"),
        ({"url": "redis://h", "ca_file": "ca.crt"}, "/ca_file"),
    ],
    WandbReporter: [({"base_url": "http://user:pw@h"}, "/base_url")],
    WebhookReporter: [
        ({}, "/url"),
        ({"url": "ftp://example.org"}, "/url"),
        ({"url": "http://"}, "/url"),
        ({"url": "http://h:port"}, "/url"),
        ({"url": "https://user:pw@example.org"}, "/url"),
        ({"url": "http://h", "terminal_url": "http://h"}, "/terminal_url"),
        ({"url": "http://h", "format": "orchestrator", "terminal_url": "h"}, "/terminal_url"),
        ({"url": "http://h", "events": ("metrics", "run_suceeded")}, "/events/1"),
        ({"url": "http://h", "headers": {"Authorization": "Bearer x"}}, "/headers/Authorization"),
        ({"url": "http://h", "headers": {"webhook-id": "x"}}, "/headers/webhook-id"),
        ({"url": "http://h", "headers": {"X-A": "a\r\nX-B: b"}}, "/headers/X-A"),
        ({"url": "http://h", "headers": {"X A": "a"}}, "/headers/X A"),
        ({"url": "http://h", "secret": Secret("whsec_?")}, "/secret"),
    ],
}


@pytest.mark.parametrize(
    ("reporter", "settings", "pointer"), [(owner, *row) for owner, rows in REFUSED.items() for row in rows], ids=str
)
def test_settings_that_make_no_sense_are_refused(reporter: Any, settings: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        reporter(settings=reporter.Settings(**settings))
    assert caught.value.pointer == pointer
