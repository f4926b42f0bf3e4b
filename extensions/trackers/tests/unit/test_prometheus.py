import math
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import urlopen

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families
from waiting import wait_until

from hostcore_hookspecs import FatalError, Job, events
from hostcore_hookspecs.events import (
    CheckpointSaved,
    Metrics,
    Progress,
    RunFailed,
    RunStarted,
    RunSubmitted,
    TrainerRestored,
    Validation,
    Warning,
)
from hostcore_trackers.prometheus import PrometheusReporter

Course = Any
HOSTILE = 'a "quoted"\\ name\nof two lines'
MakeCourse = Callable[..., Course]


@pytest.fixture
def opened() -> Iterator[Any]:
    """Makes reporters, and closes them."""
    made: list[PrometheusReporter] = []

    def open_one(run: Course, **settings: Any) -> PrometheusReporter:
        reporter = PrometheusReporter(settings=PrometheusReporter.Settings(**settings))
        made.append(reporter)
        reporter.open(run.ctx())
        return reporter

    yield open_one
    for reporter in made:
        reporter.close()


def url_of(run: Course) -> str:
    return str(orjson.loads((run.run_dir / "prometheus.json").read_bytes())["url"])


def scrape(url: str) -> dict[tuple[str, ...], float]:
    """Values by name and labels, without ``run_id``, which all have."""
    with urlopen(url, timeout=60) as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("run_id") == "flights-1"
            found[(sample.name, *labels.values())] = sample.value
    return found


def test_a_scrape_shows_where_the_run_stands_and_its_end(course: MakeCourse, opened: Any) -> None:
    run = course(job=Job(trainer="flights"))
    reporter = opened(run)
    for payload, step in [
        (RunSubmitted(trainer="flights", max_steps=100, total_steps=100), None),
        (RunStarted(device="cpu"), 0),
        (Metrics(metrics={"train/loss": 0.5, "lr": 0.1}, samples_per_second=800, step_seconds=0.04), 10),
        (Metrics(metrics={HOSTILE: 1.5, "not finite": None}, nonfinite=("not finite",)), 10),
        (Validation(metrics={"val/loss": 0.25}, weight=10), 10),
        (CheckpointSaved(path="checkpoints/step-000010", bytes=1000, final=False), 10),
        (Warning(code="gpu.hot", message="it is hot"), 10),
        (Warning(code="gpu.hot", message="still"), 10),
        (Progress(samples_per_second=700), 12),
    ]:
        event = run.tell(payload, step=step, epoch=3)
        for _ in range(2):  # what comes again counts once
            reporter.report_event(event)
    found = scrape(url_of(run))
    assert math.isnan(found[("hostcore_metric", "not finite")])
    assert found[("hostcore_metric", HOSTILE)] == 1.5
    assert found[("hostcore_metric", "train/loss")] == 0.5
    assert found[("hostcore_metric", "val/loss")] == 0.25
    assert found[("hostcore_step",)] == 12
    assert found[("hostcore_total_steps",)] == 100
    assert found[("hostcore_epoch",)] == 3
    assert found[("hostcore_samples_per_second",)] == 700
    assert found[("hostcore_step_seconds",)] == 0.04
    assert found[("hostcore_warnings_total", "gpu.hot")] == 2
    assert found[("hostcore_checkpoints_total",)] == 1
    assert found[("hostcore_checkpoint_bytes_total",)] == 1000
    assert found[("hostcore_last_checkpoint_step",)] == 10
    assert found[("hostcore_events_total", "warning")] == 2
    assert found[("hostcore_last_event_timestamp_seconds",)] == 1_700_000_008
    assert found[("hostcore_status", "running")] == 1
    assert found[("hostcore_status", "submitted")] == 0
    assert found[("hostcore_run_info", "1", "flights")] == 1
    reporter.report_event(run.tell(RunFailed(error=events.RunError(type="ValueError", message="no")), step=1))
    found = scrape(url_of(run))
    assert {name[1]: value for name, value in found.items() if name[0] == "hostcore_status"} == {
        "submitted": 0, "running": 0, "succeeded": 0, "failed": 1, "cancelled": 0, "preempted": 0,
    }  # fmt: skip


def test_after_the_best_weights_are_restored_their_values_are_shown(course: MakeCourse, opened: Any) -> None:
    run = course()
    reporter = opened(run)
    reporter.report_event(run.tell(Validation(metrics={"val/loss": 0.5}, weight=10), step=20))
    restored = TrainerRestored(restored_step=10, reason="best", requested_by="best", values={"val/loss": 0.25})
    reporter.report_event(run.tell(restored, step=20))
    assert scrape(url_of(run))[("hostcore_metric", "val/loss")] == 0.25


def test_two_runs_of_one_process_have_numbers_of_their_own(course: MakeCourse, opened: Any) -> None:
    first, second = course("first"), course("second")
    opened(first).report_event(first.tell(Progress(), step=1))
    opened(second).report_event(second.tell(Progress(), step=2))
    assert scrape(url_of(first))[("hostcore_step",)] == 1
    assert scrape(url_of(second))[("hostcore_step",)] == 2


def test_a_file_tells_the_address_until_closing_frees_the_port_and_its_thread(course: MakeCourse, opened: Any) -> None:
    run = course()
    before = set(threading.enumerate())
    reporter = opened(run)
    assert orjson.loads((run.run_dir / "prometheus.json").read_bytes())["pid"] == os.getpid()
    assert url_of(run).startswith("http://127.0.0.1:")
    port = int(url_of(run).split(":")[2].split("/")[0])
    scrape_of_nothing = urlopen(url_of(run), timeout=60)
    scrape_of_nothing.read()
    scrape_of_nothing.close()
    reporter.close()
    assert not (run.run_dir / "prometheus.json").exists()
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=5):
        pass
    # Those that answered a scrape end by themselves.
    wait_until(lambda: set(threading.enumerate()) <= before, "the threads to end")
    opened(run, port=port).close()


def test_a_port_that_is_taken_is_a_clear_error(course: MakeCourse, opened: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(FatalError, match=f"port {port} of 127.0.0.1 is taken") as caught:
            opened(course(), port=port)
    assert "0 takes a free one" in (caught.value.hint or "")


@pytest.mark.parametrize("address", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_a_clear_error(address: str, course: MakeCourse, opened: Any) -> None:
    with pytest.raises(FatalError, match=f"{address} is no address of this machine"):
        opened(course(), address=address)


def test_nothing_waits_for_a_scrape_that_is_never_read(course: MakeCourse, opened: Any) -> None:
    run = course()
    reporter = opened(run)
    metrics: dict[str, float | None] = {f"metric/{index:0100}": 1.0 for index in range(2000)}
    reporter.report_event(run.tell(Metrics(metrics=metrics), step=1))
    port = int(url_of(run).split(":")[2].split("/")[0])
    with socket.create_connection(("127.0.0.1", port)) as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        lazy.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        reporter.report_event(run.tell(Progress(), step=2))
        assert scrape(url_of(run))[("hostcore_step",)] == 2
        reporter.close()
