"""A run with a mirror on S3 goes on, on a machine that has never seen it, as if it had never moved."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from hostcore.checkpoints.find import newest
from hostcore.supervisor.plan import make_plan
from hostcore.supervisor.remote.adopting import adopt_from_mirror

MOCK = {"source": "mock", "num_rows": 50, "num_shards": 9, "batch_size": 8, "shuffle": True, "shuffle_window": 20}
JOB = {
    "trainer": "exact_trainer:Trainer",
    "callbacks": ["exact_trainer:Average"],
    "dataset": MOCK,
    "epochs": 2,  # of six steps
    "metric_every": 1,
    "checkpoint_every": 5,
    "run_id": "a",
}
PREFIX = "a/framework=exact_trainer-Trainer"


def begin(machine: Any, base: str) -> Any:
    """A machine that is taken away in step 7, when everything is in the mirror."""
    there = machine("there")
    trainer = there.path / "exact_trainer.py"
    trainer.write_text(trainer.read_text() + "\nPREEMPT_AT = 7\n")
    done = there.hostcore("run", there.job(**JOB, checkpoint_base_uri=base), "--json")
    assert (done.code, done.json["status"]) == (75, "preempted"), done.err
    return there


@pytest.fixture(scope="module")
def still(make_machine: Any) -> Mapping[int, float]:
    """The losses of a run that never moved."""
    still = make_machine("still")
    assert still.hostcore("run", still.job(**JOB)).code == 0
    return dict(still.metric("a"))


@pytest.fixture(scope="module")
def mirrored(make_machine: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The mirror, in a folder, of a run that was preempted in step 7."""
    base = tmp_path_factory.mktemp("mirrored")
    begin(make_machine, str(base))
    return base


@pytest.fixture
def base(mirrored: Path, tmp_path: Path) -> Path:
    """A copy of that mirror."""
    return Path(shutil.copytree(mirrored, tmp_path / "base ü"))


def test_seq_attempts_and_losses_are_those_of_a_run_that_never_moved(
    machine: Any, s3: Any, still: Mapping[int, float]
) -> None:
    there = begin(machine, s3.uri("runs"))
    before = there.events("a")

    here = machine("here")
    done = here.hostcore("run", here.job(**JOB, checkpoint_base_uri=s3.uri("runs")), "--json")
    assert (done.code, done.json["attempt"], done.json["step"]) == (0, 2, 12), done.err
    assert "fetched from s3://" in done.err
    events = here.events("a")
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[: len(before)] == before
    assert [event["step"] for event in events if event["event"] == "run_resumed"] == [7]
    assert here.metric("a") == still

    # The mirror has it all now: a third machine has nothing left to do, and the first one must not go on.
    third = machine("third")
    again = third.hostcore("run", third.job(**JOB, checkpoint_base_uri=s3.uri("runs")), "--json")
    assert (again.code, again.json) == (0, done.json)
    refused = there.hostcore("run", "job.json", "--json")
    assert refused.code == 2
    (error,) = refused.json["errors"]
    assert (error["code"], error["pointer"]) == ("run.conflict", "/run_id")
    assert "gone on with elsewhere" in error["message"]


def test_a_checkpoint_in_the_mirror_begins_another_run(machine: Any, base: Path) -> None:
    here = machine("here")
    uri = f"file://{base}/{PREFIX}/checkpoints/step-000005.json"
    done = here.hostcore("run", here.job(**{**JOB, "run_id": "b", "resume_from_checkpoint": uri}), "--json")
    assert (done.code, done.json["attempt"]) == (0, 1), done.err
    assert min(here.metric("b")) == 6
    assert orjson.loads((here.run("b") / "config" / "run.json").read_bytes())["parent"] == uri


def test_an_endpoint_in_the_settings_of_the_uploader_serves_for_reading_too(
    base: Path, s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (path for path in base.rglob("*") if path.is_file()):
        s3.put(f"runs/{path.relative_to(base)}", path.read_bytes())
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    options = {"client_kwargs": {"endpoint_url": s3.endpoint}, "key": "testing", "secret": "testing"}
    uploaders = [{"use": "fsspec", "storage_options": options}]
    job = {**JOB, "checkpoint_base_uri": s3.uri("runs/"), "uploaders": uploaders, "device": "cpu"}
    plan = make_plan(job, runs=tmp_path / "runs")
    adopt_from_mirror(plan, print)
    found = newest(plan.directory.checkpoints).found
    assert found is not None
    assert found.record.step == 7


def test_a_bucket_that_is_not_there_says_nothing_of_a_run(machine: Any, s3: Any) -> None:
    here = machine("here")
    job = here.job(**JOB, checkpoint_base_uri="s3://no-such-bucket-at-all/runs", resume_from_checkpoint=True)
    done = here.hostcore("run", job, "--json")
    assert done.code == 2
    assert done.json["errors"][0]["code"] == "run.conflict"


def test_a_finished_run_that_is_started_again_copies_what_was_left(make_machine: Any, tmp_path: Path) -> None:
    here, base = make_machine("finished"), tmp_path / "mirror"
    job = here.job(**{**JOB, "run_id": "done", "max_steps": 3, "epochs": None}, checkpoint_base_uri=str(base))
    assert here.hostcore("run", job).code == 0
    copies = sorted(path.relative_to(base) for path in base.rglob("*") if path.is_file())
    shutil.rmtree(base)
    (here.path / "runs/done/uploads.jsonl").write_text("")

    again = here.hostcore("run", job)
    assert again.code == 0
    assert "finished before: nothing to do" in again.out
    assert sorted(path.relative_to(base) for path in base.rglob("*") if path.is_file()) == copies
    quiet = here.hostcore("run", job)
    assert "uploaded" not in quiet.out + quiet.err


def test_a_submitted_run_is_adopted_by_the_supervisor_that_runs_it(
    make_machine: Any, base: Path, still: Mapping[int, float]
) -> None:
    here = make_machine("detached")
    job = here.job(**JOB, checkpoint_base_uri=str(base), resume_from_checkpoint=True)
    submitted = here.hostcore("run", job, "--detach", "--json")
    assert submitted.code == 0, submitted.err
    assert here.hostcore("logs", "a", "--follow", "--json").code == 0
    ended = here.hostcore("status", "a", "--json").json
    assert (ended["status"], ended["attempt"], ended["step"]) == ("succeeded", 2, 12), ended
    assert here.metric("a") == still
    again = here.hostcore("run", job, "--detach", "--json")
    assert (again.code, again.json["attempt"]) == (0, 2), again.err


def test_a_submission_that_was_killed_before_it_launched_anything_adopts_as_well(
    make_machine: Any, base: Path, still: Mapping[int, float]
) -> None:
    here = make_machine("noted")
    job = here.job(**JOB, checkpoint_base_uri=str(base))
    shutil.copytree(base / PREFIX / "config", here.run("a") / "config")
    for name in ("attempts", "logs", "checkpoints", "samples"):
        (here.run("a") / name).mkdir()
    done = here.hostcore("run", job, "--json")
    assert (done.code, done.json["attempt"], done.json["step"]) == (0, 2, 12), done.err
    assert here.metric("a") == still


RIVAL = """

MIRROR = pathlib.Path(MIRROR)
Own = Trainer

class Trainer(Own):
    def train_step(self, prepared_batch, state, ctx):
        if ctx.run_state.step == 3:  # another machine has begun a job of the same run_id in the same moment
            claim = MIRROR / "attempts" / "1.json"
            while not (MIRROR / "config" / "run.json").exists():
                time.sleep(0.02)
            claim.write_text("{}")
            (MIRROR / "result.json").write_text("theirs")
        return super().train_step(prepared_batch, state, ctx)
"""


def test_of_two_jobs_that_begin_at_once_one_keeps_the_mirror(make_machine: Any, tmp_path: Path) -> None:
    here, mirror = make_machine("rival"), tmp_path / "mirror" / PREFIX
    trainer = here.path / "exact_trainer.py"
    rival = RIVAL.replace("Path(MIRROR)", f"Path({str(mirror)!r})")
    trainer.write_text(f"{trainer.read_text()}\nimport pathlib, time\n{rival}")
    done = here.hostcore("run", here.job(**JOB, checkpoint_base_uri=str(tmp_path / "mirror")), "--json")
    assert done.code == 0, done.err
    assert (mirror / "result.json").read_text() == "theirs"
    assert not list((mirror / "checkpoints").glob("*.json"))
    failed = [one["message"] for one in here.events("a") if one["event"] == "upload_failed"]
    assert any("another run lies at" in message for message in failed)
