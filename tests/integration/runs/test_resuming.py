"""``hostcore resume``: going on with a run that is named, and beginning a new one from a checkpoint."""

import json
import shutil
from pathlib import Path
from typing import Any

import attrs
import pytest

JOB = {"checkpoint_every": 2, "metric_every": 1}


def record_of(run: Any) -> dict[str, Any]:
    return json.loads((run.path / "config" / "run.json").read_text())


@pytest.fixture(scope="module")
def finished(project: Any) -> Any:
    """A run of four steps, with a checkpoint of the second."""
    job = project.job("finished.json", run_id="finished", max_steps=4, **JOB)
    assert project.command("run", job).code == 0
    return project.run("finished")


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory, project: Any) -> Any:
    """The same runs, seen from another working directory, where the trainer's file is not."""
    environment = {**project.environment, "HOSTCORE_RUNS_DIR": str(project.path / "runs")}
    return attrs.evolve(project, path=tmp_path_factory.mktemp("elsewhere"), environment=environment)


def test_a_run_that_failed_says_how_to_go_on_and_does_from_its_newest_checkpoint_wherever_that_is_said(
    elsewhere: Any, project: Any
) -> None:
    """It always fails at its fifth step."""
    job = project.job("fails.json", run_id="fails", max_steps=9, hyperparams={"how": "raise", "at": 5}, **JOB)
    first = project.command("run", job)
    assert first.code == 1
    assert "  to go on    hostcore resume fails\n" in first.out
    said = elsewhere.command("resume", "fai", "--json")
    assert (said.code, said.json["run_id"], said.json["attempt"]) == (1, "fails", 2)
    assert said.json["error"]["message"] == "the loss has exploded"
    run = project.run("fails")
    assert said.json == run.result
    (resumed,) = [event for event in run.events if event["event"] == "run_resumed"]
    assert (resumed["attempt"], resumed["step"]) == (2, 4)
    assert record_of(run)["job_dir"] == str(project.path)


class TestARunThatSucceeded:
    def test_says_so_and_stays_as_it_is(self, finished: Any, project: Any) -> None:
        before = finished.tree()
        said = project.command("resume", "finished")
        assert (said.code, said.out.splitlines()[0]) == (0, "succeeded  finished  (finished before: nothing to do)")
        assert finished.tree() == before

    def test_goes_on_when_more_is_asked_for(self, finished: Any, project: Any) -> None:
        run = project.copy("finished", "longer")
        said = project.command("resume", run.path, "--set", "max_steps=6", "--json")
        assert (said.code, said.json["run_id"], said.json["attempt"], said.json["step"]) == (0, "longer", 2, 6)
        assert list(run.metric()) == [1, 2, 3, 4, 5, 6]
        assert record_of(run)["job"]["max_steps"] == 6

    @pytest.mark.parametrize(
        ("changed", "pointer"), [("run_id=other", "/run_id"), ("seed=1", "/run_id"), ("max_steps=x", "/max_steps")]
    )
    def test_does_not_become_another(self, finished: Any, project: Any, changed: str, pointer: str) -> None:
        before = finished.tree()
        said = project.command("resume", "finished", "--set", changed, "--json")
        assert (said.code, said.json["errors"][0]["pointer"]) == (2, pointer)
        assert finished.tree() == before
        assert not project.run("other").path.exists()


@pytest.mark.parametrize(
    ("named", "hint"),
    [("nobody", "hostcore list"), ("nowhere/nobody", "hostcore list"), ("finished.json", "hostcore run JOB")],
)
def test_what_is_no_run_exits_2(finished: Any, project: Any, named: str, hint: str) -> None:
    said = project.command("resume", named, "--json")
    assert (said.code, said.json["errors"][0]["code"]) == (2, "run.unknown")
    assert hint in said.json["errors"][0]["hint"]


class TestACheckpoint:
    def test_is_where_a_new_run_of_the_same_job_begins(self, finished: Any, project: Any) -> None:
        checkpoint = finished.path / "checkpoints" / "step-000002.json"
        said = project.command("resume", checkpoint.relative_to(project.path), "--json")
        assert (said.code, said.json["status"], said.json["step"]) == (0, "succeeded", 4)
        run = project.run(said.json["run_id"])
        assert run.path != finished.path
        assert Path(record_of(run)["parent"]) == checkpoint
        assert list(run.metric("noise").items()) == list(finished.metric("noise").items())[2:]

    def test_may_be_named_by_its_folder_and_gives_its_run_an_id_that_is_not_taken(
        self, finished: Any, project: Any
    ) -> None:
        checkpoint = finished.path / "checkpoints" / "step-000002"
        changes = ("--set", "run_id=branch", "--set", "max_steps=3")
        said = project.command("resume", checkpoint, *changes, "--json")
        assert (said.code, said.json["run_id"], said.json["step"]) == (0, "branch", 3)
        again = project.command("resume", checkpoint, *changes, "--json")
        assert (again.code, again.json["errors"][0]["code"]) == (2, "run.conflict")

    def test_that_lies_apart_from_its_run_needs_a_job(self, finished: Any, project: Any, tmp_path: Path) -> None:
        shutil.copytree(finished.path / "checkpoints", tmp_path / "kept")
        record = tmp_path / "kept" / "step-000002.json"
        said = project.command("resume", record, "--json")
        assert (said.code, said.json["errors"][0]["code"]) == (2, "run.unknown")
        assert f"hostcore run JOB --from {record}" in said.json["errors"][0]["hint"]

    def test_that_is_not_there_exits_2(self, finished: Any, project: Any) -> None:
        said = project.command("resume", finished.path / "checkpoints" / "step-000777.json", "--json")
        assert (said.code, said.json["errors"][0]["code"]) == (2, "checkpoint.not_found")


def test_a_run_that_was_killed_before_it_could_say_that_it_was_done_keeps_its_last_checkpoint(project: Any) -> None:
    """What a mirror has of it is not changed any more."""
    job = project.job("done.json", run_id="done", max_steps=4, checkpoint_every=2)
    assert project.command("run", job).code == 0
    run = project.run("done")
    record = run.path / "checkpoints" / "step-000004.json"
    committed = record.read_bytes()
    (run.path / "result.json").unlink()

    assert project.command("resume", "done").code == 0
    result = run.result
    assert (result["status"], result["attempt"], result["step"]) == ("succeeded", 2, 4)
    assert result["final_checkpoint"] == "checkpoints/step-000004"
    assert record.read_bytes() == committed


class TestARunWhoseBookkeepingWasDamaged:
    """By a power cut, a broken disk, or a hand: the log still says what has happened."""

    @pytest.fixture
    def damaged(self, finished: Any, project: Any, request: pytest.FixtureRequest) -> Any:
        return project.copy("finished", f"damaged-{abs(hash(request.node.name))}")

    @pytest.mark.parametrize("lost", [["attempts/1.json"], ["attempts", "logs/rank-0.attempt-1.jsonl"]])
    def test_goes_on_as_the_next_attempt_without_its_claims(self, damaged: Any, project: Any, lost: list[str]) -> None:
        for name in lost:
            path = damaged.path / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shown = project.command("status", damaged.path, "--json").json
        assert (shown["status"], shown["attempt"], len(shown["attempts"])) == ("succeeded", 1, 1)
        said = project.command("resume", damaged.path, "--set", "max_steps=6", "--json")
        assert (said.code, said.json["attempt"], said.json["step"]) == (0, 2, 6), said.err
        assert project.command("verify", damaged.path).code == 0

    @pytest.mark.parametrize("content", [b"", b'{"process": 1}'])
    def test_is_shown_verified_and_resumed_with_a_lease_that_says_nothing(
        self, damaged: Any, project: Any, content: bytes
    ) -> None:
        (damaged.path / "lease.json").write_bytes(content)
        assert project.command("status", damaged.path, "--json").json["status"] == "succeeded"
        listed = project.command("list", "--json").json
        assert damaged.path.name in [run["run_id"] for run in listed["runs"]]
        assert project.command("verify", damaged.path).code == 0
        said = project.command("resume", damaged.path, "--set", "max_steps=6", "--json")
        assert (said.code, said.json["attempt"], said.json["step"]) == (0, 2, 6), said.err
