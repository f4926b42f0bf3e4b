"""The reporter redis-streams, and a real Redis."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
import redis

from hostcore_hookspecs import Event, FatalError, Secret, TransientError
from hostcore_hookspecs.events import Metrics
from hostcore_trackers.redis_streams import RedisStreamsReporter

Course = Any
MakeCourse = Callable[..., Course]
RedisServer = Any


def reporter_of(server: RedisServer, **settings: Any) -> RedisStreamsReporter:
    settings = {"url": server.url, "timeout_seconds": 60.0, **settings}
    return RedisStreamsReporter(settings=RedisStreamsReporter.Settings(**settings))


def steps(run: Course, *steps: int) -> list[Event]:
    return [run.tell(Metrics(metrics={"train/loss": float(step)}), step=step) for step in steps]


def entries(server: RedisServer, key: str = "hostcore:flights-1") -> list[tuple[str, dict[str, str]]]:
    client = redis.Redis.from_url(server.url, decode_responses=True)
    found = client.xrange(key)
    client.close()
    return found


def test_each_event_is_an_entry_under_an_id_of_its_own(course: MakeCourse, redis_server: RedisServer) -> None:
    run = course()
    told = steps(run, 1, 2, 3)
    with redis_server.running():
        run.report(reporter_of(redis_server), told)
        found = entries(redis_server)
    assert [id for id, _ in found] == ["1700000000000-1", "1700000000000-2", "1700000000000-3"]
    log = (run.run_dir / "logs" / "events.jsonl").read_bytes().splitlines()
    assert [orjson.loads(fields["json"]) for _, fields in found] == [orjson.loads(line) for line in log]
    assert {**found[0][1], "json": ""} == {
        "event": "metrics", "run_id": "flights-1", "seq": "1", "attempt": "1", "json": "",
    }  # fmt: skip


def test_events_come_through_an_outage_once_each(course: MakeCourse, redis_server: RedisServer) -> None:
    run = course()
    told = steps(run, 1, 2, 3)
    reporter = reporter_of(redis_server)  # a server that is gone refuses at once
    with redis_server.running():
        run.report(reporter, told[:1])
    reporter.open(run.ctx())
    with pytest.raises(TransientError):
        reporter.report_event(told[1])
    with redis_server.running():
        for event in told[1:]:
            reporter.report_event(event)
        assert [fields["seq"] for _, fields in entries(redis_server)] == ["1", "2", "3"]
    with pytest.raises(TransientError):
        reporter.report_event(told[2])
    reporter.close()


def test_a_stream_keeps_about_so_many(course: MakeCourse, redis_server: RedisServer) -> None:
    run = course()
    told = steps(run, *range(1, 1001))
    with redis_server.running():
        run.report(reporter_of(redis_server, maxlen=50, key="short"), told)
        run.report(reporter_of(redis_server, maxlen=0, key="long"), told)
        assert 50 <= len(entries(redis_server, "short")) < 500
        assert len(entries(redis_server, "long")) == 1000
        run.report(reporter_of(redis_server, maxlen=50, key="short"), told[:10])  # long gone, and still told


def test_a_new_run_of_the_same_name_goes_on_in_the_stream(course: MakeCourse, redis_server: RedisServer) -> None:
    old, new = course("old"), course("new", submitted_ms=1_700_000_100_000)
    with redis_server.running():
        old.report(reporter_of(redis_server), steps(old, 1, 2))
        new.report(reporter_of(redis_server), steps(new, 1))
        assert [id for id, _ in entries(redis_server)] == ["1700000000000-1", "1700000000000-2", "1700000100000-1"]


def test_two_runs_at_once_in_one_stream_are_an_error_and_not_a_loss(
    course: MakeCourse, redis_server: RedisServer
) -> None:
    first, second = course("first"), course("second", run_id="flights-2", submitted_ms=1_700_000_100_000)
    with redis_server.running():
        first.report(reporter_of(redis_server, key="shared"), steps(first, 1))
        second.report(reporter_of(redis_server, key="shared"), steps(second, 1))
        with pytest.raises(FatalError, match="entries that are not of this run") as caught:
            first.report(reporter_of(redis_server, key="shared"), steps(first, 2))
    assert "put {run_id} into the key" in (caught.value.hint or "")


def test_a_key_of_another_type_is_fatal(course: MakeCourse, redis_server: RedisServer) -> None:
    run = course()
    with redis_server.running():
        client = redis.Redis.from_url(redis_server.url)
        client.set("text", "not a stream")
        client.close()
        with pytest.raises(FatalError, match="WRONGTYPE"):
            run.report(reporter_of(redis_server, key="text"), steps(run, 1))


def test_users_and_passwords(course: MakeCourse, redis_server: RedisServer) -> None:
    run = course()
    redis_server.extra = ["--requirepass", "s3cret"]
    with redis_server.running():
        run.report(reporter_of(redis_server, password=Secret("s3cret")), steps(run, 1))
        for wrong in ({"password": Secret("wrong")}, {}):
            with pytest.raises(FatalError, match="redis stream") as caught:
                run.report(reporter_of(redis_server, **wrong), steps(run, 2))
            assert "check username and password" in (caught.value.hint or "")


def test_a_user_without_the_right_to_write_is_fatal(course: MakeCourse, redis_server: RedisServer) -> None:
    run = course()
    redis_server.extra = ["--user", "reader", "on", ">s3cret", "~*", "+@read"]
    with redis_server.running(), pytest.raises(FatalError, match="redis stream"):
        run.report(reporter_of(redis_server, username="reader", password=Secret("s3cret")), steps(run, 1))


def test_a_server_that_is_full_is_transient(course: MakeCourse, redis_server: RedisServer) -> None:
    run = course()
    redis_server.extra = ["--maxmemory", "1"]
    with redis_server.running(), pytest.raises(TransientError, match=r"OOM|maxmemory"):
        run.report(reporter_of(redis_server), steps(run, 1))
