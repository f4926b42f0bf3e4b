"""The uploading process, killed at random instants: in the end every object is right, and none was written twice."""

import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import attrs
import pytest
from buckets import GROWING, NAME, Bucket, Watcher, bucket, check_copy
from cold import is_gone
from outages import Outage
from proxy import Fault, Proxy, done_by
from upload_nursery import UploadNursery, upload_nursery
from waiting import wait_until

#: Of ``hostcore upload``, forked.
KILLS = 84
#: Of the supervisor of ``hostcore run``, started from nothing.
SUPERVISOR_KILLS = 16
#: Beside each other; there are two cores.
LANES = 2
#: Of one upload, at most: on a machine that has become slow, none would ever come to its end.
KILLS_OF_A_RUN = 12


@attrs.frozen
class Lane:
    """A folder of the bucket, a slow way to it, and a run directory that waits to be uploaded."""

    base: str
    proxy: Proxy
    outage: Outage
    nursery: UploadNursery

    def job(self, run_id: str) -> dict[str, object]:
        options = {"key": "k", "secret": "s", "endpoint_url": self.proxy.url}
        uploader = {"use": "fsspec", "uri": f"s3://{NAME}/{self.base}", "storage_options": options}
        hyperparams = {"weights_bytes": 30_000, "seconds": 0.05}
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
def lanes(store: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Lane]]:
    with ExitStack() as stack:
        made = []
        for number in range(LANES):
            folder = tmp_path_factory.mktemp(f"lane-{number}")
            proxy = stack.enter_context(Proxy(store.port, bytes_per_second=200_000, fault=Fault.SLOW))
            nursery = stack.enter_context(upload_nursery(folder / "uploads.out"))
            outage = Outage.prepare(folder)
            outage.gate.touch()
            made.append(Lane(f"lane-{number}", proxy, outage, nursery))
        yield made


def in_lanes(lanes: list[Lane], work: Callable[[Lane], Counter[str]]) -> Counter[str]:
    with ThreadPoolExecutor(LANES) as threads:
        return sum(threads.map(work, lanes), Counter())


def left_over(lane: Lane, folder: Path) -> Path:
    """A finished run of which nothing was uploaded, set aside to be copied from."""
    lane.proxy.fault = Fault.ABSENT
    command = lane.outage.start(lane.job("left"))
    command.hurry()
    assert command.wait() == 0, command.printed
    lane.proxy.fault = Fault.SLOW
    return Path(shutil.move(command.ledger.path, folder / "left"))


def test_uploads_survive_kills_at_random_instants(lanes: list[Lane], store: Bucket, seed: int) -> None:
    def work(lane: Lane) -> Counter[str]:
        rng, counts = random.Random(f"{seed}-{lane.base}"), Counter[str]()
        pristine = left_over(lane, lane.outage.folder)
        run = lane.outage.folder / "runs" / "left"
        life = unharmed_seconds(lane, pristine, run, store)
        while (left := KILLS // LANES - counts["kills"]) > 0:
            at_most = min(left, KILLS_OF_A_RUN)
            counts += kill_until_it_ends(lane, pristine, run, store, rng, life, at_most=at_most)
        return counts

    counts = in_lanes(lanes, work)
    print(dict(counts))
    assert counts["kills"] >= KILLS
    assert counts["killed in the middle"] > KILLS / 5, "most kills have hit nothing"


def begin_anew(lane: Lane, pristine: Path, run: Path, store: Bucket) -> None:
    store.clear(f"{lane.base}/")
    lane.proxy.exchanges.clear()
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(pristine, run)


def unharmed_seconds(lane: Lane, pristine: Path, run: Path, store: Bucket) -> float:
    """How long an upload takes that nobody kills."""
    begin_anew(lane, pristine, run, store)
    started = time.monotonic()
    assert lane.nursery.upload(run) == 0, lane.nursery.output.read_text()
    return time.monotonic() - started


def kill_until_it_ends(
    lane: Lane, pristine: Path, run: Path, store: Bucket, rng: random.Random, life: float, *, at_most: int
) -> Counter[str]:
    """Upload a run again and again, and kill it each time at some instant, some times or until it comes to its end."""
    begin_anew(lane, pristine, run, store)
    counts = Counter[str](runs=1)
    with Watcher(store, f"{lane.base}/") as watcher:
        code = -signal.SIGKILL
        while counts["kills"] < at_most:
            before = len(lane.proxy.exchanges)
            # What was uploaded before a kill is not uploaded again: half a life is often enough for the rest.
            code = lane.nursery.upload(run, kill_after_seconds=rng.uniform(0, life / 2))
            if code == 0:
                break
            assert code == -signal.SIGKILL, lane.nursery.output.read_text()
            counts["kills"] += 1
            counts["killed in the middle"] += len(lane.proxy.exchanges) > before
        if code != 0:
            assert lane.nursery.upload(run) == 0, lane.nursery.output.read_text()
    lane.check(run, store, watcher)
    return counts


def test_runs_survive_kills_of_the_supervisor_that_uploads(lanes: list[Lane], store: Bucket, seed: int) -> None:
    def work(lane: Lane) -> Counter[str]:
        rng, counts = random.Random(f"{seed}-{lane.base}"), Counter[str]()
        lane.proxy.fault = Fault.SLOW
        started = time.monotonic()
        assert lane.outage.start(lane.job("unharmed")).wait() == 0
        life = time.monotonic() - started
        while (left := SUPERVISOR_KILLS // LANES - counts["kills"]) > 0:
            counts += kill_supervisors(lane, f"run-{counts['runs']}", store, rng, life, at_most=left)
        return counts

    counts = in_lanes(lanes, work)
    print(dict(counts))
    assert counts["kills"] >= SUPERVISOR_KILLS


def kill_supervisors(
    lane: Lane, run_id: str, store: Bucket, rng: random.Random, life: float, *, at_most: int
) -> Counter[str]:
    """Run a job again and again, and kill its supervisor, some times or until it comes to its end; then to its end."""
    counts, run = Counter[str](runs=1), lane.outage.folder / "runs" / run_id
    with Watcher(store, f"{lane.base}/") as watcher:
        while counts["kills"] < at_most:
            command = lane.outage.start(lane.job(run_id))
            time.sleep(rng.uniform(0, life))
            workers = command.workers
            command.process.kill()
            code = command.process.wait()
            wait_until(lambda: all(map(is_gone, workers)), "the worker to end")  # noqa: B023
            if code == 0:
                break
            assert code == -signal.SIGKILL, command.printed
            counts["kills"] += 1
        command = lane.outage.start(lane.job(run_id))
        assert command.wait() == 0, command.printed
    lane.check(run, store, watcher)
    return counts
