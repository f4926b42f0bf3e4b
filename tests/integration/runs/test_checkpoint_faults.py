"""Damaged, foreign and unwritable checkpoints, as a run in this process sees them."""

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import hostcore
from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import committed
from hostcore.cli import cli
from hostcore.errors import Errors
from hostcore.runs.result import RunResult
from hostcore.supervisor.attempt.supervise import RunTakenOver
from hostcore_hookspecs import Event


@attrs.frozen
class Outcome:
    """A run that is over."""

    result: RunResult
    events: list[Event]

    def of(self, name: str) -> list[Any]:
        return [event.payload for event in self.events if event.name == name]


@pytest.fixture
def start(here: Path, request: pytest.FixtureRequest) -> Callable[..., Outcome]:
    """``start(max_steps=4)``: run the test's own job in this process."""

    def run(**keys: Any) -> Outcome:
        events: list[Event] = []
        job = {"trainer": "small_trainer:Trainer", "device": "cpu", "terminal": False, "metric_every": 1}
        run_id = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
        return Outcome(hostcore.run({**job, "run_id": run_id, **keys}, on_event=events.append), events)

    return run


@pytest.fixture
def folder(here: Path, request: pytest.FixtureRequest) -> Path:
    """The checkpoints of the test's own run."""
    return here / "".join(letter if letter.isalnum() else "-" for letter in request.node.name) / "checkpoints"


@pytest.fixture
def steps(folder: Path) -> Callable[[], list[int]]:
    """The steps of which there are checkpoints."""
    return lambda: [record.step for record in committed(folder)]


def metric(outcomes: list[Outcome], name: str = "noise") -> Mapping[int, float]:
    return {
        event.step: event.payload.metrics[name]
        for outcome in outcomes
        for event in outcome.events
        if event.name == "metrics"
    }


def flip(path: Path) -> None:
    """Change one byte."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


@pytest.fixture(scope="module")
def whole(here: Path) -> Mapping[int, float]:
    """The metric of a run of eight steps that nothing has happened to."""
    job = {"trainer": "small_trainer:Trainer", "device": "cpu", "terminal": False, "metric_every": 1}
    events: list[Event] = []
    result = hostcore.run({**job, "run_id": "whole", "max_steps": 8}, on_event=events.append)
    return metric([Outcome(result, events)])


class TestADamagedCheckpoint:
    @pytest.mark.parametrize(
        ("damage", "reason"),
        [
            (lambda folder: flip(folder / "state.json"), "SHA-256"),
            (lambda folder: (folder / "host.json").unlink(), "host.json is missing"),
            (lambda folder: (folder / "rank-0.json").write_bytes(b""), "has 0 bytes"),
            (lambda folder: Path(f"{folder}.json").write_text("{"), "commit record"),
            (lambda folder: Path(f"{folder}.json").unlink(), "no commit record"),
        ],
        ids=["content", "missing", "truncated", "record", "uncommitted"],
    )
    def test_is_passed_over_for_an_older_one_and_the_run_ends_the_same(
        self, start: Callable, folder: Path, whole: Mapping, damage: Callable, reason: str
    ) -> None:
        first = start(max_steps=6, checkpoint_every=2)
        damage(folder / "step-000006")
        second = start(max_steps=8)
        (skipped,) = second.of("checkpoint_skipped")
        assert skipped.path == "checkpoints/step-000006"
        assert reason in skipped.reason
        assert second.of("run_resumed")[0].path == "checkpoints/step-000004"
        assert metric([first, second]) == whole
        assert second.result.step == 8

    def test_when_all_are_damaged_the_run_begins_again(self, start: Callable, folder: Path) -> None:
        start(max_steps=6, checkpoint_every=2)
        for step in (2, 4, 6):
            flip(folder / f"step-{step:06d}" / "state.json")
        again = start(max_steps=8)
        assert [skip.path[-1] for skip in again.of("checkpoint_skipped")] == ["6", "4", "2"]
        assert again.of("run_resumed") == []
        assert list(metric([again])) == list(range(1, 9))

    def test_that_a_dead_attempt_left_half_written_is_removed(self, start: Callable, folder: Path) -> None:
        start(max_steps=2)
        (folder / ".step-000003.attempt-1.tmp").mkdir()
        (folder / ".step-000003.attempt-1.tmp" / "state.json").touch()
        start(max_steps=3)
        assert sorted(path.name for path in folder.iterdir()) == [
            *("step-000002", "step-000002.json", "step-000003", "step-000003.json")
        ]


class TestOtherData:
    @pytest.fixture
    def data(self, folder: Path) -> Callable[..., dict]:
        """``data(rows=40)``: the ``dataset`` of a job, after these rows were written."""

        def write(rows: int, **keys: Any) -> dict:
            path = folder.parent.parent / "data" / f"{folder.parent.name}.parquet"
            path.parent.mkdir(exist_ok=True)
            pq.write_table(pa.table({"x": list(range(rows))}), path)
            return {"parquet_paths": [str(path)], "batch_size": 4, **keys}

        return write

    def test_under_the_same_run_is_refused_with_what_changed(
        self, start: Callable, data: Callable, steps: Callable
    ) -> None:
        start(dataset=data(40), max_steps=3)
        with pytest.raises(Errors) as caught:
            start(dataset=data(41), max_steps=6)
        (error,) = caught.value.errors
        assert error.code == "data.changed"
        assert "the number of rows, the files changed" in error.message
        assert error.hint
        result = start(dataset=data(41), max_steps=3).result
        assert (result.status, result.attempt) == ("succeeded", 1), "the run is as it was"
        assert steps() == [3]

    def test_does_not_spoil_the_run_for_the_right_data(self, start: Callable, data: Callable) -> None:
        dataset = data(40)
        file = Path(dataset["parquet_paths"][0])
        aside = file.rename(file.with_suffix(".aside"))
        start_from_aside = {**dataset, "parquet_paths": [str(aside)]}
        assert start(dataset=start_from_aside, max_steps=3).result.step == 3
        content, times = aside.read_bytes(), aside.stat()
        data(41)
        file.replace(aside)
        with pytest.raises(Errors, match="changed"):
            start(dataset=start_from_aside, max_steps=6)
        aside.write_bytes(content)
        os.utime(aside, ns=(times.st_atime_ns, times.st_mtime_ns))
        outcome = start(dataset=start_from_aside, max_steps=6)
        assert (outcome.result.status, outcome.result.step, outcome.result.attempt) == ("succeeded", 6, 2)

    def test_in_batches_of_another_size_is_refused(self, start: Callable, data: Callable, folder: Path) -> None:
        start(dataset=data(40), max_steps=3)
        dataset = {**data(40), "batch_size": 5}
        with pytest.raises(Errors, match="the batch size, the files changed") as caught:
            start(run_id="other-batches", dataset=dataset, resume_from_checkpoint=str(folder / "step-000003"))
        assert [error.code for error in caught.value.errors] == ["data.changed"]
        assert not (folder.parent.parent / "other-batches").exists()


class TestFromACheckpointOfAnotherRun:
    def test_a_run_goes_on_from_there_and_records_its_parent_also_in_later_attempts(
        self, start: Callable, folder: Path, whole: Mapping, here: Path
    ) -> None:
        first, parent = start(max_steps=4), str(folder / "step-000004.json")
        child = start(run_id="child", max_steps=5, resume_from_checkpoint=parent)
        again = start(run_id="child", max_steps=8)
        assert child.of("run_resumed")[0].path == str(folder / "step-000004")
        assert again.of("run_resumed")[0].path == "checkpoints/step-000005"
        assert metric([first, child, again]) == whole
        assert orjson.loads((here / "child" / "config" / "run.json").read_bytes())["parent"] == parent

    def test_a_run_that_failed_before_its_first_checkpoint_begins_there_again(
        self, start: Callable, folder: Path
    ) -> None:
        start(max_steps=4)
        parent = str(folder / "step-000004")
        fails = {"run_id": "child-3", "max_steps": 7, "callbacks": ["small_trainer:FailOnce"]}
        assert start(**fails, resume_from_checkpoint=parent).result.status == "failed"
        again = start(**fails)
        assert again.of("run_resumed")[0].path == parent
        assert list(metric([again])) == [5, 6, 7]

    def test_one_that_is_not_there_is_an_error_and_starts_nothing(
        self, start: Callable, here: Path, folder: Path
    ) -> None:
        with pytest.raises(CheckpointError) as caught:
            start(max_steps=7, resume_from_checkpoint=str(here / "none" / "step-000004"))
        assert caught.value.pointer == "/resume_from_checkpoint"
        assert not folder.parent.exists()

    def test_one_that_is_damaged_is_an_error_and_leaves_no_run(self, start: Callable, folder: Path, here: Path) -> None:
        start(max_steps=4)
        flip(folder / "step-000004" / "state.json")
        with pytest.raises(Errors, match="SHA-256 differs") as caught:
            start(run_id="child-4", max_steps=7, resume_from_checkpoint=str(folder / "step-000004"))
        assert [error.code for error in caught.value.errors] == ["checkpoint.damaged"]
        assert not (here / "child-4").exists()


class TestKeeping:
    @pytest.mark.parametrize(("keep", "kept"), [(3, [6, 8, 9]), (1, [9]), (0, [9]), (10, [2, 4, 6, 8, 9])], ids=str)
    def test_the_newest_stay_and_the_last_one_always(
        self, start: Callable, steps: Callable, folder: Path, keep: int, kept: list[int]
    ) -> None:
        outcome = start(max_steps=9, checkpoint_every=2, keep_checkpoints=keep)
        assert steps() == kept
        assert outcome.result.final_checkpoint == "checkpoints/step-000009"
        folders = [path.name for path in folder.iterdir() if path.is_dir()]
        assert sorted(folders) == [f"step-{step:06d}" for step in kept]

    def test_old_ones_stay_until_they_are_uploaded_and_no_component_sees_them(
        self, here: Path, start: Callable, steps: Callable, folder: Path
    ) -> None:
        store = here.parent / "store"
        store.write_text("a file, where a folder should be")
        job = {"checkpoint_every": 2, "keep_checkpoints": 1, "uploaders": [{"use": "fsspec", "uri": str(store)}]}
        job["callbacks"] = [{"use": "small_trainer:SeesCheckpoints"}]
        outcome = start(max_steps=5, **job)
        assert outcome.result.status == "succeeded"
        assert steps() == [2, 4, 5]
        assert folder.with_name("seen.txt").read_text().split("\n") == ["[2]", "[4]", "[5]", ""]
        store.unlink()
        start(max_steps=6, **job)
        assert steps() == [5, 6]  # the final ones
        assert sorted(path.stem for path in store.rglob("step-*.json")) == [
            f"step-00000{step}" for step in (2, 4, 5, 6)
        ]

    def test_the_one_that_a_run_goes_on_from_is_kept_again(
        self, here: Path, start: Callable, steps: Callable, folder: Path
    ) -> None:
        store = here.parent / "another-store"
        store.write_text("a file, where a folder should be")
        job = {"checkpoint_every": 2, "keep_checkpoints": 1, "uploaders": [{"use": "fsspec", "uri": str(store)}]}
        start(max_steps=5, **job)
        assert steps() == [2, 4, 5]
        flip(folder / "step-000005" / "state.json")
        outcome = start(max_steps=6, **{**job, "keep_checkpoints": 3})
        assert [resumed.path for resumed in outcome.of("run_resumed")] == ["checkpoints/step-000004"]
        assert [path.name for path in folder.glob(".*.retired")] == [".step-000002.json.attempt-1.retired"]

    def test_one_that_cannot_be_removed_is_a_warning(
        self, start: Callable, steps: Callable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A full or read-only disk in the middle of a prune cannot be had here: the tests may run as root."""

        def refuse(*args: Any, **keys: Any) -> None:
            raise OSError(errno.EROFS, "Read-only file system")

        monkeypatch.setattr("hostcore.worker.checkpoints.checkpointer.prune", refuse)
        outcome = start(max_steps=4, checkpoint_every=2, keep_checkpoints=1)
        assert outcome.result.status == "succeeded"
        assert {warning.code for warning in outcome.of("warning")} == {"checkpoint.not_removed"}
        assert [saved.path for saved in outcome.of("checkpoint_saved")] == [
            *("checkpoints/step-000002", "checkpoints/step-000004")
        ]
        assert steps() == [2, 4]

    def test_one_with_a_file_that_something_holds_is_a_warning_until_it_can_be_removed(
        self, start: Callable, steps: Callable, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An immutable file, or one that is open on NFS: not to be had by every user of every file system."""

        class Held:
            def __getattr__(self, name: str) -> Any:
                return self._unlink if name == "unlink" else getattr(os, name)

            def _unlink(self, path: Path) -> None:
                if "step-000002/" in str(path):
                    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
                os.unlink(path)  # noqa: PTH108

        job = {"checkpoint_every": 2, "keep_checkpoints": 1}
        with monkeypatch.context() as patch:
            patch.setattr("hostcore.checkpoints.durable.os", Held())
            for most in (6, 8):  # the second attempt goes on
                outcome = start(max_steps=most, **job)
                assert outcome.result.status == "succeeded"
                assert [warning.code for warning in outcome.of("warning")] == ["checkpoint.not_removed"]
        assert steps() == [6, 8]
        assert (folder / "step-000002").exists()
        outcome = start(max_steps=10, **job)
        assert (outcome.result.status, outcome.of("warning"), steps()) == ("succeeded", [], [6, 8, 10])
        assert not any("step-000002" in path.name for path in folder.iterdir())


class TestAnAttemptThatTrainsNoStep:
    """It is stopped while it loads what it goes on from."""

    def test_writes_no_checkpoint_and_the_final_one_stays_final_and_kept(
        self, start: Callable, steps: Callable, folder: Path
    ) -> None:
        job = {"trainer": "small_trainer:StopsAtLoad", "keep_checkpoints": 1, "checkpoint_every": 5}
        start(max_steps=10, **job)
        before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
        Path("stop-at-load").touch()
        try:
            outcome = start(max_steps=40, **job)
        finally:
            Path("stop-at-load").unlink()
        assert (outcome.result.status, outcome.result.step) == ("cancelled", 10)
        assert outcome.of("checkpoint_saved") == []
        assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
        start(max_steps=40, **job)
        assert steps() == [10, 40]
        assert CliRunner().invoke(cli, ["verify", str(folder.parent)]).exit_code == 0


def test_a_final_checkpoint_that_was_trained_again_and_pruned_is_no_loss(
    start: Callable, steps: Callable, folder: Path
) -> None:
    """It was damaged; what replaced it on the way to more steps was not the last of the run."""
    job = {"keep_checkpoints": 2, "checkpoint_every": 5}
    start(max_steps=10, **job)
    flip(folder / "step-000010" / "state.json")
    start(max_steps=20, **{**job, "keep_checkpoints": 1})
    assert steps() == [20]
    assert CliRunner().invoke(cli, ["verify", str(folder.parent)]).exit_code == 0


class TestWriting:
    def test_one_on_the_way_that_cannot_be_written_is_a_warning_and_training_goes_on(
        self, start: Callable, steps: Callable
    ) -> None:
        outcome = start(max_steps=6, checkpoint_every=2, callbacks=["small_trainer:BlockStepTwo"])
        assert outcome.result.status == "succeeded"
        (warning,) = outcome.of("warning")
        assert warning.code == "checkpoint.not_written"
        assert "step 2 could not be written" in warning.message
        assert steps() == [4, 6]

    def test_the_last_one_that_cannot_be_written_fails_the_run(self, start: Callable, steps: Callable) -> None:
        outcome = start(max_steps=2, callbacks=["small_trainer:BlockStepTwo"])
        assert (outcome.result.status, outcome.result.error.type) == ("failed", "CheckpointError")
        assert "could not be written" in outcome.result.error.message
        assert steps() == []

    def test_a_state_that_cannot_be_stored_fails_the_run_with_its_place(self, start: Callable) -> None:
        outcome = start(trainer="small_trainer:Unstorable", max_steps=200, checkpoint_every=100)
        error = outcome.result.error
        assert error.type == "UnstorableState"
        assert "/model/0" in error.message
        assert "state_dict returned it" in error.message
        assert "small_trainer.py:" in error.message
        assert "small_trainer:Unstorable" in error.plugin
        assert (outcome.result.exit_code, outcome.result.step) == (1, 1), "it was found after the first step"

    def test_a_state_of_a_callback_that_cannot_be_stored_names_the_callback(self, start: Callable) -> None:
        outcome = start(max_steps=200, callbacks=["small_trainer:UnstorableCallback"])
        error = outcome.result.error
        assert error.type == "UnstorableState"
        assert "/seen" in error.message
        assert "callback_state returned it" in error.message
        assert "small_trainer:UnstorableCallback" in error.plugin
        assert outcome.result.step == 1

    @pytest.mark.parametrize(
        "keys",
        [{"trainer": "small_trainer:LaterUnstorable"}, {"callbacks": ["small_trainer:LaterUnstorableToo"]}],
        ids=["trainer", "callback"],
    )
    def test_a_state_that_becomes_unstorable_later_names_its_plugin_too(
        self, start: Callable, keys: Mapping[str, Any]
    ) -> None:
        outcome = start(max_steps=4, checkpoint_every=2, **keys)
        assert outcome.result.step == 2
        assert "small_trainer:LaterUnstorable" in outcome.result.error.plugin
        assert "small_trainer.py:" in outcome.result.error.message

    def test_looking_at_the_state_after_the_first_step_draws_nothing(self, start: Callable) -> None:
        drawing = start(trainer="small_trainer:DrawsInStateDict", max_steps=3)
        other = start(run_id="other", max_steps=3)
        assert metric([drawing]) == metric([other])

    def test_looking_at_the_state_does_not_change_the_training(self, start: Callable) -> None:
        collecting = start(run_id="collecting", trainer="small_trainer:AdamOfTorch", max_steps=4)
        plain = start(run_id="plain", trainer="small_trainer:Adam", max_steps=4)
        assert metric([collecting], "error") == metric([plain], "error")

    def test_an_attempt_that_was_overtaken_writes_nothing_more(self, start: Callable, steps: Callable) -> None:
        with pytest.raises(RunTakenOver, match=r"attempt 2 of run .* has taken it over from attempt 1"):
            start(max_steps=6, checkpoint_every=2, callbacks=["small_trainer:Overtake"])
        assert steps() == [2]


class TestATrainerThat:
    @pytest.mark.parametrize("how", ["sys.exit", "interrupt"])
    def test_leaves_while_a_checkpoint_is_being_written_does_not_lose_it(
        self, start: Callable, steps: Callable, how: str
    ) -> None:
        outcome = start(max_steps=6, checkpoint_every=2, hyperparams={"how": how, "at": 3})
        assert outcome.result.status == "failed"
        assert steps() == [2]
        assert [event.path for event in outcome.of("checkpoint_saved")] == ["checkpoints/step-000002"]

    def test_fails_to_read_a_file_of_its_own_for_a_checkpoint_has_failed(self, start: Callable) -> None:
        outcome = start(max_steps=6, checkpoint_every=2, trainer="small_trainer:Forgetful")
        assert (outcome.result.status, outcome.result.step) == ("failed", 2)
        assert outcome.result.error.type == "FileNotFoundError"
        assert "small_trainer:Forgetful" in outcome.result.error.plugin
