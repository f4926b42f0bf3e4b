"""The uploading process, killed at random instants: in the end every object is right, and none was written twice."""

import math
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from buckets import GROWING, NAME, Bucket, Watcher, bucket, check_copy
from fork_server import hostcore
from outages import Outage
from proxy import Fault, Proxy, done_by
from started import is_gone
from thoroughness import instants, points
from waiting import wait_until

#: Of ``hostcore upload``.
KILLS = points(8, long=84)
#: Of the supervisor of ``hostcore run``.
SUPERVISOR_KILLS = points(3, long=16)
#: Of one upload, at most: on a machine that has become slow, none would ever come to its end.
KILLS_OF_A_RUN = 12
BYTES_PER_SECOND = 200_000
WEIGHTS_BYTES = 30_000


@attrs.frozen
class Way:
    """A folder of the bucket, a slow way to it, and a run directory that waits to be uploaded."""

    base: str
    proxy: Proxy
    outage: Outage

    def job(self, run_id: str) -> dict[str, object]:
        options = {"key": "k", "secret": "s", "endpoint_url": self.proxy.url}
        uploader = {"use": "fsspec", "uri": f"s3://{NAME}/{self.base}", "storage_options": options}
        hyperparams = {"weights_bytes": WEIGHTS_BYTES, "seconds": 0.05}
        keys = {"checkpoint_every": 4, "keep_checkpoints": 100, "uploaders": [uploader]}
        return self.outage.job(run_id=run_id, hyperparams=hyperparams, **keys)

    def prefix(self, run_id: str) -> str:
        return f"{self.base}/{run_id}/framework=paced_trainer-Trainer"

    def check(self, run: Path, bucket: Bucket, watcher: Watcher) -> None:
        """What must hold when an upload has come to its end."""
        prefix = self.prefix(run.name)
        check_copy(bucket, prefix, run)
        watcher.check(prefix, run)
        written = done_by(self.proxy.exchanges, "PUT")
        counts = {key: count for key, count in written.items() if f"/{prefix}/" in key and GROWING not in key}
        assert counts
        assert {key: count for key, count in counts.items() if count != 1} == {}
        assert [path for path in (run / "spool").rglob("*") if path.is_file()] == []


@pytest.fixture(scope="module")
def store() -> Iterator[Bucket]:
    with bucket() as made:
        yield made


@pytest.fixture(scope="module")
def way(store: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    folder = tmp_path_factory.mktemp("uploader")
    with Proxy(store.port, bytes_per_second=BYTES_PER_SECOND, fault=Fault.SLOW) as proxy:
        outage = Outage.prepare(folder)
        outage.gate.touch()
        yield Way("base", proxy, outage)


def upload(way: Way, run: Path, *, kill_after_requests: float | None = None) -> int:
    """Upload what is left of a run; the exit code, or ``-SIGKILL`` if it was killed before it had ended.

    :param kill_after_requests: A fraction is a part of the time that the largest file takes.
    """
    before = len(way.proxy.exchanges)
    with (way.outage.folder / "uploads.out").open("ab") as output:
        process = hostcore(["upload", run], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    if kill_after_requests is not None:
        fraction, requests = math.modf(kill_after_requests)
        is_time = lambda: len(way.proxy.exchanges) - before >= requests or process.poll() is not None  # noqa: E731
        wait_until(is_time, f"{requests:g} requests")
        time.sleep(fraction * WEIGHTS_BYTES / BYTES_PER_SECOND)
        process.kill()
    return process.wait(timeout=600)


def printed(way: Way) -> str:
    """What all uploads have printed."""
    return (way.outage.folder / "uploads.out").read_text(errors="replace")


def left_over(way: Way, folder: Path) -> Path:
    """A finished run of which nothing was uploaded, set aside to be copied from."""
    way.proxy.fault = Fault.ABSENT
    command = way.outage.start(way.job("left"))
    command.hurry()
    assert command.wait() == 0, command.printed
    way.proxy.fault = Fault.SLOW
    return Path(shutil.move(command.ledger.path, folder / "left"))


def test_uploads_survive_kills_at_random_instants(way: Way, store: Bucket, seed: int) -> None:
    when, counts = instants(random.Random(seed)), Counter[str]()
    pristine = left_over(way, way.outage.folder)
    run = way.outage.folder / "runs" / "left"
    life = unharmed_requests(way, pristine, run, store)
    while (left := KILLS - counts["kills"]) > 0 or counts["killed in the middle"] <= KILLS / 5:
        assert left > -4 * KILLS, f"most kills hit nothing: {counts}"
        at_most = min(max(left, 1), KILLS_OF_A_RUN)
        # What was uploaded before a kill is not uploaded again: half a life is often enough for the rest.
        requests = (at * life / 2 for at in when)
        counts += kill_until_it_ends(way, pristine, run, store, requests, at_most=at_most)
    print(dict(counts))


def begin_anew(way: Way, pristine: Path, run: Path, store: Bucket) -> None:
    store.clear(f"{way.base}/")
    way.proxy.exchanges.clear()
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(pristine, run)


def unharmed_requests(way: Way, pristine: Path, run: Path, store: Bucket) -> int:
    """How many requests an upload takes that is not killed."""
    begin_anew(way, pristine, run, store)
    assert upload(way, run) == 0, printed(way)
    return len(way.proxy.exchanges)


def kill_until_it_ends(
    way: Way, pristine: Path, run: Path, store: Bucket, requests: Iterator[float], *, at_most: int
) -> Counter[str]:
    """Upload a run again and again, and kill it after some requests each time, or until it comes to its end."""
    begin_anew(way, pristine, run, store)
    counts = Counter[str](runs=1)
    with Watcher(store, f"{way.base}/") as watcher:
        code = -signal.SIGKILL
        while counts["kills"] < at_most:
            before = len(way.proxy.exchanges)
            code = upload(way, run, kill_after_requests=next(requests))
            if code == 0:
                break
            assert code == -signal.SIGKILL, printed(way)
            counts["kills"] += 1
            counts["killed in the middle"] += len(way.proxy.exchanges) > before
        if code != 0:
            assert upload(way, run) == 0, printed(way)
    way.check(run, store, watcher)
    return counts


def test_runs_survive_kills_of_the_supervisor_that_uploads(way: Way, store: Bucket, seed: int) -> None:
    when, counts = instants(random.Random(seed)), Counter[str]()
    way.proxy.fault = Fault.SLOW
    began = time.monotonic()
    assert way.outage.start(way.job("unharmed")).wait() == 0
    life = time.monotonic() - began
    while (left := SUPERVISOR_KILLS - counts["kills"]) > 0:
        counts += kill_supervisors(way, f"run-{counts['runs']}", store, (at * life for at in when), at_most=left)
    print(dict(counts))


def kill_supervisors(way: Way, run_id: str, store: Bucket, seconds: Iterator[float], *, at_most: int) -> Counter[str]:
    """Run a job again and again, and kill its supervisor, some times or until it comes to its end; then to its end."""
    counts, run = Counter[str](runs=1), way.outage.folder / "runs" / run_id
    with Watcher(store, f"{way.base}/") as watcher:
        while counts["kills"] < at_most:
            command = way.outage.start(way.job(run_id))
            time.sleep(next(seconds))
            workers = command.workers
            command.process.kill()
            code = command.process.wait()
            wait_until(lambda: all(map(is_gone, workers)), "the worker to end")  # noqa: B023
            if code == 0:
                break
            assert code == -signal.SIGKILL, command.printed
            counts["kills"] += 1
        command = way.outage.start(way.job(run_id))
        assert command.wait() == 0, command.printed
    way.check(run, store, watcher)
    return counts
