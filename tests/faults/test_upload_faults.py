"""An object store that fails, or the way to it: no run ends by it, and in the end every file is there, and once."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest
from buckets import GROWING, NAME, Bucket, Watcher, bucket, check_copy
from outages import HALF, STEPS, Command, Outage
from proxy import Fault, Proxy, done_by
from waiting import wait_until

FRAMEWORK = "run/framework=paced_trainer-Trainer"
FAULTS = [fault for fault in Fault if fault not in (Fault.NONE, Fault.SLOW)]
#: Those that leave a write in doubt: was it done, or not?
DOUBTFUL = [Fault.RESET, Fault.TRUNCATED_REQUEST, Fault.TRUNCATED_RESPONSE, Fault.LOST_RESPONSE]


@pytest.fixture(scope="module")
def server() -> Iterator[Bucket]:
    with bucket() as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def forsaken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """A run whose store was never there; it waits for it while the other tests run."""
    outage = Outage.prepare(tmp_path_factory.mktemp("forsaken"))
    outage.gate.touch()
    with Proxy(0, fault=Fault.ABSENT) as proxy:
        command = outage.start(uploading(outage, Way("base", proxy).uploader()))
        yield command
        command.process.kill()
        command.process.wait()


@pytest.fixture
def store(server: Bucket) -> Bucket:
    server.clear("")
    return server


@pytest.fixture
def outage(tmp_path: Path) -> Outage:
    return Outage.prepare(tmp_path)


@attrs.frozen
class Way:
    """A folder of the bucket, and a proxy before it."""

    base: str
    proxy: Proxy

    def uploader(self, **settings: Any) -> Mapping[str, Any]:
        options = {"key": "k", "secret": "s", "endpoint_url": self.proxy.url}
        uri = f"s3://{NAME}/{self.base}"
        return {"use": "fsspec", "uri": uri, "storage_options": options, "timeout_seconds": 60, **settings}

    @property
    def prefix(self) -> str:
        return f"{self.base}/{FRAMEWORK}"

    def written(self) -> Mapping[str, int]:
        """How often the store has written each file that never changes."""
        found = done_by(self.proxy.exchanges, "PUT").items()
        return {path.removeprefix(f"/{NAME}/{self.prefix}/"): count for path, count in found if GROWING not in path}

    def check(self, command: Command, store: Bucket, watcher: Watcher) -> None:
        """All that must hold when the way to the store is free again."""
        run = command.ledger.path
        check_copy(store, self.prefix, run)
        watcher.check(self.prefix, run)
        twice = {path: count for path, count in self.written().items() if count > 1}
        assert twice == {}, self.base
        assert "result.json" in self.written()


@pytest.fixture
def way(server: Bucket) -> Iterator[Way]:
    with Proxy(server.port, bytes_per_second=40_000) as proxy:
        yield Way("base", proxy)


@pytest.fixture
def ways(server: Bucket) -> Iterator[Mapping[Fault, Way]]:
    """A way for each fault, which has none yet."""
    with ExitStack() as stack:
        bases = {fault: fault.name.lower() for fault in FAULTS}
        yield {fault: Way(base, stack.enter_context(Proxy(server.port))) for fault, base in bases.items()}


def uploading(outage: Outage, *uploaders: Mapping[str, Any], **keys: Any) -> dict[str, Any]:
    """A job with four checkpoints, two on each side of the gate."""
    return outage.job(**{"checkpoint_every": 5, "keep_checkpoints": 10, "uploaders": list(uploaders), **keys})


def uploaders(ways: Mapping[Fault, Way]) -> Iterator[Mapping[str, Any]]:
    """One for each way. Only where nothing is answered is the timeout waited for. Elsewhere it must not be short: a
    write that is given up while a busy store still makes it would be made twice."""
    patience = {Fault.BLACK_HOLE: {"timeout_seconds": 5}}
    return (way.uploader(**patience.get(fault, {})) for fault, way in ways.items())


def check_spool(command: Command) -> None:
    """What was copied is kept no longer, and nothing was given up."""
    assert [path for path in (command.ledger.path / "spool").rglob("*") if path.is_file()] == []
    for event in command.named("upload_failed"):
        assert event["will_retry"], event


def test_everything_arrives_after_outages_that_were_there_from_the_start(
    outage: Outage, ways: Mapping[Fault, Way], store: Bucket
) -> None:
    """One run with an uploader for each fault: none disturbs another."""
    for fault, way in ways.items():
        way.proxy.fault = fault
    with Watcher(store) as watcher:
        command = outage.start(uploading(outage, *uploaders(ways)))
        command.wait_for_step(HALF)
        wait_until(lambda: len(command.named("upload_failed")) >= len(ways), "the failures to be told")
        for way in ways.values():
            assert not any(key.startswith(way.prefix) for key in store.listing()), way.base
            way.proxy.fault = Fault.NONE
        outage.gate.touch()
        assert command.wait() == 0, command.printed
    command.assert_all_steps_done()
    check_spool(command)
    for way in ways.values():
        way.check(command, store, watcher)


def test_everything_arrives_after_outages_in_the_middle(
    outage: Outage, ways: Mapping[Fault, Way], store: Bucket
) -> None:
    job = uploading(outage, *uploaders(ways))
    job["hyperparams"]["gates"]["5"] = str(outage.folder / "first-gate")
    with Watcher(store) as watcher:
        command = outage.start(job)
        for fault, way in ways.items():
            record = f"{way.prefix}/config/run.json"
            wait_until(lambda: record in store.listing(), "the first file to arrive")  # noqa: B023
            way.proxy.fault = fault
        (outage.folder / "first-gate").touch()
        command.wait_for_step(HALF)
        wait_until(lambda: len(command.named("upload_failed")) >= len(ways), "the failures to be told")
        for way in ways.values():
            way.proxy.fault = Fault.NONE
        outage.gate.touch()
        assert command.wait() == 0, command.printed
    command.assert_all_steps_done()
    check_spool(command)
    for way in ways.values():
        way.check(command, store, watcher)


@pytest.mark.parametrize("megabytes", [0, 17], ids=["small", "in parts"])
def test_a_write_whose_end_nobody_has_seen_is_looked_up_and_not_repeated(
    outage: Outage, ways: Mapping[Fault, Way], store: Bucket, megabytes: int
) -> None:
    outage.gate.touch()
    doubtful = {fault: ways[fault] for fault in DOUBTFUL}
    hyperparams = {"weights_bytes": (megabytes << 20) + 1000}
    job = uploading(outage, *(way.uploader() for way in doubtful.values()), hyperparams=hyperparams, checkpoint_every=0)
    with Watcher(store) as watcher, ExitStack() as stack:
        for fault, way in doubtful.items():
            stack.enter_context(way.proxy.suffering(fault, methods=["PUT", "POST"], every=3))
        command = outage.start(job)
        assert command.wait() == 0, command.printed
    command.assert_all_steps_done()
    check_spool(command)
    for fault, way in doubtful.items():
        assert way.proxy.met(fault) > 0
        check_copy(store, way.prefix, command.ledger.path)
        watcher.check(way.prefix, command.ledger.path)
        in_parts = {} if megabytes == 0 else {"checkpoints/step-000020/trainer/weights.bin"}
        assert {path: count for path, count in way.written().items() if count > 1 and path not in in_parts} == {}, fault
        completed = done_by(way.proxy.exchanges, "POST", query="uploadId")
        assert set(completed.values()) == ({1} if megabytes else set()), fault


def test_a_slow_store_gets_everything_and_no_step_waits_for_it(outage: Outage, way: Way, store: Bucket) -> None:
    with Watcher(store) as watcher:
        way.proxy.fault = Fault.SLOW
        command = outage.start(uploading(outage, way.uploader(), hyperparams={"weights_bytes": 60_000}))
        command.wait_for_step(HALF)
        way.proxy.is_held = True  # so slow that the rest comes when all steps are made
        outage.gate.touch()
        command.wait_for_step(STEPS)
        assert f"{way.prefix}/checkpoints/step-000020.json" not in store.listing()
        way.proxy.is_held = False
        assert command.wait() == 0, command.printed
    command.assert_all_steps_done()
    check_spool(command)
    way.check(command, store, watcher)
    assert command.named("upload_failed") == []


def test_a_store_that_is_lost_for_good_costs_nothing_but_its_copy_which_can_be_made_later(
    outage: Outage, way: Way, store: Bucket
) -> None:
    with Watcher(store) as watcher:
        command = outage.start(uploading(outage, way.uploader()))
        first = f"{way.prefix}/checkpoints/step-000005.json"
        wait_until(lambda: first in store.listing(), "the first checkpoint to arrive")
        way.proxy.fault = Fault.ABSENT
        outage.gate.touch()
        command.hurry()
        assert command.wait() == 0, command.printed
        command.assert_all_steps_done()
        assert f"{way.prefix}/checkpoints/step-000020.json" not in store.listing()
        assert "the uploader fsspec has not copied everything" in command.printed
        assert "hostcore upload run" in command.printed

        way.proxy.fault = Fault.NONE
        later = outage.command("upload", "run")
        assert later.wait() == 0, later.printed
    check_spool(command)
    way.check(command, store, watcher)


def test_a_required_store_that_is_lost_for_good_fails_the_run_and_leaves_its_training_intact(
    outage: Outage, way: Way, store: Bucket
) -> None:
    way.proxy.fault = Fault.ABSENT
    outage.gate.touch()
    command = outage.start(uploading(outage, way.uploader(required=True)))
    command.hurry()
    assert command.wait() == 1, command.printed
    assert "Traceback" not in command.printed
    result = command.ledger.result
    assert result is not None
    assert (result["status"], result["step"], result["exit_code"]) == ("failed", STEPS, 1)
    assert "fsspec" in result["error"]["message"]
    assert result["error"]["message"] in command.printed
    command.ledger.check_checkpoints(keep=10)

    way.proxy.fault = Fault.NONE
    with Watcher(store) as watcher:
        later = outage.command("upload", "run")
        assert later.wait() == 0, later.printed
    way.check(command, store, watcher)


def test_a_run_that_nobody_hurries_waits_a_while_for_a_lost_store_and_then_succeeds(forsaken: Command) -> None:
    assert forsaken.wait() == 0, forsaken.printed
    forsaken.assert_all_steps_done()
    assert "the uploader fsspec has not copied everything" in forsaken.printed
