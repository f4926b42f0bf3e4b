"""The subjects of ``growth.py``: what is made before a measurement, and what is measured, for a size.

A subject is measured in a process of its own: ``python growth_subjects.py NAME SIZE FOLDER`` prints one line of JSON.
What has to be imported is imported by doing the same with a tiny size before.
"""

import contextlib
import gc
import hashlib
import io
import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs

#: Looks of the supervisor, the service or a scheduler that are measured together.
LOOKS = 20
TINY = 4
#: Where the runs folder with a real run is kept.
TRAINED = "GROWTH_TRAINED"


@attrs.frozen(kw_only=True)
class Subject:
    """Something that grows."""

    #: What the size counts.
    of: str
    sizes: tuple[int, ...]
    #: Makes what there has to be, in an empty folder.
    prepare: Callable[[Path, int], object]
    #: What is measured.
    work: Callable[[Path, int], object]
    #: Whether the work is the same again after it was done: then all rounds have one folder.
    again: bool = False


# -- events ------------------------------------------------------------------------------------------------------------


def write_rank_log(path: Path, events: int) -> None:
    """What a rank writes that measures every step."""
    from hostcore.events.codec import encode_payload
    from hostcore_hookspecs.events import Metrics

    payload = Metrics(metrics={"loss": 0.125, "accuracy": 0.5}, samples_per_second=1234.5, step_seconds=0.01)
    begin, end = encode_payload(payload, time_ms=1, step=987654321, epoch=0).split(b"987654321")
    with path.open("wb") as log:
        log.writelines(b"%s%d%s" % (begin, step, end) for step in range(1, events + 1))


def one_log(folder: Path, events: int) -> None:
    write_rank_log(folder / "rank-0.jsonl", events)


def merge(folder: Path, _: int) -> None:
    from hostcore.events.merger import EventLog, RankTail

    log = EventLog(folder / "events.jsonl", run_id="growth", attempt=1)
    for entry in RankTail(folder / "rank-0.jsonl", rank=0, attempt=1).read():
        log.append(entry)
    log.close()


def finished_run(folder: Path, events: int) -> None:
    """A run that was trained here, with so many more events in its log, as if it had taken so many more steps."""
    from hostcore.events.codec import encode_event
    from hostcore.events.reader import read_events
    from hostcore_hookspecs.events import Metrics

    trained(folder)
    file = folder / "runs" / "growth" / "logs" / "events.jsonl"
    *found, last = [event for event, _ in read_events(file)]
    measured = next(event for event in reversed(found) if isinstance(event.payload, Metrics))
    line = encode_event(attrs.evolve(measured, seq=123454321, step=987656789))
    head, middle, tail = line.replace(b"987656789", b"123454321").split(b"123454321")
    seq = found[-1].seq
    with file.open("wb") as log:
        log.writelines(map(encode_event, found))
        log.writelines(b"%s%d%s%d%s" % (head, seq + n, middle, n, tail) for n in range(1, events + 1))
        log.write(encode_event(attrs.evolve(last, seq=seq + events + 1)))


def open_log(folder: Path, _: int) -> None:
    from hostcore.events.merger import EventLog

    EventLog(folder / "runs" / "growth" / "logs" / "events.jsonl", run_id="growth", attempt=2).close()


class Trainer:
    """Trains nothing."""

    def setup(self) -> None:
        """Nothing."""

    def configure(self) -> None:
        """Nothing."""

    def prepare_batch(self) -> None:
        """Nothing."""

    def train_step(self) -> object:
        from hostcore_hookspecs import StepResult

        return StepResult(metrics={"loss": 0.5})

    def state_dict(self) -> dict[str, object]:
        return {"steps": 1}

    def load_state_dict(self) -> None:
        """Nothing."""


def trained(folder: Path) -> None:
    """A real run of a few steps in ``runs``; trained once for all subjects."""
    if (kept := Path(os.environ[TRAINED])).is_dir():
        shutil.copytree(kept, folder / "runs")
        return
    document = {"trainer": "growth_subjects:Trainer", "run_id": "growth", "max_steps": 2, "terminal": False}
    (folder / "job.json").write_text(json.dumps(document))
    command(folder, "run", str(folder / "job.json"))
    shutil.copytree(folder / "runs", kept)


def command(folder: Path, *arguments: str) -> None:
    """Run a command of hostcore in this process, and throw away what it prints."""
    from hostcore.cli import main

    os.environ["HOSTCORE_RUNS_DIR"] = str(folder / "runs")
    before = sys.argv
    sys.argv = ["hostcore", *arguments]
    try:
        with contextlib.redirect_stdout(Sink()):
            main()
    except SystemExit as ended:
        if ended.code:
            raise
    finally:
        sys.argv = before


class Sink(io.TextIOWrapper):
    """Standard output that keeps nothing."""

    def __init__(self) -> None:
        super().__init__(Path(os.devnull).open("wb"), encoding="utf-8")  # noqa: SIM115 - closed with it


def of_command(*arguments: str) -> Callable[[Path, int], object]:
    return lambda folder, _: command(folder, *arguments)


# -- runs --------------------------------------------------------------------------------------------------------------


def many_runs(folder: Path, runs: int) -> None:
    """Copies of one run."""
    trained(folder)
    source = folder / "runs" / "growth"
    for number in range(runs):
        target = folder / "runs" / f"growth-{number}"
        for name in ("config", "attempts"):
            shutil.copytree(source / name, target / name)
        shutil.copy(source / "result.json", target)


# -- shards ------------------------------------------------------------------------------------------------------------


def many_shards(folder: Path, shards: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1.0, 2.0], "y": [0, 1]}), folder / "first.parquet")
    content = (folder / "first.parquet").read_bytes()
    records = []
    for number in range(shards):
        (folder / f"{number}.parquet").write_bytes(content)
        records.append({"shard": f"{number}.parquet", "samples": 2, "importance": 1 + number % 7})
    (folder / "index.json").write_text(json.dumps({"records": records}))


def open_shards(folder: Path) -> Any:
    from hostcore_builtin_plugins.sources.shards import ShardsSource
    from hostcore_hookspecs import DataContext

    source = ShardsSource(settings=ShardsSource.Settings(index=str(folder / "index.json")))
    return source.open_dataset({}, DataContext())


def shards_opened(folder: Path, _: int) -> None:
    open_shards(folder)


def shards_read(folder: Path, _: int) -> None:
    """Opened, and an epoch of them read, shuffled."""
    from hostcore.job.sections import DatasetSpec
    from hostcore.worker.feed.feed import Cursor, dataset_feed

    spec = DatasetSpec(source="shards", batch_size=2, shuffle=True)
    feed = dataset_feed(open_shards(folder), spec, seed=0, pointer="/dataset")
    stream = feed.stream(Cursor(epoch=0))
    for _ in stream:
        pass
    stream.close()


# -- checkpoints -------------------------------------------------------------------------------------------------------


def commit(folder: Path, step: int) -> None:
    """A checkpoint of a few bytes, as a commit leaves it; without waiting for the disk."""
    from hostcore.checkpoints.names import folder_name, record_name
    from hostcore.checkpoints.record import CommitRecord, CommittedFile

    content = b'{"step":%d}' % step
    (folder / folder_name(step)).mkdir(parents=True)
    (folder / folder_name(step) / "host.json").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    files = (CommittedFile(path="host.json", size=len(content), sha256=digest),)
    record = CommitRecord(step=step, epoch=0, final=False, attempt=1, files=files)
    (folder / record_name(step)).write_bytes(record.to_json())


def many_checkpoints(folder: Path, checkpoints: int) -> None:
    for step in range(1, checkpoints + 1):
        commit(folder / "runs" / "growth" / "checkpoints", step)


def found(folder: Path, _: int) -> None:
    from hostcore.checkpoints.find import committed, newest

    place = folder / "runs" / "growth" / "checkpoints"
    newest(place)
    committed(place)


def pruned(folder: Path, checkpoints: int) -> None:
    """What the worker does after each of some saves, where as many are kept as there are."""
    from hostcore.checkpoints.find import CommittedRecords
    from hostcore.checkpoints.prune import prune

    place = folder / "runs" / "growth" / "checkpoints"
    known = CommittedRecords(place)
    for step in range(checkpoints + 1, checkpoints + 1 + LOOKS):
        commit(place, step)
        prune(place, keep=checkpoints, protect={step}, records=known.look())


def uploaded(folder: Path, checkpoints: int) -> None:
    """All of them are taken up and copied, by the real uploader of folders."""
    from hostcore.runs.directory import RunDirectory
    from hostcore.supervisor.delivery.subscription import Destination
    from hostcore.supervisor.delivery.units import Inventory
    from hostcore.supervisor.delivery.uploads import Uploads
    from hostcore_builtin_plugins.uploaders.fsspec import FsspecUploader
    from hostcore_hookspecs.uploader import UploadContext

    directory = RunDirectory(folder / "runs" / "growth")
    directory.logs.mkdir(exist_ok=True)
    directory.events.touch()
    (folder / "mirror").mkdir()
    uploader = FsspecUploader(settings=FsspecUploader.Settings(uri=str(folder / "mirror")))
    destination = Destination(
        label="fsspec", name="fsspec", upload_artifact=uploader.upload_artifact, open=uploader.open
    )
    uploads = Uploads(
        [destination],
        Inventory.of(directory),
        UploadContext(
            run_id="growth", run_dir=str(directory.path), base_uri=None, prefix="growth", is_canceled=lambda: False
        ),
    )
    uploads.start()
    while not uploads.is_drained():
        time.sleep(0.05)
    backlog = uploads.pending().by_uploader["fsspec"]
    uploads.abandon()
    assert backlog.uploaded_files >= 2 * checkpoints, backlog  # and the logs


def listed_in_store(folder: Path, _: int) -> None:
    """What a run asks that is to go on from a mirror."""
    from hostcore.supervisor.remote.mirror import Mirror
    from hostcore_builtin_plugins.stores.location import Location

    Mirror(Location.of((folder / "runs" / "growth").as_uri())).steps()


# -- ranks -------------------------------------------------------------------------------------------------------------


def rank_logs(folder: Path, ranks: int) -> None:
    from hostcore.runs.directory import RunDirectory

    directory = RunDirectory(folder / "runs" / "growth")
    directory.logs.mkdir(parents=True)
    for rank in range(ranks):
        write_rank_log(directory.rank_events(1, rank), 1)


def journal_of(folder: Path, ranks: int) -> Any:
    """What the supervisor merges with, once it has read what is there."""
    from hostcore.runs.directory import RunDirectory
    from hostcore.supervisor.attempt.journal import Journal
    from hostcore_hookspecs.job import Job

    directory = RunDirectory(folder / "runs" / "growth")
    opening: Any = SimpleNamespace(directory=directory, attempt=1)
    journal = Journal(opening, Job(), ranks=ranks)
    journal.open()
    journal.merge(at_once=None)
    return journal


def idle_looks(folder: Path, ranks: int) -> None:
    """The supervisor looks at the logs of ranks that have nothing to say."""
    journal = journal_of(folder, ranks)
    for _ in range(LOOKS):
        journal.merge()
    journal.close()


def busy_looks(folder: Path, ranks: int) -> None:
    """Each rank writes a line, and the supervisor looks; at the end it reads what it has not come to."""
    journal = journal_of(folder, ranks)
    logs = [tail._log.path for tail in journal._tails]
    line = logs[0].read_bytes()
    for _ in range(LOOKS):
        for log in logs:
            with log.open("ab") as file:
                file.write(line)
        journal.merge()
    journal.merge(at_once=None)
    journal.close()


# -- the service -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def jobs_in(folder: Path) -> Iterator[Any]:
    from hostcore_service.store.database import open_database
    from hostcore_service.store.jobs import Jobs

    engine = open_database(f"sqlite:///{folder / 'jobs.sqlite'}")
    try:
        yield Jobs(engine)
    finally:
        engine.dispose()


def a_job(number: int, **fields: Any) -> Any:
    from hostcore_service.store.job import StoredJob

    run_id = f"job-{number:06d}"
    own = {
        "run_id": run_id,
        "name": run_id,
        "trainer": "digits",
        "launcher": "local",
        "principal": "token",
        "route": "jobs",
        "launch_id": f"{run_id}-1",
        "submitted_ms": number,
        "due_ms": number,
        "updated_ms": number,
        "job": {"trainer": "digits", "run_id": run_id, "labels": {"team": "maps"}},
    }
    return StoredJob(**{**own, **fields})


def many_jobs(**fields: Any) -> Callable[[Path, int], object]:
    """A table of jobs that are alike, and one that has failed: the oldest."""

    def prepare(folder: Path, jobs: int) -> None:
        from sqlalchemy import insert

        from hostcore_service.store.job import to_row
        from hostcore_service.store.tables import JOBS, LABELS

        with jobs_in(folder) as store, store._engine.execution_options(writes=True).begin() as connection:
            for start in range(0, jobs, 1000):
                numbers = range(start, min(start + 1000, jobs))
                rows = [attrs.asdict(a_job(number, **fields), recurse=False) for number in numbers]
                connection.execute(insert(JOBS), list(map(to_row, rows)))
                labels = [{"run_id": row["run_id"], "key": "team", "value": "maps"} for row in rows]
                connection.execute(insert(LABELS), labels)

    return prepare


ENDED = {"phase": "ended", "status": "succeeded"}


def submitted(folder: Path, jobs: int) -> None:
    with jobs_in(folder) as store:
        for number in range(jobs, jobs + LOOKS):
            store.add(a_job(number), most_open=jobs + LOOKS)


def pages(**wanted: Any) -> Callable[[Path, int], object]:
    """A page of the list, several times."""

    def work(folder: Path, jobs: int) -> None:
        from hostcore_service.store.jobs import Filter, ListPosition

        last = wanted.get("last")
        after = ListPosition(submitted_ms=50, run_id="job-000050") if last else None
        filters = {name: value for name, value in wanted.items() if name != "last"}
        with jobs_in(folder) as store:
            for _ in range(LOOKS):
                store.page(Filter(**filters), after=after, limit=50)

    return work


def claims(folder: Path, _: int) -> None:
    """The dispatcher looks whether anything is to be done; four jobs of this machine run already."""
    with jobs_in(folder) as store:
        for number in range(4):
            store.add(a_job(10_000_000 + number, phase="launched", due_ms=1 << 60))
        for _ in range(LOOKS):
            assert not store.leases.claim("host/boot/1/1/1", now=1 << 50, limit=8, local_at_once=4)


def run_folders(folder: Path, jobs: int) -> None:
    many_jobs(**ENDED)(folder, jobs)
    for number in range(jobs):
        (folder / "runs" / f"job-{number:06d}").mkdir(parents=True)


def started(folder: Path, _: int) -> None:
    """What a service does at its start: open, and look for runs that the database does not know."""
    from hostcore.plugins.installed import discover
    from hostcore_service.admission import Admission
    from hostcore_service.recovery import recover
    from hostcore_service.settings import Settings

    with jobs_in(folder) as store:
        settings = Settings(runs=folder / "runs")
        assert recover(Admission.of(settings, store, discover())) == []


MILLION = (1_000, 10_000, 100_000, 1_000_000)
TEN_THOUSAND = (100, 1_000, 10_000)
HUNDRED_THOUSAND = (1_000, 10_000, 100_000)
RANKS = (10, 100, 1_000)

SUBJECTS = {
    "merge a rank's log": Subject(of="events", sizes=MILLION, prepare=one_log, work=merge),
    "open the event log": Subject(of="events", sizes=MILLION, prepare=finished_run, work=open_log, again=True),
    "hostcore status": Subject(
        of="events", sizes=MILLION, prepare=finished_run, work=of_command("status", "growth"), again=True
    ),
    "hostcore logs": Subject(
        of="events", sizes=MILLION, prepare=finished_run, work=of_command("logs", "growth"), again=True
    ),
    "hostcore logs -n 10": Subject(
        of="events", sizes=MILLION, prepare=finished_run, work=of_command("logs", "growth", "-n", "10"), again=True
    ),
    "hostcore report": Subject(
        of="events", sizes=MILLION, prepare=finished_run, work=of_command("report", "growth"), again=True
    ),
    "hostcore list of one run": Subject(
        of="events", sizes=MILLION, prepare=finished_run, work=of_command("list"), again=True
    ),
    "hostcore list": Subject(of="runs", sizes=TEN_THOUSAND, prepare=many_runs, work=of_command("list"), again=True),
    "open shards": Subject(of="shards", sizes=TEN_THOUSAND, prepare=many_shards, work=shards_opened, again=True),
    "an epoch of shards": Subject(of="shards", sizes=TEN_THOUSAND, prepare=many_shards, work=shards_read, again=True),
    "find checkpoints": Subject(of="checkpoints", sizes=TEN_THOUSAND, prepare=many_checkpoints, work=found, again=True),
    "prune after 20 saves": Subject(of="checkpoints", sizes=TEN_THOUSAND, prepare=many_checkpoints, work=pruned),
    "upload checkpoints": Subject(of="checkpoints", sizes=TEN_THOUSAND, prepare=many_checkpoints, work=uploaded),
    "list a mirror": Subject(
        of="checkpoints", sizes=TEN_THOUSAND, prepare=many_checkpoints, work=listed_in_store, again=True
    ),
    "20 looks at idle ranks": Subject(of="ranks", sizes=RANKS, prepare=rank_logs, work=idle_looks, again=True),
    "20 looks at busy ranks": Subject(of="ranks", sizes=RANKS, prepare=rank_logs, work=busy_looks),
    "submit 20 jobs": Subject(of="jobs", sizes=HUNDRED_THOUSAND, prepare=many_jobs(**ENDED), work=submitted),
    "20 first pages": Subject(of="jobs", sizes=HUNDRED_THOUSAND, prepare=many_jobs(**ENDED), work=pages(), again=True),
    "20 last pages": Subject(
        of="jobs", sizes=HUNDRED_THOUSAND, prepare=many_jobs(**ENDED), work=pages(last=True), again=True
    ),
    "20 pages of a rare status": Subject(
        of="jobs", sizes=HUNDRED_THOUSAND, prepare=many_jobs(**ENDED), work=pages(statuses=["failed"]), again=True
    ),
    "20 pages of a rare label": Subject(
        of="jobs",
        sizes=HUNDRED_THOUSAND,
        prepare=many_jobs(**ENDED),
        work=pages(labels=[("team", "rare")]),
        again=True,
    ),
    "20 pages of a rare trainer": Subject(
        of="jobs", sizes=HUNDRED_THOUSAND, prepare=many_jobs(**ENDED), work=pages(trainer="rare"), again=True
    ),
    "20 looks at ended jobs": Subject(of="jobs", sizes=HUNDRED_THOUSAND, prepare=many_jobs(**ENDED), work=claims),
    "20 looks at queued jobs": Subject(of="jobs", sizes=HUNDRED_THOUSAND, prepare=many_jobs(), work=claims),
    "start the service": Subject(of="jobs", sizes=HUNDRED_THOUSAND, prepare=run_folders, work=started, again=True),
}


def cpu_seconds() -> float:
    """User and system time of this process and its children that have ended."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def of_process() -> dict[str, int]:
    """Counters of the kernel: memory now and at its peak in bytes, bytes read, and calls to read and write."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    calls = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return {
        "memory": int(status["VmRSS"].split()[0]) * 1024,
        "peak": int(status["VmHWM"].split()[0]) * 1024,
        "bytes_read": int(calls["rchar"]),
        "calls": int(calls["syscr"]) + int(calls["syscw"]),
    }


def measure(subject: Subject, folder: Path, size: int) -> dict[str, float]:
    """The work for a size: seconds, bytes, calls."""
    tiny = folder.with_name(f"{folder.name}.tiny")
    tiny.mkdir()
    subject.prepare(tiny, TINY)
    subject.work(tiny, TINY)
    shutil.rmtree(tiny)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, began, cpu = of_process(), time.perf_counter(), cpu_seconds()
    subject.work(folder, size)
    cpu, wall, after = cpu_seconds() - cpu, time.perf_counter() - began, of_process()
    return {
        "cpu": cpu,
        "wall": wall,
        "memory": max(0, after["peak"] - before["memory"]),
        "bytes_read": after["bytes_read"] - before["bytes_read"],
        "calls": after["calls"] - before["calls"],
    }


def main() -> None:
    what, name, size, folder = sys.argv[1:]
    subject, place = SUBJECTS[name], Path(folder)
    sys.path.insert(0, str(Path(__file__).parent))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    if what == "prepare":
        place.mkdir()
        subject.prepare(place, int(size))
    else:
        print(json.dumps(measure(subject, place, int(size))))


if __name__ == "__main__":
    main()
